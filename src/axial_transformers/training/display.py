"""The figures that a run shows beside its progress."""

from collections.abc import Mapping
from datetime import timedelta

from axial_transformers.training.checkpoint_record import Counters
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import Meter


def figures(config: TrainConfig, counters: Counters, meter: Meter) -> str:
    """Bits/dim, rates, use of the machine, time left; nothing before the first step was measured."""
    if meter.smooth_bits_per_dim is None or not meter.smooth_seconds_per_step:
        return ""
    left = (config.steps - counters.step) * meter.smooth_seconds_per_step
    if config.time_limit is not None:
        left = min(left, max(0.0, config.time_limit * 60 - counters.seconds))
    rate = 1 / meter.smooth_seconds_per_step
    return (
        f"{meter.smooth_bits_per_dim:.3f} bits/dim  {rate:.3g} steps/s  "
        f"{rate * config.batch_size:.0f} examples/s  {_machine(meter.newest_line)}"
        f"{timedelta(seconds=round(left))} left"
    )


def _machine(line: Mapping[str, float]) -> str:
    """How well the machine was used, as metrics.jsonl last said; nothing before it did."""
    if not line:
        return ""
    utilisation = line.get("model_flop_utilisation")
    return (
        "" if utilisation is None else f"{utilisation:.0%} MFU  "
    ) + f"{line['peak_memory_bytes'] / 1e9:.1f} GB  {line['data_wait_share']:.0%} waiting for data  "
