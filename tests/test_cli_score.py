"""Scoring from the command line."""

import csv
import json

import numpy as np
import pytest
import torch

from axial_transformers.data import load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from conftest import Axial


def test_every_image_is_scored_least_likely_first(axial: Axial, trained, tmp_path):
    assert axial("score", trained, "--output", tmp_path / "scores.csv").status == 0
    with (tmp_path / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    test = load("digits", split="test")
    bits = bits_per_dim(AxialTransformer.from_pretrained(trained), torch.from_numpy(test.values)).tolist()
    assert sorted(row["name"] for row in rows) == sorted(test.names)
    assert [float(row["bits_per_dim"]) for row in rows] == pytest.approx(sorted(bits, reverse=True), abs=1e-5)
    assert {row["name"]: float(row["bits_per_dim"]) for row in rows} == pytest.approx(
        dict(zip(test.names, bits, strict=True)), abs=1e-5
    )


def test_the_highest_are_printed_and_drawn(axial: Axial, trained, tmp_path):
    status, out, _ = axial("score", trained, "digits", "--top", 3, "--heat-maps", tmp_path / "maps")
    rows = list(csv.DictReader(out.splitlines()))
    assert status == 0
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == [
        f"{i:04d}-{row['name']}.png" for i, row in enumerate(rows, start=1)
    ]


def test_two_sources_are_told_apart_by_both_scores(axial: Axial, trained, tmp_path):
    noise = np.random.default_rng(0).integers(0, 17, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", images=noise)
    out = axial("score", trained, "--output", tmp_path / "s.json", "--against", tmp_path / "noise.npz").out
    lines = {line.split()[-1]: float(line.split()[0]) for line in out.splitlines() if "  by " in line}
    assert set(lines) == {"bits_per_dim", "corrected"}
    assert all(0 <= value <= 1 for value in lines.values())
    assert len(json.loads((tmp_path / "s.json").read_text())) == 297


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("options", "says"), [(["--output", "s.txt"], "s.txt"), (["--top", "0"], "--top")])
def test_options_out_of_range(axial: Axial, trained, options, says):
    status, _, err = axial("score", trained, *options)
    assert status == 2
    assert says in err
