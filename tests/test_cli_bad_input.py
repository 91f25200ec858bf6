"""Bad input through the command line: one clear line, status 2, nothing written, little memory."""

import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import Axial

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


def refused(axial: Axial, tmp_path: Path, *argv: object) -> str:
    """The one line that a command leaves, having written nothing."""
    before = sorted(tmp_path.rglob("*"))
    status, out, err = axial(*argv)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"axial {argv[0]}: ")
    assert sorted(tmp_path.rglob("*")) == before
    return err


def train_refused(axial: Axial, tmp_path: Path, source: Path, *options: object) -> str:
    """Training reads the train and the validation part: here these are everything."""
    everything = ["--data.test-fraction", "0", "--training.steps", "1", *options]
    return refused(axial, tmp_path, "train", source, "--out", tmp_path / "run", *everything)


def test_an_image_of_another_size(axial: Axial, tmp_path, photos):
    Image.new("RGB", (9, 8)).save(photos / "wide.png")
    line = train_refused(axial, tmp_path, photos)
    assert "wide.png" in line
    assert "--data.fit crop" in line


def test_an_array_whose_header_claims_terabytes(axial: Axial, tmp_path):
    member = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 1024, 1024, 4)}
    np.lib.format.write_array_header_2_0(member, header)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        file.writestr("images.npy", member.getvalue())
    assert "huge.npz" in train_refused(axial, tmp_path, tmp_path / "huge.npz")


def test_an_unknown_recipe(axial: Axial, tmp_path):
    line = refused(axial, tmp_path, "train", "imagnet32", "--out", tmp_path / "run")
    assert "perhaps you meant imagenet32" in line


def test_a_recipe_without_its_data(axial: Axial, tmp_path):
    assert "axial train imagenet32 " in refused(axial, tmp_path, "train", "imagenet32", "--out", tmp_path / "run")


def test_data_of_another_shape_than_the_recipe_models(axial: Axial, tmp_path, photos):
    line = refused(axial, tmp_path, "train", "digits", photos, "--out", tmp_path / "run")
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
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.999])
def test_weights_that_were_cut_off(axial: Axial, tmp_path, model, verb, kept):
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: int(kept * len(weights))])
    assert "model.safetensors: damaged or cut off" in refused(axial, tmp_path, *verb, model)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dim": 16}, "not the weights of this configuration"),
        ({"dim": 7}, "dim 7 must be a multiple of heads 2"),
        ({"dim": 1 << 60}, "dim must be between 1 and"),
        ({"shape": [1 << 19, 1 << 19]}, "too many sites"),
        ({"inner_layers": 1 << 19}, ""),
        ({"dim": "8"}, "dim is '8', not int"),
        ({"colour": "blue"}, "unknown fields ['colour']"),
        ({"model": "another"}, "not the configuration of a model called"),
    ],
)
def test_a_configuration_that_was_edited(axial: Axial, tmp_path, model, changes, says):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **changes}))
    assert says in refused(axial, tmp_path, "sample", model, "--output", tmp_path / "samples.png")


def test_a_configuration_that_is_no_json(axial: Axial, tmp_path, model):
    (model / "config.json").write_text("{")
    assert "config.json: not a model configuration" in refused(axial, tmp_path, "evaluate", model, "digits")


def test_a_folder_that_is_no_model(axial: Axial, tmp_path):
    assert "no model folder" in refused(axial, tmp_path, "sample", tmp_path)


def test_data_that_is_not_the_models(axial: Axial, tmp_path, model, photos):
    assert "[8, 8, 3]" in refused(axial, tmp_path, "evaluate", model, photos)


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
def test_options_out_of_range(axial: Axial, tmp_path, model, options, says):
    assert says in refused(axial, tmp_path, "sample", model, *options)


def test_completions_that_no_memory_holds(axial: Axial, tmp_path, model):
    line = refused(axial, tmp_path, "complete", model, "digits", "--rows", "4", "--count", 10**12)
    fit = int(line.split("about ")[1].split()[0].replace(",", ""))
    assert 0 < fit < 10**9


@pytest.mark.parametrize("verb", ["evaluate", "score"])
def test_a_batch_is_at_most_all_there_is(axial: Axial, model, verb):
    done = axial(verb, model, "digits", "--split", "validation", "--batch-size", 10**100)
    assert done.status == 2
    assert "--batch-size must be in 1.." in done.err
    assert axial(verb, model, "digits", "--split", "validation", "--batch-size", 2**63 - 1).status == 0
