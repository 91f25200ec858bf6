"""Make steps shorter where a time limit would end a run after too few of them."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import torch

from axial_transformers.layers.blocks import checkpoint_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models.baselines.by_name import build
from axial_transformers.planning.machine import Machine, matmul_rate
from axial_transformers.training.batches import TrainingExamples
from axial_transformers.training.parallelism import Objective
from axial_transformers.training.plan import costs_of, narrower, options_between, plan
from axial_transformers.training.processes import Processes
from axial_transformers.training.run_config import RunConfig
from axial_transformers.training.step_time import step_seconds

MIN_STEPS = 100
"""Steps that a time limit should leave."""
SHARE_OF_GRADIENTS = 2 / 3
"""Of a time limit: the rest is for the optimizer, evaluations and samples."""


def shorter(
    run: RunConfig, open: Collection[str], machine: Machine, examples: TrainingExamples
) -> tuple[RunConfig, bool]:
    """Return the run with steps that are short for its time limit, and True if MIN_STEPS of them fit.

    Half the batch and half the width in turn, then one layer for each axis: the first that is measured to be short.
    A model whose FLOPs would take too long at the measured rate is not measured.

    Args:
        open: names of settings that may change; without any, nothing is measured.
    """
    device, limit = run.training.torch_device(), run.training.time_limit
    processes = Processes(device)
    if limit is None or processes.count > 1 or not {*open} & {"training.batch_size", "model.dim"}:
        return run, True
    most = 60 * limit * SHARE_OF_GRADIENTS / MIN_STEPS
    half = plan(run, machine).training.precision == "bfloat16"
    rate = matmul_rate(device, torch.bfloat16 if half else torch.float32)
    for each in _smaller(run, open):
        run, planned = each, plan(each, machine)
        if (flops := costs_of(planned, machine).flops) > rate * most:
            continue
        model = build(planned.model).to(device).train()
        if planned.training.checkpoint_blocks:
            checkpoint_blocks(model)
        eager = replace(planned.training, compile=False)
        objective = Objective(model, random_slice_loss)
        seconds, share = step_seconds(objective, examples, model, eager, processes, most)
        if seconds <= most:
            return run, True
        rate = min(rate, share * flops / seconds)
    return run, False


def _smaller(run: RunConfig, open: Collection[str]) -> Iterator[RunConfig]:
    """Yield the run, then runs with less and less work in a step."""
    yield run
    before = None
    while run is not before:
        before, training = run, run.training
        half = training.batch_size // 2
        if "training.batch_size" in open and half and half % training.accumulate == 0:
            run = replace(run, training=replace(training, batch_size=half))
            yield run
        if "model.dim" in open and (model := narrower(run.model)):
            run = replace(run, model=model)
            yield run
    axes = len(run.model.bijection.shape)
    if "model.outer_layers" in open:
        yield replace(run, model=replace(run.model, outer_layers=tuple(axes - level for level in range(axes - 1))))


def changes_for_time(run: RunConfig, wanted: RunConfig) -> str:
    """Return in words what `shorter` changed, and how to refuse; "" if it changed nothing."""
    words = options_between(run, wanted)
    why = f"--training.time-limit {run.training.time_limit:g} is too short for {MIN_STEPS} steps"
    return words and f"{why} with defaults: set {words}; what you set yourself is kept"
