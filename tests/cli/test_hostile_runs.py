"""A folder that pretends to be a run: one line, status 2, nothing changed in it or anywhere else."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from axial_transformers.storage.locks import folder_held
from tests.conftest import Axial, Refused
from tests.storage.test_model_folders import HOSTILE

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


@pytest.fixture
def go_on(refused: Refused, run: Path) -> Callable[[], str]:
    """The line with which the run is not resumed."""
    return lambda: refused("train", run, "--training.steps", "6")


def forge(checkpoint: Path, changes: dict[str, Any]) -> None:
    """Make a record say other things and its checksums right again."""
    record = json.loads((checkpoint / "state.json").read_text()) | changes
    record["files"] = changes.get("files") or {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() for name in FILES
    }
    del record["sha256"]
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (checkpoint / "state.json").write_text(json.dumps({**record, "sha256": digest}))


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:60]))
def test_files_that_hold_no_weights_are_refused(go_on, refused, run: Path, content: bytes):
    for file in ("model.safetensors", *(f"{CHECKPOINT}/{name}" for name in FILES)):
        (run / file).write_bytes(content)
    forge(run / CHECKPOINT, {})
    assert "model.safetensors" in refused("evaluate", run)
    assert "no intact checkpoint" in go_on()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", [lambda x: x.to(torch.int32), lambda x: x.new_zeros(3, 3)], ids=["dtype", "shape"])
def test_tensors_of_another_dtype_or_shape_are_refused(go_on, refused, run: Path, file, change):
    tensors = load_file(run / CHECKPOINT / file)
    name = next(iter(tensors))
    save_file(tensors | {name: change(tensors[name])}, run / CHECKPOINT / file)
    forge(run / CHECKPOINT, {})
    assert name in go_on()
    if file == "model.safetensors":
        assert name in refused("evaluate", run, "--weights", "raw")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensors_that_are_not_finite_are_refused(go_on, refused, run: Path, file, value):
    """Right by every checksum, as a run that diverged may have written them."""
    tensors = load_file(run / CHECKPOINT / file)
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if tensor.ndim)
    tensor.flatten()[0] = value
    save_file(tensors, run / CHECKPOINT / file)
    forge(run / CHECKPOINT, {})
    says = f"{file}: {name} holds NaN or infinity"
    assert says in go_on()
    if file == "model.safetensors":
        assert says in refused("evaluate", run, "--weights", "raw")
        shutil.copy(run / CHECKPOINT / file, run / file)
        assert says in refused("evaluate", run)
        assert says in refused("sample", run, "--output", run.parent / "samples.png")


def test_a_run_that_another_process_trains_can_be_read_only(axial: Axial, go_on, run: Path):
    (run / ".checkpoint.123.part").write_text("what the other process is writing")
    with folder_held(run):
        assert f"{run} is in use by process {os.getpid()} on " in go_on()
        assert axial("evaluate", run).status == 0  # reading is free
    assert axial("train", run, "--training.steps", "6").status == 0
    assert not list(run.glob(".*.part"))


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "4"},
        {"step": 3},
        {"step": 10**400},
        {"seconds": [[]]},
        {"seconds": 10**400},
        {"best_bits_per_dim": float("nan")},
        {"more": 1},
        {"identity": []},
        {"files": [1]},
        {"files": {"model.safetensors": "../../../etc/passwd"}},
    ],
    ids=lambda changes: json.dumps(changes)[:90],
)
def test_a_forged_state_is_refused(go_on, run: Path, changes):
    forge(run / CHECKPOINT, changes)
    assert "no intact checkpoint" in go_on()


@pytest.mark.parametrize("file", ["train.json", f"{CHECKPOINT}/state.json"])
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "\xff", "[" * 100_000, '{"model": ' * 50_000, " " * (17 << 20)],
    ids=["empty", "open", "list", "null", "bytes", "deep list", "deep object", "large"],
)
def test_files_that_hold_no_record_are_refused(go_on, refused, run: Path, file, text):
    (run / file).write_bytes(text.encode("latin-1"))
    assert Path(file).name in go_on()
    if file == "train.json":
        assert file in refused("evaluate", run)


def edited(record: dict, edit: dict) -> dict:
    """The record, with the values of the edit at their places."""
    deeper = {
        k: edited(record[k], v) for k, v in edit.items() if isinstance(v, dict) and isinstance(record.get(k), dict)
    }
    return record | edit | deeper


@pytest.mark.parametrize(
    "edit",
    [
        {"run": {"recipe": []}},
        {"run": {"source": 3}},
        {"run": {"data": []}},
        {"run": {"data": {"size": "8"}}},
        {"facts": {"class_names": 5}},
        {"facts": {"skipped": 5}},
        {"run": {"model": None}},
        {"run": {"model": {"dim": "8"}}},
        {"run": {"training": {"steps": "many"}}},
        {"run": {"training": {"steps": 10**400}}},
        {"run": {"training": {"batch_size": 10**400}}},
        {"run": {"training": {"learning_rate": 10**400}}},
        {"run": {"training": {"minutes": float("inf")}}},
        {"run": {"training": {"minutes": 1e300}}},
        {"run": {"training": {"steps": 10**18}}},
        {"run": {"samples": 10**9}},
        {"run": {"data": {"size": 10**400}}},
        {"run": {"training": 4}},
        {"facts": 7},
        {"more": {}},
    ],
    ids=lambda edit: json.dumps(edit)[:50],
)
def test_an_edited_record_is_refused(go_on, refused, run: Path, edit):
    record = json.loads((run / "train.json").read_text())
    (run / "train.json").write_text(json.dumps(edited(record, edit)))
    assert "train.json" in go_on()
    assert "train.json" in refused("evaluate", run)


def test_an_identity_of_another_run_is_told_of_in_one_short_line(go_on, run: Path):
    for name, value in (("seed\n" * 9999, 0), ("seed", "x\n" * 99_999), ("seed", [[[[0] * 99] * 99]])):
        forge(run / CHECKPOINT, {"identity": {"training": {name: value}}})
        assert "cannot be resumed" in go_on()


def test_a_run_that_names_no_data_is_evaluated_on_data_that_is_named(axial: Axial, go_on, refused, run: Path):
    """As one begun from Python without saying what its data is."""
    record = json.loads((run / "train.json").read_text())
    (run / "train.json").write_text(json.dumps(edited(record, {"run": {"source": None}})))
    assert "train.json names no data" in go_on()
    assert "does not know its data" in refused("evaluate", run)
    assert json.loads(axial("evaluate", run, "digits", "--json").out)["weights"] == "EMA"


@pytest.mark.parametrize(
    ("link", "evaluated"),
    [
        ("config.json", True),
        ("model.safetensors", True),
        ("train.json", True),
        ("checkpoints", True),
        (CHECKPOINT, True),
        (f"{CHECKPOINT}/model.safetensors", True),
        (f"{CHECKPOINT}/optimizer.safetensors", False),
        ("metrics.jsonl", False),
        ("samples", False),
    ],
)
def test_links_out_of_the_folder_are_refused(go_on, refused, run: Path, tmp_path, link, evaluated):
    (run / link).rename(tmp_path / "elsewhere")
    (run / link).symlink_to(tmp_path / "elsewhere")
    assert f"{link} is a link out of {run}" in go_on()
    if evaluated:
        assert "is a link out of" in refused("evaluate", run, "--weights", "raw")


def test_a_link_to_what_does_not_exist_yet_is_refused(go_on, run: Path, tmp_path):
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "new")
    assert "metrics.jsonl is a link out of" in go_on()


@pytest.mark.parametrize("place", ["metrics.jsonl", f"{CHECKPOINT}/ema.safetensors"])
def test_a_pipe_that_nobody_writes_to_is_refused(go_on, run: Path, place):
    (run / place).unlink()
    os.mkfifo(run / place)
    assert f"{place} is neither a file nor a folder" in go_on()


def test_lines_of_a_log_that_are_no_records_are_left_out(axial: Axial, run: Path):
    lines = ["[]", "{}", '{"step": null}', '{"step": 1e999}', f'{{"step": {10**400}}}', "[" * 100_000, "\xff"]
    lines.append("x" * (3 << 20))
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_bytes((whole + "\n".join(lines)).encode("latin-1"))
    assert axial("train", run, "--training.steps", "6").status == 0
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert len(steps) > whole.count("\n")
