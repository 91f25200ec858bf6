"""A run from elsewhere fetches nothing that only its record names, and says what it reads."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.data import hugging_face
from tests.conftest import TINY, Axial

VERBS = (["train"], ["evaluate"], ["score"], ["complete", "--rows", "1"])


def test_a_file_that_a_record_names_is_said_before_it_is_read(axial: Axial, tmp_path: Path):
    values = np.random.default_rng(0).integers(0, 4, (30, 3, 2), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", images=values)
    short = ["--training.steps", 1, "--training.batch-size", 2, "--data.num-values", 4, "--samples", 1]
    assert axial("train", tmp_path / "own.npz", *TINY, *short, "--out", tmp_path / "run").status == 0
    more = {"train": ["--training.steps", 2], "complete": ["--examples", 1, "--out", tmp_path / "a.npz"]}
    for verb in VERBS:
        done = axial(verb[0], tmp_path / "run", *verb[1:], *more.get(verb[0], []))
        assert done.status == 0
        assert f"reading {tmp_path / 'own.npz'}, the data that {tmp_path / 'run'} names" in done.err


def naming(run: Path, source: str) -> Path:
    """The run, whose record names another source."""
    record = json.loads((run / "train.json").read_text())
    record["run"]["source"] = source
    (run / "train.json").write_text(json.dumps(record))
    return run


@pytest.mark.parametrize(
    "source",
    ["http://127.0.0.1:1/a.tar", "hf:a/b/c@main", "/dev/null", "pipe", "/etc", "x\n\x1b[31m\n" * 999],
)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_nothing_else_that_a_changed_record_names_is_fetched_or_read(
    axial: Axial, trained, tmp_path, monkeypatch, source, verb
):
    monkeypatch.setattr(hugging_face, "open_parts", lambda *_: 1 / 0)
    if source == "pipe":
        source = str(tmp_path / "pipe")
        os.mkfifo(source)
    status, out, err = axial(verb[0], naming(shutil.copytree(trained, tmp_path / "run"), source), *verb[1:])
    assert (status, out) == (2, "")
    assert len(err) < 4000
    (mistake,) = [line for line in err.splitlines() if line.startswith(f"axial {verb[0]}: ")]
    if source.startswith("hf:"):
        assert "is fetched only if it is named: add it after the folder" in mistake
    if source in ("/dev/null", str(tmp_path / "pipe")):
        assert "is no file and no folder" in mistake


def test_the_bundled_data_is_not_spoken_of(axial: Axial, trained, tmp_path):
    said = axial("complete", trained, "--rows", 7, "--examples", 1, "--out", tmp_path / "a.png")
    assert said.status == 0
    assert "names" not in said.err


def test_a_data_set_of_the_hub_that_is_named_again_is_fetched(axial: Axial, trained, tmp_path, monkeypatch):
    def opened(source: str, files: object) -> None:
        raise ValueError(f"{source} is asked for")

    monkeypatch.setattr(hugging_face, "open_parts", opened)
    run = naming(shutil.copytree(trained, tmp_path / "run"), "hf:a/b")
    assert "hf:a/b is asked for" in axial("evaluate", run, "hf:a/b").err
