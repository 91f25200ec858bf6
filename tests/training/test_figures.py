"""The metrics of a run are what they are called."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from axial_transformers import progress
from axial_transformers.data.examples import Examples
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Bar, bar
from axial_transformers.training import TrainConfig, metrics, train
from axial_transformers.training.metrics import Meter, MetricsLog, progress_metrics
from axial_transformers.training.run_state import RunState

CPU = torch.device("cpu")
CONFIG = TrainConfig(steps=6, batch_size=4, device="cpu", log_every=3, save_every=6, warmup_steps=1)


MODEL = AxialTransformerConfig(shape=(3, 2), num_values=4, dim=8, heads=2, outer_layers=2, inner_layers=1)


def run(
    folder: Path, config: TrainConfig = CONFIG, model: type[AxialTransformer] = AxialTransformer
) -> list[dict[str, float]]:
    torch.manual_seed(0)
    values = np.random.default_rng(1).integers(0, 4, (9, 3, 2, 1), dtype=np.uint8)
    train(model(MODEL), Examples(values, [str(i) for i in range(9)], num_values=4), config, folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_bits_are_nats_divided_by_ln_2_and_lines_are_means():
    meter = Meter(CPU, batch_size=4, every=1, state=RunState())
    for step, nats in enumerate((0.5, 1.5), start=1):
        meter.add(step, torch.tensor(nats), torch.tensor(2 * nats))
    line = meter.line()
    assert (line["nats_per_dim"], line["gradient_norm"]) == (1.0, 2.0)
    assert line["bits_per_dim"] == pytest.approx(1 / 0.6931471805599453)


def test_the_time_of_a_step_is_the_median_of_the_newest_ten(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now[0]))
    meter = Meter(CPU, batch_size=4, every=1, state=RunState())
    assert meter.seconds_per_step == 0
    for step, seconds in enumerate((60.0, *[2.0] * 9, *[3.0] * 6)):  # the first one compiles
        now[0] += seconds
        meter.add(step, torch.tensor(1.0), torch.tensor(1.0))
        assert meter.seconds_per_step == {0: 60.0, 15: 3.0}.get(step, meter.seconds_per_step)


@pytest.fixture(scope="module")
def in_a_new_process() -> dict[str, list[int]]:
    """Peak memory around an allocation, and page faults of tensors: in this process, other tests have changed both."""
    ran = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


MEASURE = """
import json, resource, torch
from axial_transformers.training.metrics import peak_memory
from axial_transformers.training.freed_memory import keep_freed_memory

def faults():
    "Of three tensors of 64 MB, one after the other: the least of three counts, since a busy system moves pages about."
    counts = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            torch.zeros(1 << 24)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)

peaks = [peak_memory(torch.device("cpu"))]
held = torch.ones(50_000_000)
peaks.append(peak_memory(torch.device("cpu")))
del held
peaks.append(peak_memory(torch.device("cpu")))
before = faults()
keep_freed_memory()
print(json.dumps({"peaks": peaks, "faults": [before, faults()]}))
"""


def test_peak_memory_rises_with_what_is_held_and_never_falls(in_a_new_process):
    before, risen, after = in_a_new_process["peaks"]
    assert before + 100e6 < risen == pytest.approx(after, rel=0.01)


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


def test_without_wandb_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"^training.wandb=project needs the package wandb: pip install wandb$"):
        run(tmp_path / "run", dataclasses.replace(CONFIG, wandb="project"))
    assert not (tmp_path / "run").exists()


def test_the_progress_line_tells_all(monkeypatch, capsys):
    monkeypatch.setattr("axial_transformers.progress.SECONDS_BETWEEN_LINES", 0.0)
    state = RunState(step=1)
    meter = Meter(CPU, batch_size=4, every=1, state=state)
    with Bar("training") as display:
        meter.add(1, torch.tensor(0.6931471805599453), torch.tensor(1.0))
        display.update(1, progress_metrics(3.0, CONFIG.batch_size, meter))
        meter.line()
        display.update(1, progress_metrics(3.0, CONFIG.batch_size, meter))
    first, second = capsys.readouterr().err.splitlines()
    for figure in ("0:00:03 left", "steps/s", "examples/s"):
        assert figure in first
        assert figure in second
    for figure in ("1.000 bits/dim", "GB"):
        assert figure not in first
        assert figure in second


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_step_finds_the_memory_that_the_last_one_freed(in_a_new_process):
    before, after = in_a_new_process["faults"]
    if before < 1000:
        pytest.skip("this C library keeps freed memory by itself")
    assert after < before / 100


def test_progress_keeps_steps_and_time_left_on_narrow_terminals(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(stderr=True)
    monkeypatch.setattr(progress, "stderr_console", lambda: console)
    shown_metrics = f"1:02:03 left  3.210 bits/dim  12.3 steps/s{'  more metrics' * 9}"
    with Bar("training") as display:
        display.start(1_000_000)
        display.update(123_456, shown_metrics)
        for _ in bar("validation pictures")(range(2)):
            time.sleep(0.2)  # the screen is drawn ten times a second
    shown = capsys.readouterr().err
    assert "123456/1000000" in shown
    assert "1:02:03 left" in shown
    assert "0/2" in shown
    assert "more metrics  more metrics" not in shown
