"""Refuse a run whose step does not fit the free memory of its devices."""

from collections.abc import Iterator
from dataclasses import replace

from axial_transformers.planning.costs import Costs
from axial_transformers.planning.machine import Machine
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run_config import RunConfig


def plan(run: RunConfig, machine: Machine, begun: TrainConfig | None = None) -> RunConfig:
    """Return the run without `auto` and with nothing open; nothing that changes its results depends on the machine.

    Args:
        begun: the settings of the run to resume: its precision and compilation stay.

    Raises:
        ValueError: a step would not fit; the message lists options with which it would. Or the batch does not divide
            among the devices, or this machine lacks the device.
    """
    run = replace(run, training=resolved(run.training, machine, begun), open=())
    costs = costs_of(run, machine)
    if not costs.fits:
        would = " or ".join(_fitting(run, machine))
        narrower = "" if begun or run.start_from else "the model smaller (--model.dim) or "
        smaller = f"make {narrower}the examples smaller (--data.size, --data.frames)"
        raise ValueError(f"{costs.shortage}: {would + ' would fit' if would else smaller}")
    return run


def resolved(training: TrainConfig, machine: Machine, begun: TrainConfig | None = None) -> TrainConfig:
    """Return settings without `auto`. A machine other than this one gets bfloat16."""
    if machine.is_this:
        return training.resolve_auto(begun)
    return replace(training, precision="bfloat16") if training.precision == "auto" else training


def costs_of(run: RunConfig, machine: Machine, examples: int | None = None) -> Costs:
    """Return what a step of a run needs on a machine.

    Args:
        examples: number of training examples, if known.
    """
    return Costs(model=run.model, training=run.training, machine=machine, examples=examples)


def _fitting(run: RunConfig, machine: Machine) -> Iterator[str]:
    """Yield options with which a step fits: the fewest parts of a batch, blocks kept or recomputed."""
    training, share = run.training, run.training.batch_size // machine.devices
    parts = [count for count in range(training.accumulate, share + 1) if share % count == 0]
    for again in sorted({training.checkpoint_blocks, True}):
        for count in parts:
            other = replace(run, training=replace(training, accumulate=count, checkpoint_blocks=again))
            if costs_of(other, machine).fits:
                divided = [f"--training.accumulate {count}"] if count > training.accumulate else []
                recomputed = ["--training.checkpoint-blocks"] if again and not training.checkpoint_blocks else []
                yield " ".join([*divided, *recomputed])
                break
