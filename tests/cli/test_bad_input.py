"""Bad input through the command line: one clear line, status 2, nothing written, little memory."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Axial, Refused

pytestmark = pytest.mark.usefixtures("at_most_a_gigabyte_more")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written all the same is written, and found, there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(40):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def refused(refused: Refused, tmp_path: Path) -> Refused:
    """The one line that a command leaves, having written nothing."""

    def run(*argv: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        err = refused(*argv)
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return run


def test_an_unknown_recipe_is_refused_with_the_nearest_name(refused, tmp_path):
    line = refused("train", "imagnet32", "--out", tmp_path / "run")
    assert "perhaps you meant imagenet32" in line


def test_a_recipe_without_its_data_is_refused(refused, tmp_path):
    assert "axial train imagenet32 " in refused("train", "imagenet32", "--out", tmp_path / "run")


def test_data_of_another_shape_than_the_recipe_models_are_refused(refused, tmp_path, photos):
    line = refused("train", "digits", photos, "--out", tmp_path / "run")
    assert "[8, 8, 3]" in line
    assert f"axial train {photos}" in line


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(trained / name, folder)
    return folder


@pytest.mark.parametrize("verb", [["evaluate"], ["sample"]])
def test_weights_that_were_cut_off_are_refused(refused, model, verb):
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert "model.safetensors: damaged or cut off" in refused(*verb, model)


def test_a_configuration_that_is_no_json_is_refused(refused, model):
    (model / "config.json").write_text("{")
    assert "config.json: not a model configuration" in refused("evaluate", model, "digits")


def test_data_of_another_shape_than_the_models_are_refused(refused, model, photos):
    assert "[8, 8, 3]" in refused("evaluate", model, photos)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "2"], "--top-p"),
        (["--label", "11"], "label"),
        (["--count", "0"], "--count"),
        (["--count", "1000000000000"], "would fit"),
        (["--count", "1000000000000", "--output", "samples.npz"], "would fit"),
        (["--scale", "1000000"], "--scale must be in 1..256"),
        (["--scale", "0"], "--scale must be in 1..256, not 0"),
        (["--fps", "0"], "--fps must be at least 1, not 0"),
        (["--seed", str(1 << 99)], "--seed must be in"),
        (["--label", str(1 << 99)], "--label 6338"),
        (["--device", "meta"], "--device meta computes nothing"),
        (["--device", "hpu"], "--device hpu is not on this machine"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--weights", "raw"], "no raw weights"),
        (["--known", "digits"], "has no known channels"),
        (["--output", "samples.gif"], "samples.gif"),
    ],
)
def test_options_out_of_range_are_refused(refused, model, options, says):
    assert says in refused("sample", model, *options)


def test_completions_that_no_memory_holds_are_refused(refused, model):
    line = refused("complete", model, "digits", "--rows", "4", "--count", 10**12)
    fit = int(line.split("about ")[1].split()[0].replace(",", ""))
    assert 0 < fit < 10**9


@pytest.mark.parametrize("verb", ["evaluate", "score"])
def test_a_batch_is_at_most_all_there_is(axial: Axial, model, verb):
    done = axial(verb, model, "digits", "--split", "validation", "--batch-size", 10**100)
    assert done.status == 2
    assert "--batch-size must be in 1.." in done.err
    assert axial(verb, model, "digits", "--split", "validation", "--batch-size", 2**63 - 1).status == 0


def test_frames_of_one_axis_in_a_foreign_configuration_are_refused(refused, model):
    (model / "config.json").write_text('{"model": "axial_transformer", "shape": [4], "layout": "frames"}')
    assert "layout 'frames' needs frames and at least one more axis" in refused("sample", model)


@pytest.mark.parametrize(
    "words",
    [["evaluate", "MODEL", ""], ["score", "MODEL", ""], ["compress", "MODEL", "", "x.axl"],
     ["decompress", "MODEL", "", "x"], ["complete", "MODEL", "", "--rows", "4"], ["train", ""],
     ["train", "digits", "--out="], ["inspect", ""]],
    ids=" ".join,
)  # fmt: skip
def test_a_word_that_an_unset_variable_left_empty_is_refused(refused, model, photos, monkeypatch, words):
    monkeypatch.chdir(photos)
    assert "a word is empty" in refused(*(model if word == "MODEL" else word for word in words))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that nobody writes to; what reads it raises an error after ten seconds."""

    def give_up(*_: object) -> None:
        raise TimeoutError("reads a pipe")

    os.mkfifo(tmp_path / "pipe.npy")
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(10)
    yield tmp_path / "pipe.npy"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "words",
    ["evaluate MODEL PIPE", "score MODEL PIPE", "compress MODEL PIPE x.axl", "decompress MODEL PIPE x", "train PIPE",
     "complete MODEL PIPE --rows 4", "inspect PIPE"],
)  # fmt: skip
def test_a_pipe_is_no_source(refused, model, pipe, words):
    named = {"MODEL": model, "PIPE": pipe}
    assert "pipe.npy is no file and no folder" in refused(*(named.get(word, word) for word in words.split()))
