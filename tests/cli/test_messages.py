"""Messages: what the rooms write for Python reaches a user of the command line as options."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.cli.messages import in_options
from axial_transformers.compression.archive import require_free
from axial_transformers.data import DataConfig, load
from axial_transformers.decoding.sampling import complete
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig
from tests.conftest import Axial
from tests.small_models import random_model, small_config

CONFIGS = {"data": DataConfig, "model": AxialTransformerConfig, "training": TrainConfig}


@pytest.mark.parametrize(
    ("python", "options"),
    [
        ("force=True", "--force"),
        ("model.centred=False", "--model.no-centred"),
        ("verify it, or known=: name", "verify it, or --known: name"),
        ("data.grid=(0.0001, 0) rounds them", "--data.grid 0.0001 0 rounds them"),
        ("data.size=(16,)", "--data.size 16"),
        ("give data.size, and data.cut=crop or stretch", "give --data.size, and --data.cut crop or stretch"),
        ("data.validation_fraction", "--data.validation-fraction"),
        ("training.accumulate=3 does not divide", "--training.accumulate 3 does not divide"),
        ("label=None: runs/x", "no --label: runs/x"),
        ("take split=all, or other data", "take --split all, or other data"),
        ("choose values=ordinal by model.values=ordinal", "choose values=ordinal by --model.values ordinal"),
        ("mask=a/b.npy holds float32", "--mask a/b.npy holds float32"),
    ],
)
def test_settings_and_arguments_become_options(python, options):
    assert in_options(python) == options
    assert in_options(options) == options


@pytest.mark.parametrize(
    "text",
    [
        "label=cat/a.png is no image", "data.npz: no such file", "my/data.size is a folder", "metadata.size",
        "model.requires_grad_()", "thaw model.shapes", "data.key.npz", "width 32, heads=8", "--data.size 8 8",
        "split=train/x.png",
    ],
)  # fmt: skip
def test_paths_and_other_words_stay(text):
    assert in_options(text) == text


def test_every_setting_has_its_option():
    for group, config in CONFIGS.items():
        for field in fields(config):
            option = f"--{group}.{field.name.replace('_', '-')}"
            assert in_options(f"{group}.{field.name}=2: too few") == f"{option} 2: too few"
            assert in_options(f"lower {group}.{field.name}, or") == f"lower {option}, or"


def message_of(call: object, error: type[Exception] = ValueError) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_real_messages_speak_of_options_on_the_command_line_and_of_arguments_in_python(tmp_path):
    (tmp_path / "x.axl").write_bytes(b"")
    images = np.zeros((20, 8, 8), np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "floats.npy", np.random.default_rng(0).normal(size=(20, 8, 8)))
    model = random_model(small_config((4, 4)), torch.float32)
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[3] = True
    known = torch.zeros(1, 4, 4, 1, dtype=torch.uint8)
    source = str(tmp_path / "images.npy")
    cases = {
        ("force=True", "--force"): message_of(
            lambda: require_free(tmp_path / "x.axl", Path(source), False), FileExistsError
        ),
        ("data.cut=tiles needs a size, for example data.size=32", "--data.cut tiles needs a size"): message_of(
            lambda: DataConfig(cut="tiles")
        ),
        ("data.axes=NHWC", "--data.axes NHWC"): message_of(lambda: load(source, DataConfig(axes="NHWC"), "all")),
        ("approximate=True", "--approximate"): message_of(lambda: complete(model, known, mask=mask)),
        ("data.grid=(", "--data.grid 0."): message_of(lambda: load(str(tmp_path / "floats.npy"), DataConfig(), "all")),
        ("training.steps", "--training.steps"): message_of(lambda: TrainConfig(steps=0)),
        ("model.inner_layers", "--model.inner-layers"): message_of(
            lambda: AxialTransformerConfig(shape=(4, 4), inner="lstm", inner_layers=3)
        ),
    }
    for (python, option), text in cases.items():
        assert python in text
        assert option in in_options(text), text
        assert f" {python}" not in f" {in_options(text)}"


def test_errors_and_warnings_of_the_command_pass_through_one_door(axial: Axial, refused, home):
    np.save("images.npy", np.zeros((20, 8, 8), np.uint8))
    assert "--data.size" in refused("train", "images.npy", "--data.cut", "tiles", "--data.frames", "4")
    assert "--data.validation-fraction" in refused("train", "images.npy", "--data.validation-fraction", "1")
