"""The other models of table 1 are trained, resumed and used by name, as the axial ones are."""

import json

import numpy as np
import pytest

from axial_transformers.data.examples import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines import BlockTransformerConfig, ImageTransformerConfig, SparseTransformerConfig
from axial_transformers.models.baselines.by_name import MODELS, build, read_model
from axial_transformers.models.baselines.config import CONFIGS as CLASSES
from axial_transformers.recipes import NAMED
from axial_transformers.training import RunConfig, TrainConfig, read_run, train

SIZE = {"shape": (2, 3), "channels": 2, "num_values": 5, "dim": 8, "heads": 2, "inner_layers": 2}
CONFIGS = {
    "image_transformer": ImageTransformerConfig(block=4, memory=3, **SIZE),
    "sparse_transformer": SparseTransformerConfig(**SIZE),
    "block_transformer": BlockTransformerConfig(blocks=((1, 6), (2, 2)), **SIZE),
}


@pytest.mark.parametrize(
    "name", ["image_transformer", *(pytest.param(name, marks=pytest.mark.slow) for name in [*CONFIGS][1:])]
)
def test_a_run_is_resumed_evaluated_sampled_scored_and_inspected(name, axial, tmp_path, monkeypatch):
    values = np.random.default_rng(0).integers(0, 5, (20, 2, 3, 2), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=values)
    training = TrainConfig(steps=2, batch_size=2, evaluate_every=2, device="cpu")
    recipe = RunConfig(recipe="other", model=CONFIGS[name], training=training)
    monkeypatch.setitem(NAMED, "other", lambda: recipe)
    source, run = tmp_path / "data.npz", tmp_path / "run"
    options = ["--data.num-values", "5", "--out", run]
    assert axial("train", "other", source, *options, "--samples", "2", "--training.sample-every", "2").status == 0
    assert json.loads((run / "config.json").read_text())["model"] == name
    assert read_run(run).run.model == read_model(run).config == CONFIGS[name]
    assert axial("train", run, "--training.steps", "4").status == 0
    metrics = json.loads(axial("evaluate", run, "--split", "validation", "--json").out)
    assert metrics["images"] == 2
    assert abs(metrics["bits_per_dim"] - np.log2(5)) < 0.1  # hardly trained
    assert axial("sample", run, "--count", "2", "--output", tmp_path / "samples.npz").status == 0
    assert axial("score", run, source, "--output", tmp_path / "scores.csv").status == 0
    facts = json.loads(axial("inspect", run, "--json").out)
    assert facts["step"]["flops"] > 0


def test_a_run_goes_on_as_the_model_that_it_was_begun_with(tmp_path):
    """The weights of both have the same names and shapes; only the name of the model tells them apart."""
    examples = Examples(np.zeros((4, 2, 3, 2), np.uint8), list("abcd"), range=ValueRange(0, 4))
    settings = TrainConfig(steps=1, batch_size=2, device="cpu")
    train(build(CONFIGS["sparse_transformer"]), examples, settings, tmp_path / "run")
    raster = build(AxialTransformerConfig(layout="raster", **SIZE))
    with pytest.raises(ValueError, match="model"):
        train(raster, examples, settings, tmp_path / "run", resume=True)


def test_every_model_has_its_configuration_by_name():
    classes = {model.name: model.config_class for model in MODELS}
    assert classes == {"axial_transformer": AxialTransformerConfig, **CLASSES}
