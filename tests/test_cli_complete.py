"""Completing from the command line."""

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data import load
from conftest import Axial


def test_what_is_known_stays(axial: Axial, trained, tmp_path):
    done = axial("complete", trained, "--rows", 5, "--examples", 3, "--count", 2, "--output", tmp_path / "c.npz")
    assert done.status == 0, done.err
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[[0, 0, 1, 1, 2, 2]]
    assert np.array_equal(filled[:, :5], whole[:, :5])
    assert not np.array_equal(filled[:, 5:], whole[:, 5:])


def test_the_picture_shows_known_completions_and_whole_side_by_side(axial: Axial, trained, tmp_path):
    axial("complete", trained, "--rows", 4, "--examples", 3, "--count", 2, "--scale", 2, "--output", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size == (4 * 18 - 2, 3 * 18 - 2)


def test_other_masks_need_approximate_and_are_captioned(axial: Axial, trained, tmp_path):
    mask = np.random.default_rng(0).random((8, 8)) < 0.5
    np.save(tmp_path / "mask.npy", mask)
    argv = ["complete", trained, "--mask", tmp_path / "mask.npy", "--examples", 2]
    status, _, err = axial(*argv, "--output", tmp_path / "c.png")
    assert status == 2
    assert "approximate" in err
    assert not (tmp_path / "c.png").exists()
    axial(*argv, "--approximate", "--output", tmp_path / "c.npz", "--count", 1)
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[:2]
    assert np.array_equal(filled[:, mask], whole[:, mask])
    axial(*argv, "--approximate", "--output", tmp_path / "c.png", "--count", 1, "--scale", 2)
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.height > 2 * 18  # the caption


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
