"""Metrics of a run: read from the device, averaged, written and read again."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.likelihood.bits import LOG2
from axial_transformers.storage.files import errors_name, require_inside, written_whole
from axial_transformers.storage.typed_json import line_of
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run_state import RunState, add_step
from axial_transformers.wording import duration

METRICS = "metrics.jsonl"
WANDB = "wandb.txt"
STATUS = Path("/proc/self/status")
VALIDATION = "validation_"
"""Prefix of the names of an evaluation's metrics."""


Metric = float | NDArray[np.uint8]
Curve = list[tuple[float, float]]


class NonFiniteLoss(ValueError):
    """The loss, its gradient or the weights became infinite or not a number."""


@dataclass
class Meter:
    """The loss and gradient norm of each step, read from the device every `every` steps, since reading waits for it."""

    device: torch.device
    batch_size: int
    """Examples of a step, over all processes."""
    every: int
    """Steps between reads."""
    state: RunState
    """That of the run; it holds the sums of what is not logged yet."""
    newest_line: dict[str, float] = field(default_factory=dict)
    unread: list[tuple[int, Tensor]] = field(default_factory=list)
    steps: int = 0
    """Steps since the last line of this process."""
    last_line: float = field(default_factory=time.monotonic)

    def add(self, step: int, nats_per_dim: Tensor, gradient_norm: Tensor) -> None:
        """Add the scalars of a step; NonFiniteLoss if those of this step, or of one not read yet, are not finite."""
        self.unread.append((step, torch.stack((nats_per_dim, gradient_norm))))
        if len(self.unread) >= self.every:
            self.read()

    def read(self) -> None:
        if not self.unread:
            return
        steps, scalars = zip(*self.unread)
        self.unread = []
        for step, (nats, norm) in zip(steps, torch.stack(scalars).tolist()):
            if not (math.isfinite(nats) and math.isfinite(norm)):
                raise NonFiniteLoss(f"step {step} has a loss of {nats:g} with a gradient of norm {norm:g}")
            self.steps += 1
            self.state.unlogged_steps += 1
            self.state.unlogged_nats += nats
            self.state.unlogged_norms += norm
            add_step(self.state, step, nats, norm)

    def describe(self, left: float) -> str:
        """Return the time that is left, and the newest bits/dim, as text for a terminal."""
        text = f"{duration(left)} left"
        if self.newest_line:
            text += f"  {self.newest_line['bits_per_dim']:.3f} bits/dim"
        return text

    def line(self) -> dict[str, float]:
        """Return means over the steps since the previous line."""
        self.read()
        now = time.monotonic()
        state = self.state
        nats = state.unlogged_nats / state.unlogged_steps
        self.newest_line = {
            "bits_per_dim": nats / LOG2,
            "nats_per_dim": nats,
            "gradient_norm": state.unlogged_norms / state.unlogged_steps,
            "steps_left_out": state.left_out,
            "examples_per_second": self.steps * self.batch_size / (now - self.last_line),
            "peak_memory_bytes": peak_memory(self.device),
        }
        self.steps = 0
        self.last_line = now
        state.unlogged_steps = 0
        state.unlogged_nats = 0.0
        state.unlogged_norms = 0.0
        return self.newest_line

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the time of the block out of all steps."""
        self.read()
        start = time.monotonic()
        yield
        self.last_line += time.monotonic() - start


class MetricsLog:
    """RUN/metrics.jsonl and, if wanted, TensorBoard's files and a run of Weights & Biases; nothing without a folder.

    A resume first removes the lines after its checkpoint, since their steps are made again.
    """

    def __init__(self, folder: Path | None, state: RunState, config: TrainConfig) -> None:
        self._path = folder / METRICS if folder else Path(os.devnull)
        self._open_after(state)
        self._board = self._wandb = None
        if config.tensorboard and folder:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=state.step + 1)
        if config.wandb and folder:
            import wandb

            name = folder.resolve().name
            self._wandb = wandb.init(project=config.wandb, name=name, id=_wandb_id(folder), resume="allow")

    def go_back(self, state: RunState) -> None:
        """Remove the lines of steps that are made again."""
        self._file.close()
        self._open_after(state)

    def _open_after(self, state: RunState) -> None:
        """Remove the lines after a state, and open the file to write on."""
        resumed = state.step, state.evaluated_step == state.step
        if self._path.is_file():
            with written_whole(self._path) as aside, self._path.open(encoding="utf-8") as old:
                kept = (line for line in old if _moment(line) <= resumed)
                aside.write_text("".join(kept), encoding="utf-8")
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, Metric]) -> None:
        """Write the metrics of a step; images go to Weights & Biases only."""
        numbers = {name: value for name, value in values.items() if not isinstance(value, np.ndarray)}
        if numbers:
            with errors_name(self._path):
                self._file.write(line_of({"step": step, **numbers}) + "\n")
                self._file.flush()
        if self._board:
            for name, number in numbers.items():
                self._board.add_scalar(name, number, step)
        if self._wandb:
            import wandb

            images = {name: wandb.Image(value) for name, value in values.items() if name not in numbers}
            self._wandb.log(numbers | images, step=step)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError):  # `write` has raised it already
            self._file.close()
        if self._board:
            self._board.close()
        if self._wandb:
            self._wandb.finish(exit_code=int(kind is not None))


def _wandb_id(folder: Path) -> str:
    """Return what Weights & Biases calls the run in this folder, also after a resume."""
    path = require_inside(folder / WANDB, folder)
    if not path.is_file():
        with written_whole(path) as aside:
            aside.write_text(token_hex(8), encoding="utf-8")
    return path.read_text(encoding="utf-8")


def peak_memory(device: torch.device) -> int:
    """Return the most bytes in use: of tensors on CUDA, otherwise resident; 0 where Linux does not tell it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):  # getrusage would count a parent's memory too
        for line in STATUS.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def forget_peak_memory(device: torch.device) -> None:
    """Reset `peak_memory` on CUDA, and return cached memory to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def read_curves(folder: Path) -> dict[str, Curve]:
    """Return the curve of every metric in metrics.jsonl."""
    path = require_inside(folder / METRICS, folder)
    if not path.is_file():
        return {}
    curves: dict[str, Curve] = {}
    with path.open(encoding="utf-8") as file:
        for metrics in map(_metrics, file):
            step = metrics.pop("step", math.inf)
            if not math.isfinite(step):
                continue
            for name, value in metrics.items():
                curves.setdefault(name, []).append((step, value))
    return curves


def _metrics(line: str) -> dict[str, float]:
    """Return the numbers of a line; none of a line that is cut off or no record."""
    with suppress(ValueError, AttributeError):
        return {name: float(value) for name, value in json.loads(line).items() if isinstance(value, int | float)}
    return {}


def _moment(line: str) -> tuple[float, bool]:
    """Return the step of a line, and whether it is of an evaluation, which comes last in a step."""
    metrics = _metrics(line)
    return metrics.get("step", math.inf), any(name.startswith(VALIDATION) for name in metrics)
