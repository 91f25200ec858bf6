"""A net for runs that diverge: steps with exploding gradients are left out; after many, the run goes back.

    limit        LIMIT times the median norm of the newest WINDOW gradients, and at least `clip_norm`
    left out     a step whose norm is above the limit: its gradients count as zero
    gone back    when MANY of the newest WINDOW steps were left out: the newest checkpoint before the first of them,
                 at half the learning rates

The limit changes every few steps only, when the norms up to then are known in all processes. All of it is in
`Counters`, so a resume goes on bitwise.
"""

from math import inf
from statistics import median

from axial_transformers.training.checkpoints import Counters
from axial_transformers.training.config import TrainConfig

WINDOW, LIMIT, MANY = 50, 20.0, 10


def limit_of(counters: Counters) -> float:
    """Return the largest gradient norm with which a step is made."""
    return inf if counters.norm_limit is None else counters.norm_limit


def add_norm(counters: Counters, step: int, norm: float) -> None:
    """Count the gradient norm of a step, in the order of steps."""
    counters.norms = (*counters.norms, norm)[-WINDOW:]
    if norm > limit_of(counters):
        counters.left_out += 1
        counters.left_out_at = tuple(each for each in (*counters.left_out_at, step) if each > step - WINDOW)


def renew_limit(counters: Counters, config: TrainConfig) -> None:
    """Set the limit by the norms so far; there is none before WINDOW steps."""
    if len(counters.norms) == WINDOW:
        counters.norm_limit = max(config.clip_norm, LIMIT * median(counters.norms))


def goes_back(counters: Counters) -> bool:
    """Return True if too many of the newest steps were left out."""
    return sum(each > counters.step - WINDOW for each in counters.left_out_at) >= MANY
