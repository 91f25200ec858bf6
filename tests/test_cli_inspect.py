"""What `axial inspect` says of a model."""

import json

import pytest

from axial_transformers.cli import inspect
from axial_transformers.cli.console import engineering
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
    assert engineering(number) == text


def test_training_is_sized_for_the_devices_named(axial: Axial):
    options = ["--devices", "8", "--utilisation", "0.5", "--rate", "300", "--memory", "24"]
    found = json.loads(axial("inspect", "imagenet64", *options, "--json").out)["training"]
    assert (found["device_batch"], found["batch_size"], found["precision"]) == (8, 64, "bfloat16")
    assert found["seconds_per_step"] == pytest.approx(found["operations_per_step"] / (8 * 300e12 * 0.5))
    assert found["seconds_of_200k_steps"] == pytest.approx(200_000 * found["seconds_per_step"])
    kept, again = found["memory_bytes"].values()
    assert again["total"] < kept["total"]
    assert kept["total"] == sum(v for k, v in kept.items() if k not in ("total", "largest_device_batch"))
    words = axial("inspect", "imagenet64", *options).out
    assert "training on 8 devices, 64 examples a step in bfloat16" in words
    assert "does not fit into 24 GB" in words
    assert "200,000 steps" in words


def test_overrides_of_training_change_its_size(axial: Axial):
    def found(*options: str) -> dict:
        return json.loads(axial("inspect", "imagenet32", "--devices", "4", *options, "--json").out)["training"]

    whole, shared = found(), found("--training.shard")
    assert shared["sharded"]
    assert shared["memory_bytes"]["blocks_kept"]["weights"] == whole["memory_bytes"]["blocks_kept"]["weights"] / 4
    assert found("--training.batch-size", "128")["operations_per_step"] == 2 * whole["operations_per_step"]
    assert found("--training.accumulate", "2")["device_batch"] == whole["device_batch"] / 2


def test_a_runs_own_settings_are_sized(axial: Axial, trained):
    found = json.loads(axial("inspect", trained, "--devices", "2", "--json").out)["training"]
    assert (found["steps"], found["device_batch"]) == (4, 32)


def test_devices_that_do_not_share_a_batch_are_one_line(axial: Axial):
    status, _, err = axial("inspect", "imagenet64", "--devices", "7")
    assert status == 2
    assert "a batch of 64 does not divide" in err
    status, _, err = axial("inspect", "imagenet64", "--utilisation", "40")
    assert status == 2
    assert "utilisation must be above 0 and at most 1, not 40" in err
