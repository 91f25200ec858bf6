"""Training, evaluating and sampling from the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import recipes
from axial_transformers.cli import evaluate, train
from axial_transformers.cli.settings import recipe_preset, resolve_preset
from axial_transformers.data import Examples, load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from axial_transformers.training import TrainResult
from conftest import TINY, Axial

ONE_STEP = ["--training.steps", "1", "--training.batch-size", "2"]


def test_a_run_leaves_a_model_and_sample_grids(trained: Path):
    model = AxialTransformer.from_pretrained(trained)
    assert (model.config.dim, model.config.shape, model.config.num_classes) == (8, (8, 8), 10)
    assert [path.name for path in (trained / "samples").iterdir()] == ["step-00000004.png"]


@pytest.mark.parametrize("name", recipes.NAMED)
def test_one_override_keeps_every_other_setting_of_a_recipe(name):
    wanted = recipe_preset(name, "data").settings
    wanted = replace(wanted, training=replace(wanted.training, log_every=7))
    assert resolve_preset([name, "data", "--training.log-every", "7"], "train").settings == wanted


def test_evaluation_reports_all_that_a_number_needs(axial: Axial, trained: Path):
    status, out, _ = axial("evaluate", trained, "--json", "--batch-size", "100")
    figures, test = json.loads(out), load("digits", split="test")
    bits = bits_per_dim(AxialTransformer.from_pretrained(trained), torch.from_numpy(test.values))
    assert status == 0
    assert figures["bits_per_dim"] == pytest.approx(bits.mean().item(), abs=1e-6)
    assert figures["standard_error"] == pytest.approx((bits.std() / 297**0.5).item(), rel=1e-4)
    assert (figures["images"], figures["weights"], figures["data"]) == (297, "EMA", "digits, test")
    assert figures["fingerprint"] == test.fingerprint


def test_raw_weights_are_other_weights_and_called_so(axial: Axial, trained: Path):
    ema, raw = (json.loads(axial("evaluate", trained, "--json", "--weights", w).out) for w in ("ema", "raw"))
    assert raw["weights"] == "raw, step-00000004"
    assert raw["bits_per_dim"] != ema["bits_per_dim"]


def test_the_table_says_what_the_json_says(axial: Axial, trained: Path):
    out = axial("evaluate", trained, "digits", "--split", "validation", "--labels").out
    assert "150, every one counted" in out
    assert load("digits", split="validation").fingerprint in out
    assert "labels       given" in out
    assert re.search(r"speed +[\d.e+]+ images/s", out)


@pytest.mark.parametrize(("count", "version"), [(49_999, "old resize"), (50_000, "newer box resize"), (48_000, None)])
@pytest.mark.filterwarnings("ignore:.*old one")
def test_downsampled_imagenets_version_is_told_by_the_number_of_images(count, version):
    values = np.broadcast_to(np.uint8(0), (count, 32, 32, 3))
    found = evaluate._imagenet_version(Examples(values=values, names=[""] * count))
    assert found is None if version is None else version in (found or "")
    assert evaluate._imagenet_version(Examples(values=values[:, :28], names=[""] * count)) is None


def test_an_interrupted_run_says_how_to_go_on(axial: Axial, monkeypatch):
    stopped = TrainResult(ending="interrupted", step=3, seconds=1.0, best_step=None, best_bits_per_dim=None)
    monkeypatch.setattr(train, "run", lambda *_: stopped)
    status, out, _ = axial("train", "digits", "--out", "somewhere")
    assert status == 130
    assert "go on with: axial train somewhere" in out


def test_equal_seeds_draw_equal_samples(axial: Axial, trained: Path, tmp_path):
    arrays = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(arrays)}.npz"
        assert axial("sample", trained, "--count", 3, "--seed", seed, "--output", path).status == 0
        arrays.append(np.load(path)["images"])
    assert arrays[0].shape == (3, 8, 8, 1)
    assert arrays[0].dtype == np.uint8
    assert np.array_equal(arrays[0], arrays[1])
    assert not np.array_equal(arrays[0], arrays[2])


def test_samples_are_written_as_the_outputs_name_says(axial: Axial, trained: Path, tmp_path):
    axial("sample", trained, "--count", 4, "--label", 3, "--output", tmp_path / "grid.png", "--scale", 3)
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.width == grid.height > 2 * 3 * 8
    axial("sample", trained, "--count", 3, "--temperature", 0.5, "--top-k", 2, "--output", tmp_path / "single")
    assert len(list((tmp_path / "single").glob("*.png"))) == 3


def test_a_model_follows_the_shape_of_any_data(axial: Axial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(0, 1 << 16, (12, 3, 5), dtype=np.uint16)
    np.savez(tmp_path / "scans.npz", images=values, labels=np.arange(12) % 2)
    small = ["--model.dim", "8", "--model.heads", "2", "--training.sample-every", "1", "--samples", "2"]
    assert axial("train", "scans.npz", *small, *ONE_STEP).status == 0
    model = AxialTransformer.from_pretrained(tmp_path / "runs" / "scans")
    assert (model.config.shape, model.config.channels, model.config.num_classes) == ((3, 5), 2, 2)
    status, out, _ = axial("sample", "runs/scans", "--count", 2, "--output", "drawn.npz")
    assert (status, out) == (0, "drawn.npz\n")
    assert np.load("drawn.npz")["images"].dtype == np.uint16
    assert json.loads(axial("evaluate", "runs/scans", "--json").out)["data"].endswith("scans.npz, validation")


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(axial: Axial, tmp_path):
    until = ["--training.schedule", "constant", "--training.batch-size", "4", "--training.steps"]
    assert axial("train", "digits", *TINY, *until, 4, "--out", tmp_path / "whole").status == 0
    assert axial("train", "digits", *TINY, *until, 2, "--out", tmp_path / "parts").status == 0
    assert axial("train", tmp_path / "parts", "--training.steps", 4).status == 0
    weights = [
        (tmp_path / name / "checkpoints/step-00000004/model.safetensors").read_bytes() for name in ("whole", "parts")
    ]
    assert weights[0] == weights[1]


def test_a_run_is_not_overwritten(axial: Axial, trained: Path):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    status, _, err = axial("train", "digits", *TINY, *ONE_STEP, "--out", trained)
    assert status == 2
    assert str(trained) in err
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before
