"""The public surface: every name can be imported, and its module is imported at the first use only."""

import subprocess
import sys

import pytest

import axial_transformers


@pytest.mark.parametrize("name", axial_transformers.__all__)
def test_every_public_name_can_be_used(name):
    assert callable(getattr(axial_transformers, name))


def test_every_public_name_has_a_module():
    assert set(axial_transformers.__all__) == set(axial_transformers._HOMES)
    assert dir(axial_transformers) == sorted(axial_transformers.__all__)


def test_the_package_has_the_version_that_the_command_prints(axial):
    assert axial("--version") == (0, f"{axial_transformers.__version__}\n", "")


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "axial_transformers", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{axial_transformers.__version__}\n")


def test_the_package_and_the_help_do_not_import_torch():
    code = "import sys, axial_transformers.cli as cli; cli.main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="axial_atention"):
        axial_transformers.axial_atention
