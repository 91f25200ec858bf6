"""A time limit bounds all that a run does but compile, and leaves enough steps."""

import dataclasses
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.planning.flops import training_flops
from axial_transformers.planning.machine import Machine
from axial_transformers.progress import Display
from axial_transformers.recipes import of_own_data, suited
from axial_transformers.recipes.custom import smaller_tiles
from axial_transformers.training import Collective, RunConfig, TrainConfig, shorter_steps, step, step_time, train
from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.plan import options_between
from axial_transformers.training.processes import Processes
from axial_transformers.training.shorter_steps import shorter
from axial_transformers.training.step_time import SHARE, Clock, Durations

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


@pytest.mark.parametrize("of_evaluation", [0.1, 6.0, 15.0])
def test_the_last_evaluation_and_samples_are_inside_the_limit(tmp_path, now, of_evaluation):
    result, evaluations, said = run(tmp_path / "run", now, of_step=2.0, of_evaluation=of_evaluation, of_samples=5.0)
    assert (result.ending, evaluations) == ("time limit", [result.step])
    assert 55 < result.seconds <= now[0] <= 62
    assert any("s left: about " in text and text.endswith("of 1,000,000 steps") for text in said)


def test_a_slow_step_is_never_the_only_one(tmp_path, now):
    result, evaluations, _ = run(tmp_path / "run", now, of_step=6.0, of_evaluation=200.0)
    assert (result.step, result.best_step, evaluations) == (2, 2, [2])


def test_steps_that_fit_into_the_limit_are_told():
    durations, config = Durations(), dataclasses.replace(CONFIG, steps=20_000)
    for _ in range(10):
        durations.add_step(0.08)
    durations.evaluation = durations.sampling = 0.5
    assert durations.describe_left(config, Counters(step=10, seconds=2)) == "58 s left: about 722 of 20,000 steps"
    assert "about 1 s left for 5 steps" in durations.describe_left(
        dataclasses.replace(config, steps=15), Counters(step=10, seconds=2)
    )


def test_time_in_which_kernels_compile_does_not_count_and_is_said(tmp_path, now, monkeypatch):
    monkeypatch.setattr(step_time, "compilation_time", lambda: now[0] / 2)
    now[0] = 10.0  # of which 5 seconds were compilation, before the clock begins
    clock = Clock()
    clock.add(100)
    now[0] = 60.0
    assert (clock.seconds, clock.compiled) == (125, 25)
    monkeypatch.setattr(Clock, "compiled", 41.0)
    result, _, said = run(tmp_path / "run", now, of_step=4.0, of_evaluation=1.0)
    assert "kernels compiled in 41 s" in said
    assert 50 < result.seconds <= 62 < now[0] - 60


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


def made_short(monkeypatch, rate: float, **given):
    """The default run on clips, what it becomes at `rate` FLOP/s, whether that is enough, FLOPs of what it measures."""
    measured = list[int]()

    def prepared(model, examples, training, processes):
        measured.append(training_flops(model.config) * training.batch_size)
        if measured[-1] / rate > 60 * SHARE * training.time_limit:
            raise ValueError("a step takes too long")
        return MagicMock()

    monkeypatch.setattr(shorter_steps, "matmul_rate", lambda device, dtype: 8 * rate)
    monkeypatch.setattr(shorter_steps, "prepared", prepared)
    asked = of_own_data().changed({"training.time_limit": 1, "training.device": "cpu", **given})
    wanted = suited(asked, CLIPS)
    return wanted, *shorter(wanted, asked.open, ON_THIS, CLIPS), measured


def test_defaults_get_smaller_until_a_hundred_steps_fit_and_what_is_set_stays(monkeypatch):
    wanted, run, enough, measured = made_short(monkeypatch, 1e12)
    assert (run, enough, len(measured)) == (wanted, True, 1)
    wanted, run, enough, measured = made_short(monkeypatch, 1.2e11)
    assert enough
    assert measured == sorted(measured, reverse=True)
    assert 100 * measured[-1] / 1.2e11 <= 30 < 300 * measured[0] / 1.2e11
    given = [f"{part}.{name}" for part in ("training", "model") for name in vars(getattr(run, part))]
    changed = {name for name in given if attrgetter(name)(run) != attrgetter(name)(wanted)}
    assert changed == {"training.batch_size", "model.dim", "model.heads"}
    said = (
        f"--training.batch-size {run.training.batch_size} --model.dim {run.model.dim} --model.heads {run.model.heads}"
    )
    assert options_between(run, wanted) == said

    _, run, enough, _ = made_short(monkeypatch, 1.2e11, **{"model.dim": 128})
    assert (run.model.dim, run.training.batch_size, enough) == (128, 1, True)
    wanted, run, _, measured = made_short(monkeypatch, 1e8, **{"model.dim": 128, "training.batch_size": 4})
    assert (run, measured) == (wanted, [])
    _, run, enough, measured = made_short(monkeypatch, 1e8)
    assert (run.model.dim, run.training.batch_size, enough, measured) == (32, 1, False, [])


def test_where_a_small_model_is_too_slow_tiles_and_blocks_are_halved_down_to_eight():
    asked = of_own_data()

    def found(shape: tuple[int, ...], size: int | tuple[int, ...] | None = None) -> RunConfig:
        model = AxialTransformerConfig(shape=shape)
        return dataclasses.replace(asked.changed({"data.size": size}), model=model)

    tiles = smaller_tiles(asked, found((4, 16, 16)))
    assert tiles is not None
    assert (tiles.data.size, tiles.data.fit) == (8, "tiles")
    assert smaller_tiles(tiles, found((4, 16, 16))) is None  # it is set
    blocks = smaller_tiles(asked, found((8, 8, 256), (8, 8, 256)))
    assert blocks is not None
    assert options_between(blocks, asked) == "--data.size 8 8 128"
    for shape, size in (((4, 8, 8), None), ((2000,), None), ((8, 8, 15), (8, 8, 15))):
        assert smaller_tiles(asked, found(shape, size)) is None
