"""Extras that are missing are named."""

import sys

import pytest

import axial_transformers as axial
from axial_transformers import data
from axial_transformers.pictures import save_movie
from axial_transformers.storage.tensorflow import masked_crc32c


def test_without_an_extra_one_line_names_it(home, monkeypatch):
    (home / "a.mp4").touch()
    movie = data.load("digits").values[:2, ..., 0]
    for package, extra, action in (
        ("av", "video", lambda: data.load("a.mp4", data.DataConfig(frames=2))),
        ("av", "video", lambda: save_movie("b.mp4", movie)),
        ("datasets", "datasets", lambda: data.load("hf:a/b")),
        ("huggingface_hub", "hub", lambda: axial.AxialTransformer.from_pretrained("a/b")),
        ("google_crc32c", "tensorflow", lambda: masked_crc32c(b"123456789")),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ValueError, match=rf"pip install 'axial-transformers\[{extra}\]'$"):
            action()
