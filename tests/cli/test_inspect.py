"""What `axial inspect` says of a model."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_train import picture
from tests.conftest import TINY, Axial


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_tells_its_data(axial: Axial, trained):
    words = " ".join(axial("inspect", trained).out.split())
    assert "classes 10: 0, 1, 2" in words
    assert "1,350 train, 150 validation" in words


def weather(file: str) -> str:
    np.save(file, np.round(np.cumsum(np.random.default_rng(0).normal(size=(100, 48)), 1), 1).astype(np.float32))
    return file


def photos(folder: str) -> str:
    for i in range(24):
        picture(f"{folder}/{'ab'[i % 2]}/{i}.png", i)
    for i in (0, 6, 9):
        Path(f"{folder}/{'ab'[i % 2]}/{i}.png").write_text("damaged")
    Path(f"{folder}/notes.txt").write_text("")
    return folder


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (weather, "series", ["series: values over time", "100 series: 90 train", "floats in steps of 0.1 from 0"]),
        (photos, "image", ["24 image files; 1 other file not read", "classes 2: a, b"]),
    ],
)  # fmt: skip
def test_data_are_shown_first_and_called_by_their_kind(axial: Axial, make, kind, says):
    done = axial("inspect", make(f"{kind}.npy"), "--training.steps", 9)
    words = " ".join(done.out.split())
    assert [each for each in says if each not in words] == []
    assert words.index(says[0]) < words.index("width")


def test_the_plan_is_the_one_that_train_prints(axial: Axial):
    small = [*TINY, "--training.steps", 1, "--samples", 0]
    inspected = axial("inspect", weather("data.npy"), *small).out
    trained = axial("train", "data.npy", *small, "--out", "run").err
    rows = (line.strip().partition(" ") for line in inspected.splitlines() if line.startswith(" "))
    names = ("width", "layers", "steps", "batches", "examples")
    found = {name: text.strip() for name, _, text in rows if name in names}
    assert len(found) == 5
    for name, text in found.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", trained, re.MULTILINE), (name, text)
