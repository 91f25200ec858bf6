"""Figures of a run: read from the device, averaged, written to metrics.jsonl and TensorBoard."""

import importlib.util
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from axial_transformers.files import written_whole
from axial_transformers.likelihood import LOG2

SMOOTHING = 0.98


class NonFiniteLoss(ValueError):
    """The loss or its gradient became infinite or not a number in the update numbered `step`."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class Meter:
    """Collects each step's loss and gradient norm; waits for the device only every `every` steps, to read them."""

    def __init__(self, batch_size: int, every: int) -> None:
        self.smooth_bits_per_dim: float | None = None
        self.smooth_seconds_per_step: float | None = None
        self._batch_size = batch_size
        self._every = every
        self._unread: list[tuple[int, Tensor]] = []
        self._read: list[tuple[float, float]] = []
        self._last_read = self._last_line = time.monotonic()

    def add(self, step: int, nats_per_dim: Tensor, gradient_norm: Tensor) -> None:
        """Take the scalars of a step.

        Raises:
            NonFiniteLoss: those of this step, or of one not yet read, are not finite.
        """
        self._unread.append((step, torch.stack((nats_per_dim, gradient_norm))))
        if len(self._unread) >= self._every:
            self.read()

    def read(self) -> None:
        """Read what was added.

        Raises:
            NonFiniteLoss: as for `add`.
        """
        if not self._unread:
            return
        steps, scalars = zip(*self._unread, strict=True)
        self._unread = []
        for step, (nats, norm) in zip(steps, torch.stack(scalars).tolist(), strict=True):
            if not (math.isfinite(nats) and math.isfinite(norm)):
                raise NonFiniteLoss(step, f"step {step} has a loss of {nats:g} with a gradient of norm {norm:g}")
            self._read.append((nats, norm))
            self.smooth_bits_per_dim = _smooth(self.smooth_bits_per_dim, nats / LOG2)
        now = time.monotonic()
        self.smooth_seconds_per_step = _smooth(self.smooth_seconds_per_step, (now - self._last_read) / len(steps))
        self._last_read = now

    def line(self) -> dict[str, float]:
        """Means over the steps since the line before."""
        self.read()
        now, count = time.monotonic(), len(self._read)
        nats, norm = (sum(each) / count for each in zip(*self._read, strict=True))
        rate = count * self._batch_size / (now - self._last_line)
        self._read, self._last_line = [], now
        return {
            "bits_per_dim": nats / LOG2,
            "nats_per_dim": nats,
            "gradient_norm": norm,
            "examples_per_second": rate,
        }

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent in here counts as no step's."""
        self.read()
        start = time.monotonic()
        yield
        away = time.monotonic() - start
        self._last_read += away
        self._last_line += away


class MetricsLog:
    """RUN/metrics.jsonl (one object a line, each with its step), and TensorBoard's files in RUN/tensorboard if asked.

    A log without a folder goes nowhere: only one of several processes speaks. Lines after `step`, written by a process
    that did not live to its next checkpoint, are removed.
    """

    def __init__(self, folder: Path | None, step: int, tensorboard: bool) -> None:
        path = Path(os.devnull) if folder is None else folder / "metrics.jsonl"
        if path.is_file():
            lines = [line for line in path.read_text().splitlines(keepends=True) if _step(line) <= step]
            with written_whole(path) as aside:
                aside.write_text("".join(lines))
        self._file = path.open("a")
        self._board = None
        if tensorboard and folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._board:
            self._board.close()


def check_tensorboard() -> None:
    """Raises ValueError where TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("tensorboard=True needs an extra: pip install 'axial-transformers[tensorboard]'")


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except ValueError:  # cut off in the middle
        return math.inf
