"""A stranger's first hour: what a new user tries with data of their own works, or says one clear thing."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.cli.settings import resolve_preset
from axial_transformers.data import DataConfig
from axial_transformers.recipes import tiled
from axial_transformers.training.run_description import axis_names
from conftest import TINY, Axial
from small_models import random_model, small_config

ONE_STEP = ["--training.steps", "1", "--training.sample-every", "1", "--training.batch-size", "2"]


pytestmark = pytest.mark.usefixtures("home")


def picture(path: str, seed: int, mode: str = "RGB", **options: object) -> Path:
    """A smooth picture of 8x8 pixels, saved."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 2, 3)).astype(np.uint8)
    Image.fromarray(pixels).resize((8, 8)).convert(mode).save(path, **options)
    return Path(path)


def test_a_damaged_test_part_is_named_and_never_replaced_by_validation(axial: Axial):
    for part in ("train", "validation", "test"):
        for i in range(2):
            picture(f"photos/{part}/{i}.png", i)
    train = ["train", "photos", *TINY, *ONE_STEP, "--samples", 1, "--out", "run"]
    for i in range(2):
        Path(f"photos/test/{i}.png").write_text("damaged")
    refused = axial(*train, "--data.skip-bad", 1)
    assert refused.status == 2
    assert refused.err.count("\n") == 1
    assert all(f"photos/test/{i}.png is not a whole image" in refused.err for i in range(2))
    assert "--data.skip-bad 2 would leave out 2 of 6 files" in refused.err
    assert not Path("run").exists()
    nothing_left = axial(*train)
    assert nothing_left.status == 2
    assert "2 files are unfit: photos/test/0.png is not a whole image" in nothing_left.err
    assert not Path("run").exists()
    picture("photos/test/0.png", 0)
    done = axial(*train)
    assert done.status == 0, done.err
    assert done.err.count("warning: skipped: photos/test/1.png") == 1
    Path("photos/test/0.png").write_text("damaged")
    damaged = axial("evaluate", "run")
    assert damaged.status == 2
    assert "photos/test/0.png is not a whole image" in damaged.err
    for i in range(2):
        picture(f"photos/test/{i}.png", i)
    assert json.loads(axial("evaluate", "run", "--json").out)["data"].endswith("photos, test")


def test_large_pictures_are_cut_into_tiles_unless_told(axial: Axial):
    for i in range(3):
        Path("photos/train").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((96, 70 + i, 3), 40 * i, np.uint8)).save(f"photos/train/{i}.png")
    inspected = axial("inspect", "photos", "--data.validation-fraction", 0, *TINY)
    assert inspected.status == 0, inspected.err
    assert "32 x 32" in inspected.out or "32x32" in inspected.out
    assert "cut into 32x32 tiles; other ways: --data.size 64 --data.fit crop" in inspected.err
    small = [(8, 8)] * 3
    assert tiled(DataConfig(), small) == tiled(DataConfig(), []) == DataConfig()
    assert tiled(DataConfig(), [(64, 64), (64, 63)]) == DataConfig(size=32, fit="tiles")
    assert tiled(DataConfig(size=16, fit="crop"), [(640, 480)]) == DataConfig(size=16, fit="crop")
    assert tiled(DataConfig(), [(640, 480), (20, 20), (9, 9)]) == DataConfig()


def test_large_arrays_are_cut_into_tiles_unless_told(capsys):
    np.save("scan.npy", np.arange(11 * 70 * 65, dtype=np.uint8).reshape(11, 70, 65))
    Path("films").mkdir()
    np.save("films/train_1.npy", np.zeros((11, 2, 64, 64, 1), np.uint8))
    np.save("films/val_1.npy", np.zeros((11, 2, 64, 64, 1), np.uint8))
    for source, shape in (("scan.npy", (32, 32)), ("films", (2, 32, 32))):
        assert resolve_preset([source], "train").settings.model.shape == shape
        assert "cut into 32x32 tiles" in capsys.readouterr().err
    assert resolve_preset(["scan.npy", "--data.fit", "exact"], "train").settings.model.shape == (70, 65)
    assert "tiles" not in capsys.readouterr().err
    assert tiled(DataConfig(), [(64, 64)]) == tiled(DataConfig(), [(16, 63, 63)]) == DataConfig()
    assert tiled(DataConfig(), [(4, 64, 64)]) == DataConfig(size=32, fit="tiles")


