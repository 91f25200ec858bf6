"""Steps whose gradients explode are left out; after many of them, a run goes back at half the learning rates."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Display
from axial_transformers.training import TrainConfig, run_state, train
from axial_transformers.training.run_state import (
    FIRST,
    LIMIT,
    MANY,
    WINDOW,
    RunState,
    add_step,
    must_go_back,
    renew_limit,
)

CONFIG = TrainConfig(
    steps=60, batch_size=4, learning_rate=1e-3, warmup_steps=1, device="cpu", precision="float32", log_every=1,
    save_every=10, evaluate_every=10**6, sample_every=10**6,
)  # fmt: skip


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms are known after few steps."""
    monkeypatch.setattr(run_state, "FIRST", 25)
    monkeypatch.setattr(run_state, "WINDOW", 25)


def run(folder: Path, explodes: range, steps: int = CONFIG.steps, resume: bool = False, factor: float = 1e6):
    """The model after a run in which the gradients of these steps explode, counted from its begin, and what it says."""
    rng, said = np.random.default_rng(0), list[str]()
    values = rng.integers(0, 4, (16, 3, 1), dtype=np.uint8)
    examples = Examples(values, [*map(str, range(16))], range=ValueRange(0, 3))
    torch.manual_seed(0)
    model = AxialTransformer(AxialTransformerConfig(shape=(3,), num_values=4, dim=8, heads=2, inner_layers=1))
    made = 0

    def loss(model, x, *, label, channel):
        nonlocal made
        made += 1
        return random_slice_loss(model, x, label=label, channel=channel) * (factor if made in explodes else 1)

    class Said(Display):
        def say(self, text: str) -> None:
            said.append(text)

    config = dataclasses.replace(CONFIG, steps=steps)
    result = train(model, examples, config, folder, loss=loss, resume=resume, progress=Said())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return model, result, [line for line in lines if "gradient_norm" in line], said


@pytest.mark.usefixtures("soon")
def test_a_step_whose_gradient_explodes_is_left_out_and_counted(tmp_path):
    model, result, lines, _ = run(tmp_path / "run", range(40, 41))
    assert (result.step, lines[-1]["steps_left_out"], lines[38]["steps_left_out"]) == (60, 1, 0)
    assert "1 steps left out" in (tmp_path / "run/index.html").read_text()
    other, *_ = run(tmp_path / "other", range(40, 41), factor=1e9)  # of which nothing is left in weights or moments
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


@pytest.mark.usefixtures("soon")
def test_after_many_such_steps_the_run_goes_back_at_half_the_rates(tmp_path):
    _, result, lines, said = run(tmp_path / "run", range(36, 36 + MANY))
    assert "gone back to step 30, at 0.5 times the learning rates" in " ".join(said)
    assert result.step == 60
    assert [line["step"] for line in lines] == [*range(1, 61)]
    assert (lines[28]["learning_rate"], lines[-1]["learning_rate"]) == (1e-3, 5e-4)
    record = RunState.read(tmp_path / "run/checkpoints/step-00000060")
    assert (record.rates, record.left_out) == (0.5, MANY)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("end", [38, 47])
def test_a_resume_goes_on_bitwise_before_and_after_it_goes_back(tmp_path, end):
    whole, *_ = run(tmp_path / "whole", range(36, 36 + MANY))
    run(tmp_path / "parts", range(36, 36 + MANY), steps=end)
    made = {38: 38, 47: 47 + 15}[end]
    rest, *_ = run(tmp_path / "parts", range(36 - made, 36 + MANY - made), resume=True)
    assert all(map(torch.equal, whole.state_dict().values(), rest.state_dict().values()))


def test_the_limit_follows_the_median_and_small_norms_are_never_left_out():
    counters = RunState(step=FIRST)
    for step in range(WINDOW):
        add_step(counters, step, 1.0, 1e9 if step % 3 == 0 else 2.0)
        renew_limit(counters, CONFIG)
    assert (counters.norm_limit, counters.left_out) == (LIMIT * 2.0, 0)
    for step in range(WINDOW):
        add_step(counters, WINDOW + step, 1.0, 1e-6)
        renew_limit(counters, CONFIG)
    assert counters.norm_limit == CONFIG.clip_norm
    for _ in range(MANY):
        assert not must_go_back(counters)
        counters.step += 1
        add_step(counters, counters.step, 1.3, 1e3)
    assert must_go_back(counters)
    counters.step += WINDOW
    renew_limit(counters, CONFIG)
    assert not must_go_back(counters)
