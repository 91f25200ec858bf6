"""Clips from the command line: trained on, evaluated, sampled, continued, written as movies."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import data
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.models import AxialTransformer
from tests.conftest import Axial
from tests.data.test_video import encode
from tests.small_models import random_model, small_config

SHAPE = (3, 4, 5)


def clips(count: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *SHAPE, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "clips.npz"
    data.save_arrays(path, clips())
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models in which time is an axis (twice), and in which frames are channels."""
    folder = tmp_path_factory.mktemp("models")
    for layout in ("channels", "columns", "frames"):
        config = small_config(SHAPE, 3, layout, num_values=256, known_channels=3 * (layout == "frames"))
        random_model(config, torch.float32).save_pretrained(folder / layout)
    return {layout: folder / layout for layout in ("channels", "columns", "frames")}


def frames_of(path: Path) -> np.ndarray:
    with av.open(path) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_a_folder_of_videos_is_trained_on_and_evaluated(axial: Axial, tmp_path):
    for part, seed in (("train", 0), ("validation", 1), ("test", 2)):
        noise = np.random.default_rng(seed).integers(0, 256, (8, 6, 6, 3)).astype(np.uint8)
        encode(tmp_path / "films" / part / "a.mkv", noise)
    read = ["--data.frames", "2", "--data.size", "3", "--data.cut", "stretch"]
    layers = ["--model.encoder-layers", "3", "--model.outer-layers", "[3,2]", "--model.inner-layers", "1"]
    small = ["--model.dim", "8", "--model.heads", "2", "--training.steps", "1", "--samples", "1"]
    out = tmp_path / "run"
    trained = axial("train", tmp_path / "films", *read, *layers, *small, "--out", out)
    assert trained.status == 0, trained.err
    done = axial("evaluate", out, "--json", "--given-frames", 1)
    metrics = json.loads(done.out)
    assert (metrics["images"], metrics["given_frames"]) == (4, 1)


@pytest.mark.parametrize("layout", ["columns", "frames"])
def test_given_frames_are_not_counted(axial: Axial, models, source, layout):
    metrics = json.loads(axial("evaluate", models[layout], source, "--given-frames", 1, "--json").out)
    bits = bits_map(AxialTransformer.from_pretrained(models[layout]), torch.from_numpy(clips()))
    assert metrics["bits_per_dim"] == pytest.approx(bits[:, 1:].mean().item(), rel=1e-5)
    assert metrics["given_frames"] == 1


def test_frames_that_the_model_knows_need_no_option(axial: Axial, models, source):
    plain = json.loads(axial("evaluate", models["frames"], source, "--json").out)
    assert plain == json.loads(axial("evaluate", models["frames"], source, "--given-frames", 1, "--json").out)
    assert "given_frames" not in json.loads(axial("evaluate", models["channels"], source, "--json").out)


def test_a_clip_is_continued_and_its_first_frames_stay(axial: Axial, models, source, tmp_path):
    out = tmp_path / "continued.npz"
    done = axial("complete", models["columns"], source, "--frames", 1, "--count", 2, "--out", out)
    assert done.status == 0, done.err
    continued = np.load(out)["videos"]
    assert np.array_equal(continued[:, 0], clips()[[0, 0, 1, 1], 0])
    assert not np.array_equal(continued[0, 1:], continued[1, 1:])
    sampled = axial("sample", models["frames"], "--known", source, "--count", 2, "--out", tmp_path / "sampled.npz")
    assert sampled.status == 0, sampled.err
    assert np.array_equal(np.load(tmp_path / "sampled.npz")["videos"][:, 0], clips()[:, 0])


def test_movies_play_side_by_side(axial: Axial, models, source, tmp_path):
    axial("sample", models["channels"], "--count", 4, "--scale", 2, "--out", tmp_path / "s.mp4")
    assert frames_of(tmp_path / "s.mp4").shape == (3, 20, 24, 3)
    argv = ["complete", models["columns"], source, "--frames", 1, "--count", 2, "--scale", 2]
    for suffix in ("mp4", "gif"):
        assert axial(*argv, "--out", tmp_path / f"c.{suffix}").status == 0
    assert frames_of(tmp_path / "c.mp4").shape == (3, 36, 96, 3)
    with Image.open(tmp_path / "c.gif") as picture:
        assert (picture.n_frames, picture.size) == (3, (96, 35))
