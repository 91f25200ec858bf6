"""A folder that pretends to be a run: one line, status 2, nothing changed in it or anywhere else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save_file

from axial_transformers.storage.locks import folder_held
from tests.conftest import Axial, Refused

pytestmark = pytest.mark.usefixtures("at_most_a_gigabyte_more")

CHECKPOINT = "checkpoints/step-00000004"
FILES = ("model.safetensors", "ema.safetensors", "optimizer.safetensors")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run with one checkpoint and two more steps to make."""
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000002", ignore_errors=True)
    return tmp_path / "run"


def state_of(folder: Path) -> dict[Path, Any]:
    """Everything there, links included."""
    return {
        path: path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def refused(refused: Refused, tmp_path: Path) -> Refused:
    """The one line that a command leaves; all around the run stays as it was."""

    def run(*argv: object) -> str:
        before = state_of(tmp_path)
        err = refused(*argv)
        assert len(err) < 1500
        assert state_of(tmp_path) == before
        return err

    return run


def forge(checkpoint: Path, changes: dict[str, Any]) -> None:
    """Make a record say other things."""
    record = json.loads((checkpoint / "state.json").read_text()) | changes
    (checkpoint / "state.json").write_text(json.dumps(record))


def change_tensor(file: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change one tensor of a checkpoint."""
    tensors = load(file.read_bytes())  # not mapped: the file is written again
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if tensor.ndim)
    save_file(tensors | {name: change(tensor)}, file)


def edit(run: Path, settings: dict[str, Any]) -> None:
    """Change settings in the record of a run."""
    record = json.loads((run / "train.json").read_text())
    for name, value in settings.items():
        record["run"][name] = {**record["run"][name], **value} if isinstance(value, dict) else value
    (run / "train.json").write_text(json.dumps(record))


def lead_out(run: Path, name: str) -> None:
    """Put a link out of the folder in the place of something."""
    (run / name).rename(run.parent / "elsewhere")
    (run / name).symlink_to(run.parent / "elsewhere")


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights that are none": (
        lambda run: (run / CHECKPOINT / FILES[0]).write_bytes(b"no weights"),
        "model.safetensors",
    ),
    "shape": (lambda run: change_tensor(run / CHECKPOINT / FILES[0], lambda x: x.new_zeros(3, 3)), "is [3, 3], not"),
    "dtype": (lambda run: change_tensor(run / CHECKPOINT / FILES[2], lambda x: x.to(torch.int32)), "I32"),
    "NaN": (lambda run: change_tensor(run / CHECKPOINT / FILES[0], lambda x: x.fill_(float("nan"))), "holds NaN"),
    "step": (lambda run: forge(run / CHECKPOINT, {"step": 10**400}), "state.json: step is"),
    "identity": (
        lambda run: forge(run / CHECKPOINT, {"identity": {"training.seed": "x\n" * 99_999}}),
        "cannot be",
    ),
    "record that is deep": (lambda run: (run / "train.json").write_text("[" * 100_000), "train.json"),
    "record that is large": (lambda run: (run / "train.json").write_text(" " * (17 << 20)), "train.json"),
    "record of no bytes": (lambda run: (run / "train.json").write_text(""), "train.json"),
    "setting": (lambda run: edit(run, {"training": {"steps": 10**400}}), "train.json"),
    "endless time": (lambda run: edit(run, {"training": {"minutes": float("inf")}}), "train.json"),
    "link": (lambda run: lead_out(run, CHECKPOINT), f"{CHECKPOINT} is a link out of"),
    "link of what is written": (lambda run: lead_out(run, "metrics.jsonl"), "metrics.jsonl is a link out of"),
    "pipe": (lambda run: [(run / "metrics.jsonl").unlink(), os.mkfifo(run / "metrics.jsonl")], "neither a file nor a"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_run_is_not_resumed(refused, run: Path, kind):
    change, says = FORGED[kind]
    change(run)
    assert says in refused("train", run, "--training.steps", "6")


@pytest.mark.parametrize("kind", ["shape", "NaN", "record that is deep", "setting", "link"])
def test_a_forged_run_is_not_evaluated(refused, run: Path, kind):
    FORGED[kind][0](run)
    refused("evaluate", run, "--weights", "raw")


def test_a_run_that_another_process_trains_can_be_read_only(axial: Axial, refused, run: Path):
    (run / ".checkpoint.123.part").write_text("what the other process is writing")
    more = ["train", run, "--training.steps", "6"]
    with folder_held(run):
        assert f"{run} is in use by another process: wait" in refused(*more)
        assert axial("evaluate", run, "--limit", 9).status == 0  # reading is free
    assert axial(*more).status == 0
    assert not list(run.glob(".*.part"))


def test_a_run_that_names_no_data_is_evaluated_on_data_that_is_named(axial: Axial, refused, run: Path):
    """As one begun from Python without saying what its data is."""
    edit(run, {"source": None})
    assert "train.json names no data" in refused("train", run)
    assert "does not know its data" in refused("evaluate", run)
    assert json.loads(axial("evaluate", run, "digits", "--limit", 9, "--json").out)["weights"] == "EMA"