def test_axes_are_called_by_the_letters_that_the_user_gave():
    assert axis_names(3, "NCDHW") == ("depth", "height", "width")
    assert axis_names(3, "NTHWC") == ("frame", "height", "width")
    assert axis_names(3) == ("frame or depth", "height", "width")


def test_fourteen_mixed_pictures_train_and_what_is_left_out_is_said(axial: Axial):
    for name, mode in [("a.jpg", "RGB"), ("b.jpg", "CMYK"), ("c.png", "L"), ("d.bmp", "RGB"), ("e.webp", "RGB")]:
        picture(f"photos/cats/{name}", len(name), mode)
    for name in ("Кошка.png", "猫.jpg", "قطة.png", "Ñandú 1.tif"):
        picture(f"photos/cats/tabby/{name}", len(name))
    outside = picture("elsewhere/far.png", 3).parent
    Path("photos/dogs").symlink_to(outside.resolve())
    frames = [Image.open(picture(f"{i}.png", i)) for i in range(2)]
    frames[0].save("photos/cats/moving.gif", save_all=True, append_images=frames[1:])
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 900).save("photos/cats/deep.png")
    clear = Image.open(picture("2.png", 4)).convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    clear.save("photos/cats/clear.png")
    torn = picture("photos/cats/torn.jpg", 5)
    torn.write_bytes(torn.read_bytes()[:300])
    shares = ["--data.validation-fraction", 0.3, "--data.test-fraction", 0]
    done = axial("train", "photos", *shares, *TINY, *ONE_STEP, "--samples", 1, "--out", "run")
    assert done.status == 0, done.err
    lines = [line for line in done.err.splitlines() if "skipped" in line]
    reasons = {
        "moving.gif": "holds several images",
        "deep.png": "8-bit and 16-bit images do not mix",
        "clear.png": "is transparent in places",
        "torn.jpg": "is not a whole image",
    }
    assert len(lines) == len(reasons)
    for name, reason in reasons.items():
        assert sum(f"photos/cats/{name}" in line and reason in line for line in lines) == 1


def test_arrays_of_two_readings_are_asked_about_by_an_option(axial: Axial):
    np.save("pictures.npy", np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8)).astype(np.uint8))
    train = ["train", "pictures.npy", *TINY, *ONE_STEP, "--samples", 1, "--out", "run"]
    asked = axial(*train)
    assert (asked.status, asked.err.count("\n")) == (2, 1)
    assert "--data.axes NCHW" in asked.err
    assert "--data.axes NTHW" in asked.err
    done = axial(*train, "--data.axes", "NCHW")
    assert done.status == 0, done.err
    assert axial("evaluate", "run").status == 0


def test_one_picture_is_scored_and_completed_by_a_mask_that_is_a_picture(axial: Axial):
    random_model(small_config((8, 8), 3, num_values=256)).float().save_pretrained("model")
    picture("one.png", 0, "L")  # gray, and read in colour
    scored = axial("score", "model", "one.png")
    assert (scored.status, scored.out.count("one.png")) == (0, 1), scored.err
    mask = np.zeros((8, 8), np.uint8)
    mask[:4] = 255
    Image.fromarray(mask).save("mask.png")
    said = axial("complete", "model", "one.png", "--mask", "mask.png", "--approximate", "--output", "c.npz")
    assert said.status == 0, said.err
    filled = np.load("c.npz")["images"]
    assert (filled.reshape(-1, 8, 8, 3)[:, :4, :, 0] == np.asarray(Image.open("one.png"))[:4]).all()
    Path("torn.png").write_bytes(Path("mask.png").read_bytes()[:40])
    refused = axial("complete", "model", "one.png", "--mask", "torn.png", "--output", "d.npz")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
