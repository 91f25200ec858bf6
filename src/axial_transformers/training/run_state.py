"""Where a run is: its numbers, which a checkpoint keeps in state.json beside the tensors."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from axial_transformers.storage.files import written_whole
from axial_transformers.storage.typed_json import from_json, read_object

STATE = "state.json"
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
    """The newest losses, in nats/dim; see `divergence`, as for the next five."""
    norms: tuple[float, ...] = ()
    norm_limit: float | None = None
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
        with written_whole(folder / STATE) as aside:
            aside.write_text(json.dumps(vars(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read state.json; ValueError for other names or types."""
        path = folder / STATE
        content = read_object(path, "a training state")
        identity = content.pop("identity", None)
        if not isinstance(identity, dict):
            raise ValueError(f"{path} names no run")
        return replace(from_json(cls, content, path), identity=identity)
