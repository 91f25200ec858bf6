"""What `axial inspect` says of a model."""

import json

import pytest

from axial_transformers.cli import inspect
from axial_transformers.models import AxialTransformerConfig
from conftest import Axial


def test_a_recipe_is_described_without_being_built(axial: Axial):
    facts = json.loads(axial("inspect", "imagenet64", "--json").out)
    assert facts["config"]["dim"] == 2048
    assert facts["sites"] == 64 * 64 * 3
    assert facts["parameters"]["total"] > 10**9
    assert facts["dependencies"] is None
    assert "not checked" in axial("inspect", "imagenet64").out


def test_overrides_apply(axial: Axial):
    assert json.loads(axial("inspect", "digits", "--model.dim", "32", "--json").out)["config"]["dim"] == 32


def test_a_small_models_dependencies_are_exact(axial: Axial, trained):
    facts = json.loads(axial("inspect", trained, "--json").out)
    assert facts["dependencies"] == {"leaks": 0, "holes": 0, "pairs": 64**2}
    assert "no leak and no hole in 4,096 pairs" in axial("inspect", trained).out


def test_a_row_wise_model_has_holes():
    """Without outer decoders nothing is heard from other rows, and inspection says so."""
    config = AxialTransformerConfig(shape=(3, 5), num_values=4, dim=8, heads=2, outer_layers=0, inner_layers=1)
    found = inspect.inspect(config)["dependencies"]
    assert found["leaks"] == 0
    assert found["holes"] == 5 * 5 * 3  # pairs of sites of different rows


def test_an_unknown_model_is_one_line(axial: Axial):
    status, _, err = axial("inspect", "digts")
    assert status == 2
    assert "perhaps you meant digits" in err


@pytest.mark.parametrize(("number", "text"), [(12, "12 "), (1234, "1.23 k"), (2.5e12, "2.5 T")])
def test_large_numbers_are_readable(number, text):
    assert inspect._engineering(number) == text
