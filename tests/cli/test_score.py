"""Scoring from the command line."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.cli.score import explain_places
from axial_transformers.data import load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from tests.conftest import Axial
from tests.pictures.test_html import fetched
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


def test_every_image_is_scored_least_likely_first(axial: Axial, trained, tmp_path):
    assert axial("score", trained, "--out", tmp_path / "scores.csv").status == 0
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
    maps = [f"{i:04d}-{row['name']}.png" for i, row in enumerate(rows, start=1)]
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == [*maps, "scores.html"]
    page = (tmp_path / "maps/scores.html").read_text()
    shown = re.findall(r"<tr><td>(\d+)</td><td>(\d+)</td>", page)
    assert shown[:3] == [(row["rank"], row["name"]) for row in rows]
    assert [rank for rank, _ in shown[3:]] == ["297", "296", "295"]
    assert page.count('src="data:image/') == 4
    assert fetched(page) == []
    assert f"<title>{trained.name}</title>" in page


@pytest.mark.parametrize(
    ("name", "kind", "axes"),
    [
        ("scan.nii.gz#5,2,0", "volume", "z, y, x"),
        ("a.npy#4#0,2,1", "volume", "z, y, x"),
        ("a.mkv#1,0,0", "clip", "frame, row, column"),
        ("cats/7.png#2,0", "image", "row, column"),
        ("17#2,0", "image", "row, column"),
        ("a.mkv#0004", "clip", None),
        ("cat.png", "image", None),
    ],
)
def test_what_the_numbers_in_names_count_is_said(name, kind, axes):
    said = explain_places([name], kind)
    assert said is None if axes is None else axes in said


def test_the_table_and_stderr_say_what_names_of_tiles_mean(axial: Axial):
    random_model(small_config((4, 4), num_values=256), torch.float32).save_pretrained("model")
    np.save("images.npy", np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8))
    status, _, err = axial("score", "model", "images.npy", "--data.cut", "tiles", "--data.size", 4, "--out", "s.json")
    assert status == 0, err
    assert "row, column" in json.loads(Path("s.json").read_text())["names"]
    assert "row, column" in err


def test_two_sources_are_told_apart_by_both_scores(axial: Axial, trained, tmp_path):
    noise = np.random.default_rng(0).integers(0, 17, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", images=noise)
    out = axial("score", trained, "--out", tmp_path / "s.json", "--against", tmp_path / "noise.npz").out
    lines = {line.split()[-1]: float(line.split()[0]) for line in out.splitlines() if "  by " in line}
    assert set(lines) == {"bits_per_dim", "corrected"}
    assert all(0 <= value <= 1 for value in lines.values())
    assert "noise.npz as anomalies against these 297 as usual ones" in out
    written = json.loads((tmp_path / "s.json").read_text())
    assert (len(written["scores"]), written["ranked_by"]) == (297, "bits")


def test_the_score_that_ranks_is_chosen_named_and_settable(axial: Axial, refused, gray):
    generator = np.random.default_rng(0)
    values = [generator.integers(0, most, (4, 4), dtype=np.uint8) for most in generator.integers(1, 255, 30)]
    np.save("data.npy", np.stack(values))
    for words, by, why in ([], None, "above 0.8"), (["--rank-by", "corrected"], "corrected", "as asked"):
        done = axial("score", gray, "data.npy", "--out", "s.json", *words)
        written = json.loads(Path("s.json").read_text())
        by = by or written["ranked_by"]
        assert done.err.endswith(f"ranked by {by}: {written['because']}\n")
        assert why in written["because"]
        scores = [row[{"bits": "bits_per_dim"}.get(by, by)] for row in written["scores"]]
        assert scores == sorted(scores, reverse=True)
    random_model(small_config((4,))).float().save_pretrained("sequences")
    np.save("s.npy", np.zeros((2, 4), np.uint8))
    err = refused("score", "sequences", "s.npy", "--rank-by", "corrected")
    assert "is for models of 8-bit gray or RGB images: use " in err
    done = axial("score", "sequences", "s.npy", "--typical", "s.npy", "--flag", "0.9")
    assert done.out.splitlines()[0] == "rank,name,bits_per_dim,deviation,quantile,flagged"
    assert "0 of 2 are flagged" in done.err


def test_a_pretrained_model_scores_pictures_of_other_sizes(axial: Axial, refused, gray):
    assert "or tiles" in refused("score", gray, "large photos")
    for size in ([], ["--data.size", 4]):
        done = axial("score", gray, "large photos", "--data.cut", "tiles", *size)
        assert done.status == 0, done.err
    rows = list(csv.DictReader(done.out.splitlines()))
    assert len(rows) == 4 + 6
    for picture in ("0.png", "1.png"):
        tiles = [row for row in rows if row["name"].startswith(picture)]
        mean = np.mean([float(row["bits_per_dim"]) for row in tiles])
        assert all(float(row["picture_bits_per_dim"]) == pytest.approx(mean, abs=1e-5) for row in tiles)
    done = axial("evaluate", gray, "large photos", "--data.cut", "crop", "--json")
    assert json.loads(done.out)["images"] == 2
    out = ["--out", "c.npz", "--count", 1]
    done = axial("complete", gray, "large photos", "--data.cut", "stretch", "--rows", 2, *out)
    assert done.status == 0, done.err


def test_no_output_replaces_an_input(axial: Axial):
    random_model(small_config((4, 4), num_values=256), torch.float32).save_pretrained("model")
    Path("images").mkdir()
    for i in range(3):
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(f"images/{i}.png")
    before = {path: path.read_bytes() for folder in ("images", "model") for path in Path(folder).iterdir()}
    Path("link.png").symlink_to("images/1.png")
    for command in (
        ("score", "model", "images", "--out", "model/config.json"),
        ("complete", "model", "images", "--rows", 2, "--out", "link.png"),
        ("complete", "model", "images", "--rows", 2, "--out", "images/1.png"),
        ("complete", "model", "images", "--mask", "images/2.png", "--out", "images/2.png"),
    ):
        status, _, err = axial(*command)
        assert status == 2, err
        assert "would be replaced" in err
    np.savetxt("t.csv", np.arange(12).reshape(6, 2), "%d", ",")
    np.savetxt("other.csv", np.arange(12).reshape(6, 2), "%d", ",")
    before |= {path: path.read_bytes() for path in (Path("t.csv"), Path("other.csv"))}
    random_model(small_config((2,), num_values=256), torch.float32).save_pretrained("rows")
    assert axial("score", "rows", "t.csv", "--out", "t.csv").status == 2
    for option in ("--typical", "--against"):
        assert axial("score", "rows", "t.csv", option, "other.csv", "--out", "other.csv").status == 2
    assert {path: path.read_bytes() for path in before} == before


def test_an_output_beside_the_data_is_replaced(axial: Axial):
    random_model(small_config((4, 4), num_values=256), torch.float32).save_pretrained("model")
    Path("images").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save("images/0.png")
    for _ in range(2):
        assert axial("sample", "model", "--count", 1, "--out", "model/s.png").status == 0
        assert axial("score", "model", "images", "--out", "images/scores.csv").status == 0
