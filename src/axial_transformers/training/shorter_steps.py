"""Make steps shorter where a time limit would end a run after too few of them."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

import torch

from axial_transformers.models.baselines.by_name import build
from axial_transformers.planning.machine import Machine, matmul_rate
from axial_transformers.training.batches import TrainingExamples
from axial_transformers.training.plan import costs_of, narrower, resolved
from axial_transformers.training.processes import Processes
from axial_transformers.training.run_config import RunConfig
from axial_transformers.training.step import prepared
from axial_transformers.training.step_time import SHARE

MIN_STEPS = 100
"""Steps that a time limit should leave."""
SHARE_OF_STEPS = 1 / 2
"""Of a time limit, for gradients: the rest is for planning, the optimizer, evaluations and samples."""


def shorter(
    run: RunConfig, open: Collection[str], machine: Machine, examples: TrainingExamples
) -> tuple[RunConfig, bool]:
    """Return the run with steps that are short for its time limit, and True if MIN_STEPS of them fit.

    Half the batch and half the width in turn: the first one whose gradients are measured to be fast enough. One that
    would be too slow at half the rate of large matrix products is not measured.

    Args:
        open: names of settings that may change; without any, nothing is measured.
    """
    device, limit = run.training.torch_device(), run.training.time_limit
    processes = Processes(device)
    if limit is None or processes.count > 1 or not {*open} & {"training.batch_size", "model.dim"}:
        return run, True
    limit *= SHARE_OF_STEPS / MIN_STEPS  # minutes of a step
    half = resolved(run.training, machine).precision == "bfloat16"
    rate = matmul_rate(device, torch.bfloat16 if half else torch.float32) / 2
    for each in _smaller(run, open):
        # `prepared` refuses a step that takes more than SHARE of the time limit
        run, eager = each, replace(each.training, compile=False, time_limit=limit / SHARE)
        if costs_of(run, machine).flops <= 60 * limit * rate:
            with suppress(ValueError):  # too slow
                prepared(build(run.model), examples, resolved(eager, machine), processes).close()
                return run, True
    return run, False


def _smaller(run: RunConfig, open: Collection[str]) -> Iterator[RunConfig]:
    """Yield the run, then runs with less and less work in a step."""
    yield run
    before = None
    while run is not before:
        before, batch = run, run.training.batch_size // 2
        if "training.batch_size" in open and batch and batch % run.training.accumulate == 0:
            run = replace(run, training=replace(run.training, batch_size=batch))
            yield run
        if "model.dim" in open and (model := narrower(run.model)):
            run = replace(run, model=model)
            yield run
