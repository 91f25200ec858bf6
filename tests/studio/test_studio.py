"""Studio without its page: what it samples, completes and scores, and what it says of wrong fields."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import studio as room
from axial_transformers.cli import studio as command
from axial_transformers.cli.options import OfModel, Reading
from axial_transformers.data import DataConfig
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.bits import bits_map, bits_per_dim
from axial_transformers.pictures import image_grid
from axial_transformers.pictures.heat_maps import heat_map
from axial_transformers.studio import APPROXIMATE, EXACT, SameOrigin, Studio, _environment
from axial_transformers.training import Facts
from axial_transformers.training.trained_model import TrainedModel, open_model
from tests.conftest import Axial
from tests.small_models import VARIANTS, random_model, random_values


def studio_of(name: str, folder: Path, axes: str | None = None, classes: tuple[str, ...] | None = None) -> Studio:
    model = random_model(VARIANTS[name], torch.float32)
    facts = Facts(fingerprint="", train=1, parameters=1, class_names=classes)
    return Studio(TrainedModel(model, "EMA", None, DataConfig(axes=axes), facts, "runs/small"), folder)


def upload(studio: Studio) -> tuple[str, np.ndarray]:
    """A file of two examples, and the first of them."""
    path, values = studio.folder / "upload.npy", random_values(studio.trained.model, 2).numpy().astype(np.uint8)
    np.save(path, values)
    return str(path), values[:1]


def same_image(path: str, expected: Image.Image) -> bool:
    return np.array_equal(np.asarray(Image.open(path).convert("RGB")), np.asarray(expected.convert("RGB")))


def test_samples_are_those_of_the_library(tmp_path):
    studio = studio_of("classes", tmp_path, classes=("cat", "dog", "owl"))
    assert studio.classes == ["cat", "dog", "owl"]
    assert studio_of("classes", tmp_path).classes == ["0", "1", "2"]
    for label, number in {"owl": 2, "": None}.items():
        path = studio.samples(iter, 3, 0.8, 5, label)
        expected = sample(studio.trained.model, 3, temperature=0.8, seed=5, label=number)
        assert same_image(path, image_grid(expected.numpy(), look=studio.look))


@pytest.mark.parametrize(("name", "says"), [("2d", EXACT), ("columns", EXACT), ("2d deep", APPROXIMATE)])
def test_completions_keep_the_start_and_say_whether_they_are_exact(tmp_path, monkeypatch, name, says):
    written = []
    monkeypatch.setattr(room, "save_completions", lambda path, *given: written.append(given))
    studio = studio_of(name, tmp_path)
    file, example = upload(studio)
    assert studio.completions(iter, file, 1, 4, 0.9, 7, "")[0] == says
    ((_, mask, filled, _),) = written
    assert np.array_equal(filled[:, 0], example[:, 0].repeat(4, 0))
    given = {"mask": torch.from_numpy(mask), "count": 4, "temperature": 0.9, "seed": 7}
    assert np.array_equal(filled, complete(studio.trained.model, example, approximate=True, **given))


def test_bits_are_those_of_the_library(tmp_path):
    studio = studio_of("classes", tmp_path)
    file, example = upload(studio)
    x, label, model = torch.from_numpy(example), torch.tensor([1]), studio.trained.model
    text, path = studio.bits(iter, file, "1")
    assert text == f"{bits_per_dim(model, x, label).item():.4f}"
    assert same_image(path, heat_map(example[0], bits_map(model, x, label)[0].numpy(), studio.look))


@pytest.mark.parametrize(
    ("name", "axes", "first_axis", "suffix"),
    [("1d", "NLC", "positions", ".png"), ("3d", None, "frames", ".mp4"), ("3d", "NDHWC", "slices", ".png")],
)
def test_every_kind_of_data_is_shown(tmp_path, name, axes, first_axis, suffix):
    studio = studio_of(name, tmp_path, axes)
    file, _ = upload(studio)
    assert studio.first_axis == first_axis
    moving = studio.samples(iter, 2, 1.0, 0, ""), studio.completions(iter, file, 1, 2, 1.0, 0, "")[1]
    assert {Path(path).suffix for path in moving} == {suffix}
    assert all(Path(path).stat().st_size for path in (*moving, studio.bits(iter, file, "")[1]))


def test_known_channels_are_taken_from_the_file(tmp_path):
    studio = studio_of("known channels", tmp_path)
    with pytest.raises(ValueError, match="keep 0"):
        studio.samples(iter, 2, 1.0, 0, "")
    assert studio.completions(iter, upload(studio)[0], 0, 2, 1.0, 0, "")[0] == EXACT


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    studio = studio_of("2d", tmp_path)
    with pytest.raises(ValueError, match="file"):
        studio.bits(iter, None, "")
    with pytest.raises(ValueError, match="seed"):
        studio.samples(iter, 2, 1.0, None, "")
    monkeypatch.setattr("axial_transformers.decoding.sampling.free_memory", lambda: 1000)
    with pytest.raises(ValueError, match="memory"):
        studio.samples(iter, 64, 1.0, 0, "")


def test_files_are_read_as_the_data_of_the_run(trained, tmp_path):
    Image.new("L", (20, 20)).save(tmp_path / "a.png")
    opened = open_model(str(trained))
    with pytest.raises(ValueError, match="cut=crop"):
        Studio(opened, tmp_path).bits(iter, str(tmp_path / "a.png"), "")
    cropped = Studio(OfModel(str(trained), data=Reading(cut="crop")).opened(), tmp_path)
    assert float(cropped.bits(iter, str(tmp_path / "a.png"), "")[0]) > 0


def test_without_gradio_the_command_says_how_to_install_it(axial: Axial, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "Gradio is missing: pip install 'axial-transformers[studio]'" in axial("studio", "nowhere").err


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("origin", "host", "passes"),
    [
        (None, "127.0.0.1:7860", True),
        ("http://127.0.0.1:7860", "127.0.0.1:7860", True),
        ("https://Studio.example", "studio.example", True),
        ("https://evil.example", "127.0.0.1:7860", False),
        ("http://127.0.0.1:8888", "127.0.0.1:7860", False),
        ("http://localhost:7860", "127.0.0.1:7860", False),
        ("http://127.0.0.1:7860.evil.example", "127.0.0.1:7860", False),
        ("null", "127.0.0.1:7860", False),
        ("null", "", False),
    ],
)
def test_what_a_page_of_another_site_sends_is_refused(kind, origin, host, passes):
    passed, sent = [], []

    async def app(scope, receive, send):
        passed.append(scope)

    async def send(message):
        sent.append(message)

    headers = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin else [])]
    asyncio.run(SameOrigin(app)({"type": kind, "headers": headers}, None, send))
    refusal = [403, None] if kind == "http" else [None]
    assert len(passed) == passes
    assert [message.get("status") for message in sent] == ([] if passes else refusal)


def test_the_environment_of_the_process_comes_back_after_an_error(monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", "of the user")
    monkeypatch.delenv("GRADIO_ANALYTICS_ENABLED", raising=False)
    before = dict(os.environ)

    def fail() -> None:
        with _environment(GRADIO_TEMP_DIR="other", GRADIO_ANALYTICS_ENABLED="False"):
            assert os.environ["GRADIO_TEMP_DIR"] == "other"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert dict(os.environ) == before
