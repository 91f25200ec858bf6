"""A net for runs that diverge: steps with exploding gradients are left out; if the loss rises too, the run goes back.

    limit        LIMIT times the median norm of the newest WINDOW gradients, at least `clip_norm`; from step FIRST on
    left out     a step whose norm is above the limit: its gradients count as zero
    gone back    when MANY of the newest WINDOW steps were left out, and the newest losses are WORSE than the median of
                 the window: the newest checkpoint before the first of these steps, at half the learning rates

The limit changes every few steps only, when the norms up to then are known in all processes. All of it is in
`RunState`, so a resume goes on bitwise.
"""

from math import inf
from statistics import median

from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run_state import RunState

WINDOW, LIMIT, MANY, FIRST = 50, 20.0, 10, 200
WORSE = 1.2, 0.05
"""Factor and addition, in nats/dim: with the loss, gradients of another size are no divergence."""


def limit_of(state: RunState) -> float:
    """Return the largest gradient norm with which a step is made."""
    return inf if state.norm_limit is None else state.norm_limit


def add_step(state: RunState, step: int, nats: float, norm: float) -> None:
    """Count the loss and the gradient norm of a step, in the order of steps."""
    state.losses, state.norms = (*state.losses, nats)[-WINDOW:], (*state.norms, norm)[-WINDOW:]
    if norm > limit_of(state):
        state.left_out += 1
        state.left_out_at = (*state.left_out_at, step)


def renew_limit(state: RunState, config: TrainConfig) -> None:
    """Set the limit by the norms so far, and forget steps that were left out long ago."""
    state.left_out_at = tuple(step for step in state.left_out_at if step > state.step - WINDOW)
    if state.step >= FIRST and len(state.norms) == WINDOW:
        state.norm_limit = max(config.clip_norm, LIMIT * median(state.norms))


def goes_back(state: RunState) -> bool:
    """Return True if too many of the newest steps were left out, and the loss is worse."""
    worse = WORSE[0] * median(state.losses) + WORSE[1] if state.losses else inf
    return len(state.left_out_at) >= MANY and median(state.losses[-MANY:]) > worse
