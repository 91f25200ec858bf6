"""A net for runs that diverge: steps with exploding gradients are left out; if the loss rises too, the run goes back.

    limit        LIMIT times the median norm of the newest WINDOW gradients, at least `clip_norm`; from step FIRST on
    left out     a step whose norm is above the limit: its gradients count as zero
    gone back    when MANY of the newest WINDOW steps were left out, and the newest losses are WORSE than the median of
                 the window: the newest checkpoint before the first of these steps, at half the learning rates

The limit changes every few steps only, when the norms up to then are known in all processes. All of it is in
`Counters`, so a resume goes on bitwise.
"""

from math import inf
from statistics import median

from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.config import TrainConfig

WINDOW, LIMIT, MANY, FIRST = 50, 20.0, 10, 200
WORSE = 1.2, 0.05
"""Factor and addition, in nats/dim: with the loss, gradients of another size are no divergence."""


def limit_of(counters: Counters) -> float:
    """Return the largest gradient norm with which a step is made."""
    return inf if counters.norm_limit is None else counters.norm_limit


def add_step(counters: Counters, step: int, nats: float, norm: float) -> None:
    """Count the loss and the gradient norm of a step, in the order of steps."""
    counters.losses, counters.norms = (*counters.losses, nats)[-WINDOW:], (*counters.norms, norm)[-WINDOW:]
    if norm > limit_of(counters):
        counters.left_out += 1
        counters.left_out_at = (*counters.left_out_at, step)


def renew_limit(counters: Counters, config: TrainConfig) -> None:
    """Set the limit by the norms so far, and forget steps that were left out long ago."""
    counters.left_out_at = tuple(step for step in counters.left_out_at if step > counters.step - WINDOW)
    if counters.step >= FIRST and len(counters.norms) == WINDOW:
        counters.norm_limit = max(config.clip_norm, LIMIT * median(counters.norms))


def goes_back(counters: Counters) -> bool:
    """Return True if too many of the newest steps were left out, and the loss is worse."""
    worse = WORSE[0] * median(counters.losses) + WORSE[1] if counters.losses else inf
    return len(counters.left_out_at) >= MANY and median(counters.losses[-MANY:]) > worse
