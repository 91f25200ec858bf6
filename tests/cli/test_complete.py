"""Completing from the command line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data import load
from tests.conftest import Axial
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


def test_what_is_known_stays(axial: Axial, trained, tmp_path):
    done = axial("complete", trained, "--rows", 5, "--examples", 3, "--count", 2, "--out", tmp_path / "c.npz")
    assert done.status == 0, done.err
    spread = [0, 0, 99, 99, 198, 198]  # of 297: neighbours may be tiles of one picture
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[spread, ..., 0]
    assert np.array_equal(filled[:, :5], whole[:, :5])
    assert not np.array_equal(filled[:, 5:], whole[:, 5:])


def test_other_masks_need_approximate(axial: Axial, refused, trained, tmp_path):
    mask = np.random.default_rng(0).random((8, 8)) < 0.5
    np.save(tmp_path / "mask.npy", mask)
    argv = ["complete", trained, "--mask", tmp_path / "mask.npy", "--examples", 2]
    assert "approximate" in refused(*argv, "--out", tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()
    axial(*argv, "--approximate", "--out", tmp_path / "c.npz", "--count", 1)
    filled, whole = np.load(tmp_path / "c.npz")["images"], load("digits", split="test").values[[0, 148], ..., 0]
    assert np.array_equal(filled[:, mask], whole[:, mask])


def test_classes_are_named_and_decide(axial: Axial, gray):
    random_model(small_config((8, 8), num_values=17, num_classes=10)).float().save_pretrained("classes")
    for verb, *words in (["sample", "--count", 1], ["complete", "digits", "--rows", 4, "--examples", 1, "--count", 1]):
        argv, drawn = [verb, "classes", *words, "--out", "x.png"], set()
        for label in (7, 3):
            assert axial(*argv, "--label", label).status == 0
            drawn.add(Path("x.png").read_bytes())
        assert len(drawn) == 2
        assert "the classes are 0 to 9" in axial(*argv, "--label", "cat").err
        assert "trained without classes" in axial(verb, gray, *words, "--label", 1).err


def test_one_picture_is_scored_and_completed_by_a_mask_that_is_a_picture(axial: Axial, refused):
    random_model(small_config((8, 8), 3, num_values=256)).float().save_pretrained("model")
    Image.fromarray(4 * np.arange(64, dtype=np.uint8).reshape(8, 8)).save("one.png")  # gray, and read in colour
    scored = axial("score", "model", "one.png")
    assert (scored.status, scored.out.count("one.png")) == (0, 1), scored.err
    mask = np.zeros((8, 8), np.uint8)
    mask[:4] = 255
    Image.fromarray(mask).save("mask.png")
    said = axial("complete", "model", "one.png", "--mask", "mask.png", "--approximate", "--out", "c.npz")
    assert said.status == 0, said.err
    filled = np.load("c.npz")["images"]
    assert (filled.reshape(-1, 8, 8, 3)[:, :4, :, 0] == np.asarray(Image.open("one.png"))[:4]).all()
    Path("torn.png").write_bytes(Path("mask.png").read_bytes()[:40])
    assert "torn.png" in refused("complete", "model", "one.png", "--mask", "torn.png", "--out", "d.npz")
