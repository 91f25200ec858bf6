"""Every setting of training, at another value than its default, changes what a run does."""

import dataclasses
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axial_transformers import machine
from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.data.workers import ahead
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer
from axial_transformers.training import TrainConfig, batches, config, fit, step, train
from tests.small_models import small_config

MODEL = small_config((4,), num_classes=3, dropout=0.2)
BASE = {"steps": 3, "batch_size": 4, "device": "cpu", "log_every": 1, "warmup_steps": 0, "precision": "float32"}
"""So that a run is short, and the same on every machine."""

CASES: dict[str, Any] = {
    "steps": 2, "batch_size": 2, "accumulate": 2, "optimizer": "muon", "learning_rate": 0.1,
    "schedule": "linear", "betas": (0.5, 0.9), "clip_norm": 0.01, "ema_decay": 0.01,
    "precision": "bfloat16", "compile": True, "deterministic": True,
    "horizontal_flip": True, "distribution_augmentation": 0.9, "shift_augmentation": 0.9, "label_dropout": 0.9,
    "seed": 1, "device": "auto", "workers": 1, "log_every": 2, "evaluate_every": 2, "sample_every": 2,
    "save_every": 2, "checkpoint_blocks": True, "minutes": 1e-6, "head_learning_rate": 0.1, "vectors_only": True,
    "tensorboard": True,
    "muon_learning_rate": ({"optimizer": "muon"}, 0.1),
    "muon_weight_decay": ({"optimizer": "muon"}, 0.1),
    "warmup_steps": ({"steps": 16}, 2),
    "as_released": ({"warmup_steps": 2, "steps": 16}, True),
}  # fmt: skip
"""Another value; or other settings that it needs, and the value."""

ELSEWHERE = {
    "shard": "tests/training/test_processes.py",
    "wandb": "tests/training/test_figures.py",
    "cuda_graph": "tests/gpu/test_whole_step.py",
}
"""Settings that need several processes, a GPU or another package, and where they are tested."""


def run_with(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What a run computes and writes, and what it asks of functions that change nothing here."""
    asked = []

    def record(owner: Any, name: str, *of: int | str, answer: Any = None) -> None:
        function = answer or getattr(owner, name)

        def recorded(*given: Any, **options: Any) -> Any:
            asked.append((name, [given[key] if isinstance(key, int) else options[key] for key in of]))
            return function(*given, **options)

        patch.setattr(owner, name, recorded)

    def loss(*given: Any, **options: Any) -> torch.Tensor:
        asked.append(("loss", len(given[1])))
        return random_slice_loss(*given, **options)

    def evaluate(model: AxialTransformer, step: int, fill: Any) -> dict[str, float]:
        asked.append(("evaluate", step))
        return {"bits_per_dim": 1.0}

    torch.manual_seed(0)
    values = np.random.default_rng(0).integers(0, 5, (7, 4, 1), dtype=np.uint8)
    examples = Examples(values, [str(i) for i in range(7)], labels=np.arange(7) % 3, range=ValueRange(0, 4))
    with pytest.MonkeyPatch.context() as patch:
        record(config, "find_device", 0)
        record(step, "arithmetic", "deterministic")
        record(step, "checkpoint_blocks", answer=lambda model: None)
        record(step, "compile_blocks", answer=lambda model: None)
        patch.setattr(fit, "write_page", lambda *given: None)
        patch.setattr(machine, "why_not_compiled", lambda device: None)
        patch.setattr("os.fsync", lambda descriptor: None)
        record(batches, "ahead", 2, answer=lambda draw, order, workers: ahead(draw, order, 0))
        train(
            AxialTransformer(MODEL), examples, TrainConfig(**settings), folder, loss=loss, evaluate=evaluate,
            sample=lambda model, step: asked.append(("sample", step)),
        )  # fmt: skip
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = {"seconds", "examples_per_second", "peak_memory_bytes"}
    newest = max((folder / "checkpoints").iterdir())
    return {
        "asked": asked,
        "files": sorted(path.name for path in [*folder.iterdir(), *(folder / "checkpoints").iterdir()]),
        "lines": [{name: line[name] for name in line.keys() - timed} for line in lines],
        "weights": [
            {name: tensor.tolist() for name, tensor in load_file(file).items()}
            for file in sorted(newest.glob("*.safetensors"))
        ],
    }


def test_every_setting_changes_the_run(tmp_path):
    @cache
    def ran(*settings: tuple[str, Any]) -> dict[str, Any]:
        return run_with(tmp_path / str(ran.cache_info().misses), dict(settings))

    assert CASES.keys() | ELSEWHERE.keys() == {field.name for field in dataclasses.fields(TrainConfig)}
    without_effect = []
    for name, case in CASES.items():
        needs, value = case if isinstance(case, tuple) and isinstance(case[0], dict) else ({}, case)
        settings = BASE | needs
        assert value != settings.get(name, getattr(TrainConfig(), name))
        if ran(*settings.items()) == ran(*(settings | {name: value}).items()):
            without_effect.append(name)
    assert without_effect == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"shard": True, "optimizer": "muon"}, r"training\.optimizer=muon"),
        ({"batch_size": 9, "accumulate": 2}, r"training\.accumulate=2 .*training\.batch_size=9"),
        ({"device": "cuda:77"}, "cuda:77"),
        ({"ema_decay": 1.0}, r"training\.ema_decay"),
        ({"wandb": "project"}, "pip install wandb"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_before_anything_is_written(tmp_path, monkeypatch, settings, complaint):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=complaint):
        run_with(tmp_path / "run", BASE | settings)
    assert not (tmp_path / "run").exists()


def test_a_run_repeats(tmp_path):
    """Or else the test above could not fail."""
    assert run_with(tmp_path / "one", BASE) == run_with(tmp_path / "other", BASE)
