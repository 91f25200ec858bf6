"""A stranger's first hour: what a new user tries with data of their own works, or says one clear thing."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data.movies import lossless_movie
from axial_transformers.data.video import frames_of
from conftest import Axial
from small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


def gradient(height: int, width: int, colours: int = 1) -> np.ndarray:
    values = np.arange(height * width * colours) % 251
    return values.reshape((height, width, colours) if colours > 1 else (height, width)).astype(np.uint8)


def test_one_picture_is_compressed_and_comes_back_as_a_file(axial: Axial):
    random_model(small_config((3, 4), num_values=256)).float().save_pretrained("model")
    Image.fromarray(gradient(7, 9)).save("one.bmp")
    done = axial("compress", "model", "one.bmp", "one.axl", "--other-sizes", "tile", "--compare")
    assert (done.status, done.out.splitlines()[0].split(",")[0]) == (0, "one.axl: 9 tiles of 1 pictures")
    assert "the same tiles of 3x4, edges repeated: each as a file, or all on one sheet" in done.out
    assert axial("decompress", "model", "one.axl", "back.png").out == "back.png\n"
    with Image.open("back.png") as back:
        assert np.array_equal(np.asarray(back), gradient(7, 9))
    assert axial("decompress", "model", "one.axl", "folder").status == 0
    assert [path.name for path in Path("folder").iterdir()] == ["one.bmp"]


def test_files_that_are_no_pictures_are_kept_and_said_in_one_line(axial: Axial):
    random_model(small_config((3, 4), num_values=256)).float().save_pretrained("model")
    Path("photos").mkdir()
    Image.fromarray(gradient(3, 4)).save("photos/a.png")
    Path("photos/Thumbs.db").write_bytes(bytes(5000))
    Path("photos/notes.txt").write_text("of the holidays")
    Path("photos/link").symlink_to("nowhere")
    done = axial("compress", "model", "photos", "a.axl", "--json")
    assert done.err.splitlines()[:2] == [  # before the time is spent
        "warning: not in the archive, 1: link",
        "no pictures that the model can read, stored as the files that they are, 2: Thumbs.db, notes.txt",
    ]
    figures = json.loads(done.out)
    assert figures["bits_per_dim"]["archive"] == (figures["bytes"] - 5015) * 8 / 12
    assert axial("decompress", "model", "a.axl", "back").status == 0
    assert Path("back/notes.txt").read_text() == "of the holidays"


def test_videos_come_back_as_lossless_movies_which_is_said(axial: Axial):
    random_model(small_config((2, 3, 4), 3, num_values=256)).float().save_pretrained("model")
    Path("films").mkdir()
    frames = np.stack([gradient(3, 4, 3) + i for i in range(3)])
    Path("films/a.webm").write_bytes(lossless_movie(frames, Fraction(24)))
    done = axial("compress", "model", "films", "films.axl")
    assert done.status == 0, done.err
    assert "videos, 1: they come back as lossless .mkv files of the same frames, without sound" in done.err
    assert axial("decompress", "model", "films.axl", "back").status == 0
    found = [np.asarray(frame) for frame in frames_of(Path("back/a.webm.mkv"), "rgb")]
    assert np.array_equal(found, frames)
