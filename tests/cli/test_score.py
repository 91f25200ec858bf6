"""Scoring from the command line."""

import csv
import json

import numpy as np
import pytest
import torch

from axial_transformers.data import load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from tests.conftest import Axial
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


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


@pytest.mark.parametrize(("options", "says"), [(["--output", "s.txt"], "s.txt"), (["--top", "0"], "--top")])
def test_options_out_of_range_are_refused(refused, trained, options, says):
    assert says in refused("score", trained, *options)


def test_a_pretrained_model_scores_pictures_of_other_sizes(axial: Axial, refused, gray):
    assert "--data.fit tiles" in refused("score", gray, "large photos")
    for size in ([], ["--data.size", 4]):
        done = axial("score", gray, "large photos", "--data.fit", "tiles", *size)
        assert done.status == 0, done.err
    rows = list(csv.DictReader(done.out.splitlines()))
    assert len(rows) == 4 + 6
    for picture in ("0.png", "1.png"):
        tiles = [row for row in rows if row["name"].startswith(picture)]
        mean = np.mean([float(row["bits_per_dim"]) for row in tiles])
        assert all(float(row["picture_bits_per_dim"]) == pytest.approx(mean, abs=1e-5) for row in tiles)
    done = axial("evaluate", gray, "large photos", "--data.fit", "crop", "--json")
    assert json.loads(done.out)["images"] == 2
    out = ["--output", "c.npz", "--count", 1]
    done = axial("complete", gray, "large photos", "--data.fit", "stretch", "--rows", 2, *out)
    assert done.status == 0, done.err


def test_a_limit_takes_examples_from_all_over_the_data(axial: Axial, gray):
    values = np.arange(10, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    np.save("data.npy", values)
    rows = list(csv.DictReader(axial("score", gray, "data.npy", "--limit", 3).out.splitlines()))
    assert {row["name"] for row in rows} == {"0", "3", "6"}
    assert json.loads(axial("evaluate", gray, "data.npy", "--limit", 3, "--json").out)["of_images"] == 10
    assert "3 of 10" in axial("evaluate", gray, "data.npy", "--limit", 3).out
    assert axial("score", gray, "data.npy", "--limit", 0).err == "axial score: --limit must be at least 1, not 0\n"


def test_a_part_without_examples_is_told_in_options_that_the_verb_has(refused):
    random_model(small_config((3, 4), num_values=256)).float().save_pretrained("model")
    np.save("data.npy", np.zeros((9, 3, 4), np.uint8))
    for verb in ("evaluate", "score"):
        err = refused(verb, "model", "data.npy", "--split", "test")
        assert err.endswith("data.npy has no test examples (it states train): take --split all, or other data\n")
