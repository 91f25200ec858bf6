"""`minutes` ends the steps, at a learning rate of zero; the last evaluation and samples come after."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import RunState, TrainConfig, train
from axial_transformers.training.optimizer import learning_rate
from axial_transformers.training.run_state import TimeLimit

CONFIG = TrainConfig(
    steps=10**6, batch_size=4, device="cpu", precision="float32", minutes=1, log_every=1, evaluate_every=10**6,
    sample_every=10**6, save_every=10**6, schedule="cosine",
)  # fmt: skip
MODEL = AxialTransformerConfig(shape=(2,), num_values=4, dim=4, heads=1, inner_layers=1)
EXAMPLES = Examples(np.zeros((9, 2, 1), np.uint8), [*map(str, range(9))], range=ValueRange(0, 3))


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The seconds that a clock shows, which stands still by itself."""
    now = [0.0]
    for module in ("run_state", "metrics"):
        patched = SimpleNamespace(monotonic=lambda: now[0])
        monkeypatch.setattr(f"axial_transformers.training.{module}.time", patched)
    return now


def run(folder: Path, now: list[float], of_step: float, config: TrainConfig = CONFIG) -> RunState:
    """The result of a run whose steps take so long, evaluations 15 seconds and samples 5."""

    def loss(*given, **options):
        now[0] += of_step
        return random_slice_loss(*given, **options)

    def evaluate(model, step, fill):
        now[0] += 15
        return {"bits_per_dim": 1.0}

    def sample(model, step):
        now[0] += 5

    return train(
        AxialTransformer(MODEL), EXAMPLES, config, folder, loss=loss, evaluate=evaluate, sample=sample,
        resume=folder.exists(),
    )  # fmt: skip


@pytest.mark.parametrize(("of_step", "steps"), [(2.0, 30), (100.0, 1)])
def test_the_last_evaluation_and_samples_come_after_the_minutes(tmp_path, now, of_step, steps):
    result = run(tmp_path / "run", now, of_step)
    assert (result.ending, result.step, result.evaluated_step) == ("time limit", steps, steps)
    assert result.seconds == of_step * steps + 15 + 5


def test_the_learning_rate_falls_to_zero_by_then_and_a_resume_goes_on_from_the_time_of_its_checkpoint(tmp_path, now):
    run(tmp_path / "run", now, of_step=2.0)
    longer = dataclasses.replace(CONFIG, minutes=3)
    run(tmp_path / "run", now, of_step=2.0, config=longer)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rates = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    assert rates[30] < 0.01 * max(rates.values())
    assert rates[31] == learning_rate(30, longer, share_of_time=75 / 180)  # samples come after the last checkpoint
    assert max(rates) == 30 + (180 - 75 + 1) / 2
    assert rates[max(rates)] < 0.01 * max(rates.values())
    assert learning_rate(10, CONFIG, share_of_time=0.5) == pytest.approx(learning_rate(500_000, CONFIG), rel=0.01)


def test_time_before_a_resume_counts(now):
    now[0] = 10.0
    limit = TimeLimit(minutes=3, spent=100.0)
    now[0] = 60.0
    assert limit.seconds == 150
    assert limit.share(limit.seconds) == 150 / 180
    assert (limit.left(5, 1.0), limit.left(5, 100.0)) == (5.0, 30.0)
    assert TimeLimit().share(1e9) == 0
