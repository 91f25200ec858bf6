"""Where a run is: its numbers, which a checkpoint keeps in state.json beside the tensors; its time.

Steps with exploding gradients are left out. If the loss rises too, the run goes back:

    limit        LIMIT times the median norm of the newest WINDOW gradients, at least `clip_norm`; from step FIRST on
    left out     a step whose norm is above the limit: its gradients count as zero
    gone back    when MANY of the newest WINDOW steps were left out, and the newest losses are WORSE than the median of
                 the window: the newest checkpoint before the first of these steps, at half the learning rates

The limit changes every few steps only, when the norms up to then are known in all processes. All of it is in
`RunState`, so a resume goes on bitwise.
"""

import time
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

from axial_transformers.storage.typed_json import from_json, read_object, write_object
from axial_transformers.training.config import TrainConfig

STATE = "state.json"
WINDOW, LIMIT, MANY, FIRST = 50, 20.0, 10, 200
WORSE = 1.2, 0.05
"""Factor and addition, in nats/dim: with the loss, gradients of another size are no divergence."""
Ending = Literal["finished", "time limit", "interrupted"]


@dataclass
class RunState:
    """The numbers of a run, equal in all its processes: what `train` returns, and what a checkpoint keeps."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Wall-clock time, over all resumes."""
    ending: Ending | None = None
    """All steps made, time limit reached, or SIGINT or SIGTERM, after which `resume` continues; None: not ended."""
    best_step: int | None = None
    """Step of the exported, best EMA weights; None without an evaluation."""
    best_bits_per_dim: float | None = None
    evaluated_step: int | None = None
    """Step at which the EMA weights were last evaluated."""
    unlogged_steps: int = 0
    """Steps since the last line of metrics.jsonl; the next two are sums over these."""
    unlogged_nats: float = 0.0
    unlogged_norms: float = 0.0
    losses: tuple[float, ...] = ()
    """The newest losses, in nats/dim; the next five, too, tell whether the run diverges (see the top of this file)."""
    norms: tuple[float, ...] = ()
    norm_limit: float | None = None
    """Largest gradient norm with which a step is made; None: any."""
    left_out: int = 0
    """Steps left out."""
    left_out_at: tuple[int, ...] = ()
    """The newest of them."""
    rates: float = 1.0
    """Factor of all learning rates."""
    identity: dict[str, Any] = field(default_factory=dict)
    """Data, seed, batch size, optimizer and model: what must not change over a run's life."""

    def write(self, folder: Path) -> None:
        """Write state.json."""
        write_object(folder / STATE, vars(self))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read state.json; ValueError for other names or types."""
        path = folder / STATE
        return from_json(cls, read_object(path, "a training state"), path)


def add_step(state: RunState, step: int, nats: float, norm: float) -> None:
    """Count the loss and the gradient norm of a step, in the order of steps."""
    state.losses = (*state.losses, nats)[-WINDOW:]
    state.norms = (*state.norms, norm)[-WINDOW:]
    if norm > (state.norm_limit or inf):
        state.left_out += 1
        state.left_out_at = (*state.left_out_at, step)


def renew_limit(state: RunState, config: TrainConfig) -> None:
    """Set the limit by the norms so far, and forget steps that were left out long ago."""
    state.left_out_at = tuple(step for step in state.left_out_at if step > state.step - WINDOW)
    if state.step >= FIRST and len(state.norms) == WINDOW:
        state.norm_limit = max(config.clip_norm, LIMIT * median(state.norms))


def must_go_back(state: RunState) -> bool:
    """Return True if too many of the newest steps were left out, and the loss is worse."""
    if len(state.left_out_at) < MANY:
        return False
    factor, addition = WORSE
    return median(state.losses[-MANY:]) > factor * median(state.losses) + addition


class TimeLimit:
    """A clock that starts when a run begins or goes on.

    When the limit is reached, the steps end, and the learning rate is zero if its schedule falls. The last evaluation
    and samples come after.

    Args:
        minutes: for the steps, with the evaluations and samples between them; None: no limit.
        spent: seconds before a resume.
    """

    def __init__(self, minutes: float | None = None, spent: float = 0.0) -> None:
        self._limit = inf if minutes is None else 60 * minutes
        self._zero = time.monotonic() - spent

    @property
    def seconds(self) -> float:
        """The wall-clock time of the run until now."""
        return time.monotonic() - self._zero

    def share(self, seconds: float) -> float:
        """Return which share of the time for the steps is used after some seconds; 0 without a limit, at most 1."""
        return min(1.0, seconds / self._limit)

    def left(self, steps: int, seconds_per_step: float) -> float:
        """Return about the seconds that some more steps take, at most those of the limit."""
        return max(0.0, min(steps * seconds_per_step, self._limit - self.seconds))
