"""The public surface: every name can be imported, and its module is imported at the first use only."""

import pytest

import axial_transformers


@pytest.mark.parametrize("name", axial_transformers.__all__)
def test_every_public_name_can_be_used(name):
    assert callable(getattr(axial_transformers, name))


def test_every_public_name_has_a_module():
    assert set(axial_transformers.__all__) == set(axial_transformers._HOMES)
    assert dir(axial_transformers) == sorted(axial_transformers.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="axial_atention"):
        axial_transformers.axial_atention
