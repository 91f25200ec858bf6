"""What `axial inspect` says of a model."""

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest

from axial_transformers import cli
from axial_transformers.cli import inspect
from axial_transformers.planning import machine
from axial_transformers.planning.flops import engineering
from tests.conftest import Axial


@pytest.fixture(scope="module")
def imagenet64() -> tuple[dict, str]:
    """The facts of a recipe on eight devices, and the tables of them."""
    options = [
        "--devices",
        "8",
        "--utilisation",
        "0.5",
        "--rate",
        "300",
        "--memory",
        "24",
        "--training.accumulate",
        "1",
    ]
    printed = []
    for form in (["--json"], []):
        with redirect_stdout(StringIO()) as out:
            assert cli.main(["inspect", "imagenet64", *options, *form]) == 0
        printed.append(out.getvalue())
    return json.loads(printed[0]), printed[1]


def test_options_alone_are_refused(refused):
    assert "a recipe or a source comes first, then overrides: axial inspect digits" in refused("inspect", "--json")


def test_a_recipe_is_described_without_being_built(imagenet64):
    facts, words = imagenet64
    assert facts["config"]["dim"] == 2048
    assert facts["positions"] == 64 * 64 * 3
    assert facts["parameters"]["total"] > 500_000_000
    assert facts["dependencies"] is None
    assert "not checked" in words


def test_a_small_models_dependencies_are_exact(axial: Axial, trained):
    assert "no leak and no hole in 4,096 pairs" in axial("inspect", trained, "--devices", 1, "--dependencies").out


@pytest.mark.parametrize(("number", "text"), [(12, "12 "), (1234, "1.23 k"), (2.5e12, "2.5 T")])
def test_large_numbers_are_readable(number, text):
    assert engineering(number) == text


def test_training_is_sized_for_the_devices_named(imagenet64):
    facts, words = imagenet64
    found = facts["training"]
    assert (found["device_batch"], found["batch_size"], found["precision"]) == (8, 64, "bfloat16")
    assert found["seconds_per_step"] == pytest.approx(found["flops_per_step"] / (8 * 300e12 * 0.5))
    assert found["seconds_of_all_steps"] == pytest.approx(200_000 * found["seconds_per_step"])
    kept, again = found["memory_bytes"].values()
    assert again["total"] < kept["total"]
    assert kept["total"] == sum(v for k, v in kept.items() if k not in ("total", "needed"))
    assert "training on 8 devices, 64 examples a step in bfloat16" in words
    assert "does not fit into 24 GB" in words
    assert "200,000 steps" in words


@pytest.mark.slow
def test_overrides_of_training_change_its_size(axial: Axial):
    def found(*options: str) -> dict:
        return json.loads(axial("inspect", "imagenet32", "--devices", "4", *options, "--json").out)["training"]

    whole, shared = found(), found("--training.shard")
    assert shared["sharded"]
    assert shared["memory_bytes"]["blocks_kept"]["weights"] == whole["memory_bytes"]["blocks_kept"]["weights"] / 4
    assert found("--training.batch-size", "128")["flops_per_step"] == 2 * whole["flops_per_step"]
    assert found("--training.accumulate", "4")["device_batch"] == whole["device_batch"] / 2


def test_a_runs_own_settings_are_sized(axial: Axial, trained):
    found = json.loads(axial("inspect", trained, "--devices", "2", "--json").out)["training"]
    assert (found["steps"], found["device_batch"]) == (4, 32)


def test_without_devices_it_is_this_machine_and_a_run_tells_its_data(axial: Axial, trained, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda device, whole: 7_000_000_000)
    monkeypatch.setattr(inspect, "matmul_rate", lambda device, dtype: 2e12)
    facts = json.loads(axial("inspect", trained, "--json").out)
    hardware, sized = facts["training"]["hardware"], facts["training"]
    assert (hardware["devices"], hardware["memory"], hardware["rate"]) == (1, pytest.approx(7.0), 2.0)
    assert sized["seconds_per_step"] is None  # nothing has been measured
    half = json.loads(axial("inspect", trained, "--utilisation", 0.5, "--json").out)["training"]
    assert half["seconds_per_step"] == pytest.approx(sized["flops_per_step"] / 1e12)
    assert facts["dependencies"] is None
    assert facts["data"]["test"] == 297
    words = " ".join(axial("inspect", trained).out.split())
    for said in (
        "training on this machine",
        "time said after ten steps",
        "classes 10: 0, 1, 2",
        "1,350 train, 150 validation",
    ):
        assert said in words
    assert "H100" not in words
    assert "200,000 steps" not in words


def test_devices_that_do_not_share_a_batch_are_one_line(refused):
    assert "a batch of 64 does not divide" in refused("inspect", "imagenet64", "--devices", "7")
    says = "utilisation must be above 0 and at most 1, not 40"
    assert says in refused("inspect", "imagenet64", "--utilisation", "40")
