"""A net for runs that diverge: a step whose gradients explode is left out.

    limit        LIMIT times the median norm of the newest WINDOW gradients, at least `clip_norm`; from step FIRST on
    left out     a step whose norm is above the limit: its gradients count as zero

The limit changes every few steps only, when the norms up to then are known in all processes. All of it is in
`RunState`, so a resume goes on bitwise.
"""

from math import inf
from statistics import median

from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run_state import RunState

WINDOW, LIMIT, FIRST = 50, 20.0, 200


def limit_of(state: RunState) -> float:
    """Return the largest gradient norm with which a step is made."""
    return inf if state.norm_limit is None else state.norm_limit


def add_norm(state: RunState, norm: float) -> None:
    """Count the gradient norm of a step, in the order of steps."""
    state.norms = (*state.norms, norm)[-WINDOW:]
    state.left_out += norm > limit_of(state)


def renew_limit(state: RunState, config: TrainConfig) -> None:
    """Set the limit by the norms so far."""
    if state.step >= FIRST and len(state.norms) == WINDOW:
        state.norm_limit = max(config.clip_norm, LIMIT * median(state.norms))
