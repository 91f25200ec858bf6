"""Figures of a run: read from the device, averaged, written to metrics.jsonl and TensorBoard."""

import importlib.util
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TextIO

import torch
from torch import Tensor

from axial_transformers.costs.machine import peak_memory
from axial_transformers.likelihood.bits import LOG2
from axial_transformers.storage.files import errors_name, written_whole
from axial_transformers.training.checkpoint_record import Counters

SMOOTHING = 0.98
LONGEST_LINE = 1 << 20
VALIDATION = "validation_"
"""What the names of an evaluation's figures begin with."""


class NonFiniteLoss(ValueError):
    """The loss or its gradient became infinite or not a number in the update numbered `step`."""

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class Meter:
    """Collects each step's loss and gradient norm; waits for the device only every `every` steps, to read them.

    Args:
        device: whose memory is watched.
        batch_size: examples of a step.
        every: steps between reads.
        full_speed: examples/s if every operation of the model ran at the rate of matrix products; None: not known.
    """

    def __init__(self, device: torch.device, batch_size: int, every: int, full_speed: float | None = None) -> None:
        self.smooth_bits_per_dim: float | None = None
        self.smooth_seconds_per_step: float | None = None
        self.newest_line: dict[str, float] = {}
        self._device, self._batch_size, self._every, self._full_speed = device, batch_size, every, full_speed
        self._unread: list[tuple[int, Tensor]] = []
        self._read: list[tuple[float, float]] = []
        self._last_read = self._last_line = time.monotonic()
        self._waited = 0.0

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
        seconds = now - self._last_line
        rate = count * self._batch_size / seconds
        self.newest_line = {
            "bits_per_dim": nats / LOG2,
            "nats_per_dim": nats,
            "gradient_norm": norm,
            "examples_per_second": rate,
            **({"model_flop_utilisation": rate / self._full_speed} if self._full_speed else {}),
            "data_wait_share": self._waited / seconds,
            "peak_memory_bytes": peak_memory(self._device),
        }
        self._read, self._last_line, self._waited = [], now, 0.0
        return self.newest_line

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time spent in here is a step's, but waits for examples."""
        start = time.monotonic()
        yield
        self._waited += time.monotonic() - start

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

    A log without a folder goes nowhere: only one of several processes speaks. Lines of what comes again, since their
    process did not live to its next checkpoint, are removed.
    """

    def __init__(self, folder: Path | None, counters: Counters, tensorboard: bool) -> None:
        resumed = counters.step, counters.evaluated_step == counters.step
        self._path = Path(os.devnull) if folder is None else folder / "metrics.jsonl"
        if self._path.is_file():
            with written_whole(self._path) as aside, self._path.open(errors="replace") as old, aside.open("w") as new:
                new.writelines(line for line in _lines(old) if _moment(line) <= resumed)
        self._file = self._path.open("a")
        self._board = None
        if tensorboard and folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=counters.step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line.

        Raises:
            OSError: the disk is full.
        """
        with errors_name(self._path):
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
        with suppress(OSError):  # what was not written has been said
            self._file.close()
        if self._board:
            self._board.close()


def check_tensorboard() -> None:
    """Raises ValueError where TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("tensorboard=True needs an extra: pip install 'axial-transformers[tensorboard]'")


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new


def _lines(file: TextIO) -> Iterator[str]:
    return iter(lambda: file.readline(LONGEST_LINE), "")


def _moment(line: str) -> tuple[float, bool]:
    """The step of a line, and whether it is of an evaluation, the last thing of a step."""
    try:
        figures = json.loads(line)
        return float(figures["step"]), any(name.startswith(VALIDATION) for name in figures)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # cut off, or not of this log
        return math.inf, True
