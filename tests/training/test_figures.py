"""The metrics of a run are what they are called."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.data.examples import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.metrics import Meter, MetricsLog, peak_memory
from axial_transformers.training.run_state import RunState
from tests.launching import fork

CPU = torch.device("cpu")
CONFIG = TrainConfig(steps=6, batch_size=4, device="cpu", log_every=3, save_every=6, warmup_steps=1)


MODEL = AxialTransformerConfig(shape=(3, 2), num_values=4, dim=8, heads=2, outer_layers=2, inner_layers=1)


def run(folder: Path, config: TrainConfig) -> list[dict[str, float]]:
    torch.manual_seed(0)
    values = np.random.default_rng(1).integers(0, 4, (9, 3, 2, 1), dtype=np.uint8)
    train(AxialTransformer(MODEL), Examples(values, [str(i) for i in range(9)], range=ValueRange(0, 3)), config, folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_bits_are_nats_divided_by_ln_2_and_lines_are_means():
    meter = Meter(CPU, batch_size=4, every=1, state=RunState())
    for step, nats in enumerate((0.5, 1.5), start=1):
        meter.add(step, torch.tensor(nats), torch.tensor(2 * nats))
    line = meter.line()
    assert (line["nats_per_dim"], line["gradient_norm"]) == (1.0, 2.0)
    assert line["bits_per_dim"] == pytest.approx(1 / 0.6931471805599453)


def test_peak_memory_counts_what_was_held(tmp_path):
    def measure() -> int:
        first = torch.ones(100_000_000)  # then the peak is what this process has
        before = peak_memory(CPU)
        first = first, torch.ones(50_000_000)
        print(peak_memory(CPU) - before)
        return 0

    ((status, out, _),) = fork(1, measure, tmp_path)
    assert (status, int(out)) == (0, pytest.approx(200e6, rel=0.1))


def test_tensorboard_has_every_figure(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    lines = run(tmp_path / "run", dataclasses.replace(CONFIG, tensorboard=True))
    board = event_accumulator.EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    assert set(board.Tags()["scalars"]) == lines[0].keys() - {"step"}


FAKE_WANDB = """
calls = []
Image = lambda picture: ("image", picture.shape)
class Run:
    log = staticmethod(lambda values, step: calls.append((step, values)))
    finish = staticmethod(lambda exit_code: calls.append(exit_code))
init = lambda **options: calls.append(options) or Run()
"""


def test_weights_and_biases_gets_metrics_and_samples_under_one_identity(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    config = dataclasses.replace(CONFIG, wandb="project")
    lines = run(tmp_path / "run", config)
    fake = sys.modules["wandb"]
    first, *logged, code = fake.calls
    assert (first["project"], first["name"], first["resume"], code) == ("project", "run", "allow", 0)
    assert [{"step": step, **values} for step, values in logged] == lines
    with MetricsLog(tmp_path / "run", RunState(step=6), config) as log:
        log.write(7, {"samples": np.zeros((2, 3), np.uint8)})
    again, shown, _ = fake.calls[-3:]
    assert again == first
    assert shown == (7, {"samples": ("image", (2, 3))})
