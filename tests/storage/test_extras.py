"""Extras that are missing are named."""

import subprocess
import sys

WITHOUT_EXTRAS = """
import sys
for package in ("av", "huggingface_hub", "datasets"):
    sys.modules[package] = None
import axial_transformers as axial
from axial_transformers import compression, data, pictures
from axial_transformers.pictures import save_movie
open("a.mp4", "w").close()
for action in (
    lambda: data.load("a.mp4", data.DataConfig(frames=2)),
    lambda: save_movie("b.mp4", data.load("digits").values[..., 0]),
    lambda: data.load("hf:a/b"),
    lambda: axial.AxialTransformer.from_pretrained("a/b"),
):
    try:
        action()
    except ValueError as error:
        print(error)
"""


def test_without_an_extra_one_line_names_it(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    extras = ("video", "video", "datasets", "hub")
    expected = [f"pip install 'axial-transformers[{name}]'" for name in extras]
    assert [line.partition(": ")[2] for line in done.stdout.splitlines()] == expected, done.stderr
