"""How far a run has come, on stderr."""

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import Meter
from axial_transformers.training.record import Counters

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """A bar on a terminal; elsewhere a plain line every half minute."""

    def __init__(self, config: TrainConfig, counters: Counters, speaks: bool) -> None:
        self._config, self._speaks = config, speaks
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not (speaks and console.is_terminal),
        )
        self._task = self._bar.add_task("", total=config.steps, completed=counters.step)
        self._last_line = time.monotonic()

    def update(self, counters: Counters, meter: Meter) -> None:
        """Show the figures of now."""
        if not self._speaks:
            return
        if not self._bar.disable:
            self._bar.update(self._task, completed=counters.step, description=self._figures(counters, meter))
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(f"step {counters.step}/{self._config.steps}  {self._figures(counters, meter)}")

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar.disable:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text, highlight=False, markup=False)

    def _figures(self, counters: Counters, meter: Meter) -> str:
        if meter.smooth_bits_per_dim is None or not meter.smooth_seconds_per_step:
            return ""
        left = (self._config.steps - counters.step) * meter.smooth_seconds_per_step
        if self._config.time_limit is not None:
            left = min(left, max(0.0, self._config.time_limit * 60 - counters.seconds))
        rate = 1 / meter.smooth_seconds_per_step
        return (
            f"{meter.smooth_bits_per_dim:.3f} bits/dim  {rate:.3g} steps/s  "
            f"{rate * self._config.batch_size:.0f} examples/s  {_machine(meter.newest_line)}"
            f"{timedelta(seconds=round(left))} left"
        )

    def __enter__(self) -> "ProgressDisplay":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def _machine(line: Mapping[str, float]) -> str:
    """How well the machine was used, as metrics.jsonl last said; nothing before it did."""
    if not line:
        return ""
    utilisation = line.get("model_flop_utilisation")
    return (
        "" if utilisation is None else f"{utilisation:.0%} MFU  "
    ) + f"{line['peak_memory_bytes'] / 1e9:.1f} GB  {line['data_wait_share']:.0%} waiting for data  "
