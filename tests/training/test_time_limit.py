"""`minutes` ends the steps; the last evaluation and samples come after."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Display
from axial_transformers.training import Collective, TrainConfig, train
from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.step_time import Clock, Durations

CONFIG = TrainConfig(
    steps=10**6, batch_size=4, device="cpu", precision="float32", minutes=1, log_every=50, evaluate_every=10**6,
    sample_every=10**6, save_every=10**6,
)  # fmt: skip
MODEL = AxialTransformerConfig(shape=(2,), num_values=4, dim=4, heads=1, inner_layers=1)


def some(count: int = 9, shape: tuple[int, ...] = (2,), channels: int = 1) -> Examples:
    values = np.random.default_rng(0).integers(0, 4, (count, *shape, channels), dtype=np.uint8)
    return Examples(values, [str(i) for i in range(count)], num_values=4)


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The seconds that a clock shows, which stands still by itself."""
    now = [0.0]
    for module in ("step_time", "metrics"):
        patched = SimpleNamespace(monotonic=lambda: now[0])
        monkeypatch.setattr(f"axial_transformers.training.{module}.time", patched)
    return now


def run(folder: Path, now: list[float], of_step: float, of_evaluation: float, of_samples: float = 0.0):
    """The result of a run whose steps, evaluations and samples take so long, how often it evaluates, what it says."""
    evaluations, said = list[int](), list[str]()

    def loss(model, x, *, label, channel):
        now[0] += of_step * len(x) / CONFIG.batch_size
        return random_slice_loss(model, x, label=label, channel=channel)

    def evaluate(model, step, fill):
        now[0] += of_evaluation
        evaluations.append(step)
        return {"bits_per_dim": 1.0}

    def part(model):
        now[0] += of_evaluation / 10

    def sample(model, step):
        now[0] += of_samples

    class Said(Display):
        def say(self, text: str) -> None:
            said.append(text)

    torch.manual_seed(0)
    model, evaluation = AxialTransformer(MODEL), Collective(evaluate, part, parts=10)
    result = train(model, some(), CONFIG, folder, loss=loss, evaluate=evaluation, sample=sample, progress=Said())
    return result, evaluations, said


def test_the_last_evaluation_and_samples_come_after_the_minutes(tmp_path, now):
    result, evaluations, said = run(tmp_path / "run", now, of_step=2.0, of_evaluation=15.0, of_samples=5.0)
    assert (result.ending, result.step, evaluations) == ("time limit", 29, [29])
    assert result.seconds == 58 + 15 + 5 + 3  # the last: parts of an evaluation are timed
    assert any("of 1,000,000 steps" in text for text in said)


def test_a_slow_step_is_made(tmp_path, now):
    result, evaluations, _ = run(tmp_path / "run", now, of_step=100.0, of_evaluation=1.0)
    assert (result.step, result.best_step, evaluations) == (1, 1, [1])


def test_steps_that_fit_into_the_limit_are_told():
    durations, config = Durations(), dataclasses.replace(CONFIG, steps=20_000)
    for _ in range(10):
        durations.add_step(0.08)
    durations.evaluation = durations.sampling = 0.5
    assert durations.describe_left(config, Counters(step=10, seconds=2)) == "59 s left: about 735 of 20,000 steps"
    assert "about 1 s left for 5 steps" in durations.describe_left(
        dataclasses.replace(config, steps=15), Counters(step=10, seconds=2)
    )


def test_time_before_a_resume_counts(now):
    now[0] = 10.0
    clock = Clock()
    clock.add(100)
    now[0] = 60.0
    assert clock.seconds == 150
