"""From a source to a run: Python has the road of `axial train`."""

from pathlib import Path

import numpy as np
import pytest

import axial_transformers as axial_package
from axial_transformers.cli.train import requested
from axial_transformers.recipes.prepare import prepare
from tests.conftest import TINY, Axial

pytestmark = pytest.mark.usefixtures("home")
FEW = ["--training.steps", "2", "--training.batch-size", "2", "--samples", "1", "--validate-on", "2"]


@pytest.fixture
def images() -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 9, (30, 4, 5), np.int16)
    values[-4:, 0, 0] = 12  # which only validation holds
    np.savez("images.npz", images=values)
    return values


def test_python_trains_what_the_command_trains_without_a_word(axial: Axial, images, capsys):
    done = axial("train", "images.npz", *map(str, TINY), *FEW, "--out", "one")
    assert done.status == 0, done.err
    run, _ = requested(["images.npz", *map(str, TINY), *FEW, "--out", "two"])
    capsys.readouterr()
    with pytest.warns(UserWarning, match="validation part"):
        state = prepare(run).train()
    assert (state.step, capsys.readouterr().err) == (2, "")
    assert Path("one/model.safetensors").read_bytes() == Path("two/model.safetensors").read_bytes()


def test_nothing_is_open_and_the_model_knows_the_values_of_all_parts(images):
    with pytest.warns(UserWarning, match="validation part"):
        prepared = axial_package.prepare("images.npz")
    assert prepared.run.open == ()
    assert prepared.run.out == Path("runs/images")
    assert (prepared.run.model.shape, prepared.run.model.num_values) == ((4, 5), 13)
    assert prepared.costs.parameters == prepared.facts.parameters
    assert (len(prepared.examples), len(prepared.validation)) == (27, 3)
