"""Make a run fit a machine: a step must fit into the free memory of its devices."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice

from axial_transformers.models import AxialTransformerConfig
from axial_transformers.planning.costs import Costs
from axial_transformers.planning.machine import Machine
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run_config import CHANGEABLE, RunConfig

MIN_DIM = 32


def plan(run: RunConfig, machine: Machine, begun: TrainConfig | None = None) -> RunConfig:
    """Return the run without `auto` and with nothing open, so that a step fits the machine.

    If a step does not fit, change the settings of `CHANGEABLE` that are open. Divide the batch. If that is not enough,
    also recompute blocks. If that is not enough, also halve the model's width, again and again.

    Args:
        begun: the settings of the run to resume: precision and compilation stay, and `CHANGEABLE` does not apply.

    Raises:
        ValueError: a step would not fit; the message lists options with which it would. Or the batch does not divide
            among the devices, or this machine lacks the device.
    """
    run = replace(run, training=resolved(run.training, machine, begun))
    wanted = costs_of(run, machine)
    if not wanted.fits:
        open = [] if begun else [name for name in CHANGEABLE if name in run.open]
        found = next(_fitting(run, machine, open), None)
        if found is None:
            raise ValueError(f"{wanted.shortage}: {_advice(run, machine, begun is None)}")
        run = found
    return replace(run, open=())


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


def _advice(run: RunConfig, machine: Machine, new_weights: bool) -> str:
    """Return in words what would make a step fit: all ways that keep the model, or else the largest smaller model.

    Args:
        new_weights: False for a resume, whose model cannot get smaller.
    """
    offered = CHANGEABLE if new_weights and not run.start_from else CHANGEABLE[:2]
    same_model = [*_fitting(run, machine, CHANGEABLE[:2])]
    would = [options_between(other, run) for other in same_model or islice(_fitting(run, machine, offered), 1)]
    return f"{' or '.join(would)} would fit" if would else "make the examples smaller (--data.size, --data.frames)"


def changes(planned: RunConfig, wanted: RunConfig, machine: Machine) -> str:
    """Return in words what `plan` changed to make a step fit, and why; "" if it changed nothing."""
    words, old = options_between(planned, wanted), wanted.training
    training = replace(planned.training, accumulate=old.accumulate, checkpoint_blocks=old.checkpoint_blocks)
    before = replace(planned, model=wanted.model, training=training)
    return words and f"{costs_of(before, machine).shortage}: set {words}"


def options_between(run: RunConfig, before: RunConfig) -> str:
    """Return the options of the command line that lead to a run from the one `before`."""
    words = []
    if isinstance(size := run.data.size, tuple) and size != before.data.size:
        words.append(f"--data.size {' '.join(map(str, size))}")
    elif size != before.data.size:
        words.append(f"--data.size {size} --data.fit {run.data.fit}")
    if run.training.batch_size != before.training.batch_size:
        words.append(f"--training.batch-size {run.training.batch_size}")
    if run.training.accumulate != before.training.accumulate:
        words.append(f"--training.accumulate {run.training.accumulate}")
    if run.training.checkpoint_blocks and not before.training.checkpoint_blocks:
        words.append("--training.checkpoint-blocks")
    if run.model.dim != before.model.dim:
        words.append(f"--model.dim {run.model.dim} --model.heads {run.model.heads}")
    return " ".join(words)


def _fitting(run: RunConfig, machine: Machine, changeable: Collection[str]) -> Iterator[RunConfig]:
    """Yield runs that fit: for each of `_savings`, the one that divides a batch into the fewest parts."""
    training, share = run.training, run.training.batch_size // machine.devices
    parts = [training.accumulate]
    if "training.accumulate" in changeable:
        parts = [count for count in range(training.accumulate, share + 1) if share % count == 0]
    for model, recompute in _savings(run, changeable):
        runs = [
            replace(run, model=model, training=replace(training, accumulate=count, checkpoint_blocks=recompute))
            for count in parts
        ]
        if costs_of(runs[-1], machine).fits:  # the most parts need the least memory
            yield next(each for each in runs if costs_of(each, machine).fits)


def _savings(run: RunConfig, changeable: Collection[str]) -> Iterator[tuple[AxialTransformerConfig, bool]]:
    """Yield (model, recompute), with less and less memory: as wanted; recompute; then half the dim, again and again."""
    model, recompute = run.model, run.training.checkpoint_blocks
    yield model, recompute
    if "training.checkpoint_blocks" in changeable and not recompute:
        recompute = True
        yield model, recompute
    while "model.dim" in changeable and (smaller := narrower(model)):
        model = smaller
        yield model, recompute


def narrower(model: AxialTransformerConfig) -> AxialTransformerConfig | None:
    """Return the model with half the width, and half the heads if they are even; None if it is narrow already."""
    dim, heads = model.dim // 2, model.heads // (2 if model.heads % 2 == 0 else 1)
    return None if model.dim % 4 or dim < MIN_DIM or dim % heads else replace(model, dim=dim, heads=heads)
