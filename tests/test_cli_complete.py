"""Completing from the command line."""

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data import load
from conftest import Axial
from small_models import random_model, small_config


def test_what_is_known_stays(axial: Axial, trained, tmp_path):
    done = axial("complete", trained, "--rows", 5, "--examples", 3, "--count", 2, "--output", tmp_path / "c.npz")
    assert done.status == 0, done.err
    spread = [0, 0, 99, 99, 198, 198]  # of 297: neighbours may be tiles of one picture
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[spread]
    assert np.array_equal(filled[:, :5], whole[:, :5])
    assert not np.array_equal(filled[:, 5:], whole[:, 5:])


def test_the_picture_shows_known_completions_and_whole_side_by_side(axial: Axial, trained, tmp_path):
    axial("complete", trained, "--rows", 4, "--examples", 3, "--count", 2, "--scale", 2, "--output", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size == (96, 3 * 17 - 1 + 18)  # titles are above, and the paper is as wide as they need


def test_the_columns_have_titles_and_the_page_is_large_enough(axial: Axial, trained, tmp_path):
    axial("complete", trained, "--rows", 4, "--examples", 1, "--output", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        band = np.asarray(picture.convert("L"))[:18]
        assert picture.width >= 512
    dark = (band < 128).any(axis=0)
    sixths = [dark[i * len(dark) // 6 : (i + 1) * len(dark) // 6].any() for i in range(6)]
    assert sixths == [True, False, True, True, False, True]  # known, completions in the middle of four, original


def test_of_channels_only_the_known_ones_are_shown(axial: Axial, tmp_path):
    random_model(small_config((3, 4), 3, num_values=256)).float().save_pretrained(tmp_path / "model")
    np.save(tmp_path / "data.npy", np.full((1, 3, 4, 3), 200, np.uint8))
    argv = ["--channels", 1, "--count", 1, "--scale", 20, "--output", tmp_path / "c.png"]
    assert axial("complete", tmp_path / "model", tmp_path / "data.npy", *argv).status == 0
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.getpixel((10, 30)) == (200, 0, 0)
        assert picture.getpixel((picture.width - 10, 30)) == (200, 200, 200)


def test_other_masks_need_approximate_and_are_captioned(axial: Axial, trained, tmp_path):
    mask = np.random.default_rng(0).random((8, 8)) < 0.5
    np.save(tmp_path / "mask.npy", mask)
    argv = ["complete", trained, "--mask", tmp_path / "mask.npy", "--examples", 2]
    status, _, err = axial(*argv, "--output", tmp_path / "c.png")
    assert status == 2
    assert "approximate" in err
    assert not (tmp_path / "c.png").exists()
    axial(*argv, "--approximate", "--output", tmp_path / "c.npz", "--count", 1)
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[[0, 148]]
    assert np.array_equal(filled[:, mask], whole[:, mask])
    axial(*argv, "--approximate", "--output", tmp_path / "c.png", "--count", 1, "--scale", 2)
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.height > 2 * 18  # the caption


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "exactly one of --mask, --rows, --channels and --frames"),
        (["--rows", "3", "--frames", "1"], "exactly one of --mask, --rows, --channels and --frames"),
        (["--rows", "3", "--output", "c.gif"], "c.gif"),
        (["--mask", "nowhere.npy"], "nowhere.npy"),
        (["--rows", "3", "--count", "0"], "--count"),
    ],
)
def test_what_does_not_say_what_is_known_is_refused(axial: Axial, trained, options, says):
    status, _, err = axial("complete", trained, *options)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
