"""Steps whose gradients explode are left out."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from axial_transformers.data import Examples
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.divergence import FIRST, LIMIT, WINDOW, add_norm, renew_limit
from axial_transformers.training.run_state import RunState

CONFIG = TrainConfig(
    steps=360, batch_size=4, learning_rate=1e-3, longest_warmup=1, device="cpu", precision="float32", log_every=1,
    save_every=30, evaluate_every=10**6, sample_every=10**6,
)  # fmt: skip


def run(folder: Path, explodes: range, steps: int = CONFIG.steps, resume: bool = False, factor: float = 1e6):
    """The model after a run in which the gradients of these steps explode, counted from its begin."""
    rng = np.random.default_rng(0)
    examples = Examples(rng.integers(0, 4, (16, 3), dtype=np.uint8)[..., None], [*map(str, range(16))], num_values=4)
    torch.manual_seed(0)
    model = AxialTransformer(AxialTransformerConfig(shape=(3,), num_values=4, dim=8, heads=2, inner_layers=1))
    made = 0

    def loss(model, x, *, label, channel):
        nonlocal made
        made += 1
        return random_slice_loss(model, x, label=label, channel=channel) * (factor if made in explodes else 1)

    config = dataclasses.replace(CONFIG, steps=steps)
    result = train(model, examples, config, folder, loss=loss, resume=resume)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return model, result, [line for line in lines if "gradient_norm" in line]


def test_a_step_whose_gradient_explodes_is_left_out_and_counted(tmp_path):
    model, result, lines = run(tmp_path / "run", range(340, 341))
    assert (result.step, lines[-1]["steps_left_out"], lines[338]["steps_left_out"]) == (360, 1, 0)
    assert "1 steps left out" in (tmp_path / "run/index.html").read_text()
    other, *_ = run(tmp_path / "other", range(340, 341), factor=1e9)  # of which nothing is left in weights or moments
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


def test_a_resume_leaves_out_the_same_steps(tmp_path):
    whole, *_ = run(tmp_path / "whole", range(326, 336))
    run(tmp_path / "parts", range(326, 336), steps=328)
    rest, *_ = run(tmp_path / "parts", range(-2, 8), resume=True)
    assert all(map(torch.equal, whole.state_dict().values(), rest.state_dict().values()))


def test_the_limit_follows_the_median_and_small_norms_are_never_left_out():
    state = RunState(step=FIRST)
    for step in range(WINDOW):
        add_norm(state, 1e9 if step % 3 == 0 else 2.0)
        renew_limit(state, CONFIG)
    assert (state.norm_limit, state.left_out) == (LIMIT * 2.0, 0)
    for _ in range(WINDOW):
        add_norm(state, 1e-6)
        renew_limit(state, CONFIG)
    assert (state.norm_limit, state.left_out) == (CONFIG.clip_norm, 0)
    add_norm(state, 2 * CONFIG.clip_norm)
    assert state.left_out == 1
