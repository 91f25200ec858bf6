"""What `axial inspect` says of a model."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from axial_transformers import cli
from axial_transformers.wording import engineering
from tests.cli.test_train import picture
from tests.conftest import TINY, Axial


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def imagenet64() -> tuple[dict, str]:
    """The facts of a recipe, made small enough for a test, and the tables of them."""
    options = ["--model.dim", "64", "--training.batch-size", "8"]
    printed = []
    for form in (["--json"], []):
        with redirect_stdout(StringIO()) as out:
            assert cli.main(["inspect", "imagenet64", *options, *form]) == 0
        printed.append(out.getvalue())
    return json.loads(printed[0]), printed[1]


def test_a_recipe_is_described(imagenet64):
    facts, _ = imagenet64
    assert facts["config"]["dim"] == 64
    assert facts["positions"] == 64 * 64 * 3
    assert facts["dependencies"] is None


def test_a_small_models_dependencies_are_exact(axial: Axial, trained):
    assert "0 leaks, 0 holes in 4,096 pairs" in axial("inspect", trained, "--dependencies").out


@pytest.mark.parametrize(("number", "text"), [(12, "12 "), (1234, "1.23 k"), (2.5e12, "2.5 T")])
def test_large_numbers_are_readable(number, text):
    assert engineering(number) == text


def test_bytes_and_flops_of_a_step_are_told(imagenet64):
    facts, words = imagenet64
    found = facts["training"]
    assert found["batch_size"] == 8
    assert found["parameters"] == facts["parameters"]["total"]
    assert found["flops"] > 6 * 8 * 64 * 64 * 3 * 64**2
    said = " ".join(words.split())
    assert f"memory more than {engineering(sum(found[name] for name in BYTES))}B" in said
    assert f"FLOPs {engineering(found['flops'])}FLOP a step" in said


BYTES = ("weights", "gradients", "moments", "average", "saved")


def test_a_run_tells_its_data(axial: Axial, trained):
    facts = json.loads(axial("inspect", trained, "--json").out)
    assert (facts["training"]["steps"], facts["dependencies"], facts["data"]["test"]) == (4, None, 297)
    words = " ".join(axial("inspect", trained).out.split())
    assert "classes 10: 0, 1, 2" in words
    assert "1,350 train, 150 validation" in words


def dna(file: str) -> str:
    np.save(file, np.random.default_rng(0).integers(0, 4, (200, 64)).astype(np.uint8))
    return file


def table(file: str) -> str:
    highest = [1, 4, 89, 199]
    np.save(file, np.random.default_rng(0).integers(0, highest, (200, 4), endpoint=True))
    return file


def weather(file: str) -> str:
    np.save(file, np.round(np.cumsum(np.random.default_rng(0).normal(size=(100, 48)), 1), 1).astype(np.float32))
    return file


def clips(file: str) -> str:
    np.save(file, np.random.default_rng(0).integers(0, 256, (20, 2, 4, 4, 3)).astype(np.uint8))
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
        (dna, "sequence", ["kind sequences", "200 sequences: 180 train, 20 validation", "4 symbols (categorical)"]),
        (table, "row", ["kind rows of a table", "200 rows: 180 "]),
        (weather, "series", ["100 series: 90 train", "numbers (ordinal), floats in steps of 0.1 from 0; found: -"]),
        (clips, "clip", ["20 clips: 18 train", "2 x 4 x 4, 3 channels"]),
        (photos, "image", ["files 24 image files", "not read 1 other file: notes.txt", "classes 2: a, b",
                           "skipped 3 files: image.npy/a/0.png is not a whole image", "(also image.npy/"]),
    ],
)  # fmt: skip
def test_data_are_shown_first_and_called_by_their_kind(axial: Axial, make, kind, says):
    done = axial("inspect", make(f"{kind}.npy"), "--training.steps", 9)
    words = " ".join(done.out.split())
    assert [each for each in says if each not in words] == []
    assert words.index(says[0]) < words.index("model data")
    assert "skipped" not in done.err
    assert ("(gray)" in words or "image" in words) == (kind == "image")
    assert json.loads(axial("inspect", f"{kind}.npy", "--json").out)["data"]["kind"] == kind


def test_the_plan_is_the_one_that_train_prints(axial: Axial):
    small = [*TINY, "--training.steps", 1, "--samples", 0]
    inspected = axial("inspect", dna("data.npy"), *small).out
    trained = axial("train", "data.npy", *small, "--out", "run").err
    rows = (line.strip().partition(" ") for line in inspected.splitlines() if line.startswith(" "))
    names = ("width", "layers", "steps", "batches", "examples")
    found = {name: text.strip() for name, _, text in rows if name in names}
    assert len(found) == 5
    for name, text in found.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", trained, re.MULTILINE), (name, text)
