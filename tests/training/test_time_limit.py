"""A time limit bounds all that a run does but compile, and leaves enough steps."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.planning.flops import training_flops
from axial_transformers.planning.machine import Machine
from axial_transformers.progress import Display
from axial_transformers.recipes import of_own_data, smaller_tiles, suited
from axial_transformers.training import Collective, TrainConfig, shorter_steps, step, step_time, train
from axial_transformers.training.callbacks import MIN_PARTS
from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.processes import Processes
from axial_transformers.training.shorter_steps import changes_for_time, shorter
from axial_transformers.training.step_time import Clock, Durations

CONFIG = TrainConfig(
    steps=10**6, batch_size=4, device="cpu", precision="float32", time_limit=1, log_every=50, evaluate_every=10**6,
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
    for module in ("step_time", "callbacks", "metrics"):
        patched = SimpleNamespace(monotonic=lambda: now[0])
        monkeypatch.setattr(f"axial_transformers.training.{module}.time", patched)
    return now


def run(folder: Path, now: list[float], of_step: float, of_part: float, of_samples: float = 0.0):
    """The result of a run whose steps, parts and samples take so long, the parts that it evaluates, and what it says."""
    parts, said = list[int](), list[str]()

    def loss(model, x, *, label, channel):
        now[0] += of_step * len(x) / CONFIG.batch_size
        return random_slice_loss(model, x, label=label, channel=channel)

    def spend(seconds: float, **metrics: float) -> dict[str, float]:
        now[0] += seconds
        return metrics

    def evaluation(count: int) -> Collective:
        def call(model, step, fill):
            parts.append(count)
            return spend(of_part * count, bits_per_dim=1.0)

        return Collective(call, lambda model: spend(of_part), count, evaluation)

    class Said(Display):
        def say(self, text: str) -> None:
            said.append(text)

    def sample(model, step):
        return spend(of_samples)

    torch.manual_seed(0)
    model, progress = AxialTransformer(MODEL), Said()
    result = train(model, some(), CONFIG, folder, loss=loss, evaluate=evaluation(100), sample=sample, progress=progress)
    return result, parts, said


@pytest.mark.parametrize(
    ("of_part", "parts"),
    [(0.01, 100), (0.125, 48), (3.0, MIN_PARTS)],
)
def test_the_last_evaluation_and_samples_are_inside_the_limit(tmp_path, now, of_part, parts):
    """As many parts are evaluated as take a tenth of the limit, and at least a few."""
    result, evaluated, said = run(tmp_path / "run", now, of_step=0.5, of_part=of_part, of_samples=3.0)
    assert (result.ending, evaluated) == ("time limit", [parts])
    assert 55 < result.seconds <= now[0] <= 60.5
    assert any("s left: about " in text and text.endswith("of 1,000,000 steps") for text in said)


def test_a_slow_step_is_never_the_only_one(tmp_path, now):
    result, evaluated, _ = run(tmp_path / "run", now, of_step=6.0, of_part=20.0)
    assert (result.step, result.best_step, len(evaluated)) == (2, 2, 1)


def test_steps_that_fit_into_the_limit_are_told():
    durations, config = Durations(), dataclasses.replace(CONFIG, steps=20_000)
    for _ in range(10):
        durations.add_step(0.08)
    durations.evaluation = durations.sampling = 0.5
    assert durations.describe_left(config, Counters(step=10, seconds=2)) == "58 s left: about 722 of 20,000 steps"
    assert "about 1 s left for 5 steps" in durations.describe_left(
        dataclasses.replace(config, steps=15), Counters(step=10, seconds=2)
    )


def test_time_in_which_kernels_compile_does_not_count_and_is_said_once(now, monkeypatch):
    compiled = [0.0]
    monkeypatch.setattr(step_time, "compilation_time", lambda: (compiled[0], True))
    clock = Clock()
    clock.add(100)
    now[0], compiled[0] = 50.0, 41.0
    assert clock.seconds == 109
    assert clock.news() == "kernels compiled in 41 s; they are kept for the next run"
    assert clock.news() == ""
    with clock.stopped():
        now[0], compiled[0] = 80.0, 45.0
    assert clock.seconds == 109


def test_compiled_blocks_are_measured_and_compiled_before_the_clock_starts(now, monkeypatch):
    order = list[str]()

    def loss(model, x, *, label, channel):
        now[0] += 0.1 if "loss" in order else 1000.0
        order.append("loss")
        assert len(x) == CONFIG.batch_size  # another size would compile again
        return random_slice_loss(model, x, label=label, channel=channel)

    monkeypatch.setattr(step, "compile_blocks", lambda model: order.append("compile"))
    clock, config = Clock(), dataclasses.replace(CONFIG, compile=True)
    with Processes(torch.device("cpu")) as processes:
        step.prepared(AxialTransformer(MODEL), some(), config, processes, loss=loss, clock=clock).close()
    assert order == ["compile", *["loss"] * 4]
    assert clock.seconds < 1


ON_THIS = Machine(memory=1e3, rate=None, utilisation=None, device="cpu", is_this=True)
CLIPS = some(9, (4, 16, 16), 3)


def made_short(monkeypatch, limit: float, rate: float, **given):
    """The default run on clips, what it becomes on a machine that makes `rate` FLOPs a second, and what it measures."""
    measured = list[int]()

    def step_seconds(objective, examples, model, config, processes, most):
        measured.append(training_flops(model.config) * config.batch_size)
        seconds = measured[-1] / rate
        return min(seconds, 2 * most), min(1.0, 2 * most / seconds)

    monkeypatch.setattr(shorter_steps, "matmul_rate", lambda device, dtype: 4 * rate)
    monkeypatch.setattr(shorter_steps, "step_seconds", step_seconds)
    asked = of_own_data().changed({"training.time_limit": limit, "training.device": "cpu", **given})
    wanted = suited(asked, CLIPS)
    return asked, wanted, *shorter(wanted, asked.open, ON_THIS, CLIPS), measured


def test_defaults_get_smaller_until_a_hundred_steps_fit_and_what_is_set_stays(monkeypatch):
    _, wanted, run, enough, measured = made_short(monkeypatch, 1, rate=1e12)
    assert (run, enough, len(measured)) == (wanted, True, 1)
    _, wanted, run, enough, measured = made_short(monkeypatch, 1, rate=1.2e11)
    assert enough
    assert measured == sorted(measured, reverse=True)
    assert measured[-1] / 1.2e11 <= 0.4 < 4 * measured[0] / 1.2e11
    words = f"--training.batch-size {run.training.batch_size} --model.dim {run.model.dim} --model.heads"
    assert words in changes_for_time(run, wanted)
    assert changes_for_time(wanted, wanted) == ""

    _, _, run, enough, _ = made_short(monkeypatch, 1, rate=1.2e11, **{"model.dim": 128, "model.outer_layers": (6, 4)})
    assert (run.model.dim, run.model.outer_layers, run.training.batch_size, enough) == (128, (6, 4), 1, True)
    _, wanted, run, _, measured = made_short(
        monkeypatch, 1, rate=1e8, **{"model.dim": 128, "training.batch_size": 4, "model.outer_layers": (6, 4)}
    )
    assert (run, measured) == (wanted, [])


def test_where_a_small_model_is_too_slow_tiles_get_smaller(monkeypatch):
    asked, wanted, run, enough, measured = made_short(monkeypatch, 1, rate=1e8)
    assert (enough, measured) == (False, [])
    assert (run.training.batch_size, run.model.dim, run.model.outer_layers) == (1, 32, (3, 2))
    smaller = smaller_tiles(asked, wanted)
    assert smaller is not None
    assert (smaller.data.size, smaller.data.fit) == (8, "tiles")
    assert smaller_tiles(smaller, wanted) is None  # it is set
    block = suited(asked, some(9, (8, 8, 128))).changed({"data.size": (8, 8, 128)})
    assert smaller_tiles(asked, block).data.size == (8, 8, 64)
    small = suited(asked, some(9, (8, 8)))
    assert smaller_tiles(asked, small) is None
