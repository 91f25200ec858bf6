"""A run from elsewhere fetches and reads nothing that only its record names."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.data.shards import downloads
from conftest import TINY, Axial


@pytest.fixture
def run(axial: Axial, tmp_path: Path) -> Path:
    """A run on an array, after one step."""
    values = np.random.default_rng(0).integers(0, 4, (30, 3, 2), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", images=values)
    short = ["--training.steps", 1, "--training.batch-size", 2, "--data.num-values", 4, "--samples", 1]
    assert axial("train", tmp_path / "own.npz", *TINY, *short, "--out", tmp_path / "run").status == 0
    return tmp_path / "run"


@pytest.fixture
def elsewhere(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user or another machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))


VERBS = (["train"], ["evaluate"], ["score"], ["complete", "--rows", "1"])


def refused(axial: Axial, verb: list[str], run: Path) -> str:
    status, out, err = axial(verb[0], run, *verb[1:])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"axial {verb[0]}: {run} was not begun by you on this machine, ")
    assert "add --trust-source" in err
    return err


def test_ones_own_run_needs_no_flag_also_in_another_folder(axial: Axial, run: Path):
    moved = shutil.move(run, run.with_name("moved"))
    assert axial("train", moved, "--training.steps", 2).status == 0
    assert axial("evaluate", moved).status == 0


@pytest.mark.usefixtures("elsewhere")
def test_a_run_from_elsewhere_needs_the_flag_once_or_a_source(axial: Axial, run: Path):
    source = run.with_name("own.npz")
    for verb in VERBS:
        assert repr(str(source)) in refused(axial, verb, run)
    assert axial("evaluate", run, source).status == 0
    assert axial("evaluate", run, "--trust-source").status == 0
    refused(axial, ["evaluate"], run)
    assert axial("train", run, source, "--training.steps", 2).status == 0
    assert axial("train", run, "--training.steps", 3).status == 0  # what was resumed here is one's own


@pytest.mark.usefixtures("elsewhere")
def test_the_flag_of_a_resume_is_needed_once(axial: Axial, run: Path):
    assert axial("train", run, "--training.steps", 2, "--trust-source").status == 0
    assert axial("train", run, "--training.steps", 3).status == 0


@pytest.mark.parametrize("source", ["http://127.0.0.1:1/a.tar", "/etc", "hf://datasets/a/b", "x\n\x1b[31m\n" * 999])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_nothing_that_a_changed_record_names_is_fetched_or_read(
    axial: Axial, trained, tmp_path, monkeypatch, source, verb
):
    monkeypatch.setattr(downloads, "download", lambda *_: 1 / 0)
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    record = json.loads((run / "train.json").read_text())
    record["about"]["source"] = source
    (run / "train.json").write_text(json.dumps(record))
    assert len(refused(axial, verb, run)) < 2000


def test_the_embedded_data_needs_no_flag(axial: Axial, trained, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert axial("complete", trained, "--rows", 7, "--examples", 1, "--output", tmp_path / "a.png").status == 0
