"""The checkpoints of a run; a resume takes the newest.

RUN/checkpoints/step-00001000/
  model.safetensors      raw weights
  ema.safetensors        EMA weights
  optimizer.safetensors  moments of Adam, momentum of Muon
  state.json             see `run_state`
"""

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as brief
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from axial_transformers.machine import CPU
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.files import folder_written_whole, require_inside
from axial_transformers.storage.model_folders import read_tensors, write_tensors
from axial_transformers.training.optimizer import moments, set_moments
from axial_transformers.training.parallelism import gather_tensors, load_full_tensors
from axial_transformers.training.processes import Processes
from axial_transformers.training.run_folder import require_run
from axial_transformers.training.run_state import STATE, RunState

CHECKPOINTS = "checkpoints"
WEIGHTS, AVERAGE, OPTIMISER = "model.safetensors", "ema.safetensors", "optimizer.safetensors"
KEPT = 2
KEPT_NUMBERS = "left_out", "seconds", "best_step", "best_bits_per_dim"
"""What a run that goes back does not forget."""
Tensors = dict[str, dict[str, Tensor]]
"""By file and name."""


@dataclass
class Weights:
    """The tensors that training changes."""

    model: AxialTransformer
    average: AxialTransformer
    """The EMA weights."""
    optimizers: Sequence[Optimizer]

    def tensors(self) -> Tensors:
        """Return the tensors of each file, in shards if the model is."""
        return {
            WEIGHTS: self.model.state_dict(),
            AVERAGE: self.average.state_dict(),
            OPTIMISER: moments(self.model, self.optimizers),
        }

    def restore(self, tensors: Tensors) -> None:
        """Take over full tensors."""
        load_full_tensors(self.model, tensors[WEIGHTS])
        load_full_tensors(self.average, tensors[AVERAGE])
        set_moments(self.model, self.optimizers, tensors[OPTIMISER])


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest checkpoint of a run."""
    return next(iter(_newest_first(run)), None)


def read_checkpoint(
    run: Path, path: Path, expected: Mapping[str, Mapping[str, Tensor]], identity: dict[str, Any] | None = None
) -> tuple[RunState, Tensors]:
    """Return the state and the tensors of a checkpoint.

    Args:
        expected: tensors of the names and shapes of those to read.
        identity: of the run that the checkpoint must be of; None: any.

    Raises:
        ValueError, OSError: it is of another run, or damaged.
    """
    for name in (STATE, *expected):
        require_inside(path / name, run)
    state = RunState.read(path)
    if state.step != _step(path):
        raise ValueError(f"{path / STATE} is of step {brief(state.step)}")
    if identity is not None:
        _require_same(run, state.identity, identity)
    return state, {name: read_tensors(path / name, tensors) for name, tensors in expected.items()}


def _require_same(run: Path, before: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in sorted(before.keys() | wanted.keys()):
        old = before.get(name)
        new = wanted.get(name)
        if old != new:
            named = name if name in wanted else brief(name)
            raise ValueError(f"{run} cannot be resumed: it has {named} = {brief(old)}, not {brief(new)}")


def raw_weights(folder: str | Path, expected: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Return the name ("step-..") and the raw weights of a run's newest checkpoint.

    Args:
        expected: tensors of the names and shapes of the weights.

    Raises:
        ValueError: the folder has no checkpoints, or the newest one is damaged.
        OSError: a file of the checkpoint is missing.
    """
    run = Path(folder)
    newest = newest_checkpoint(run)
    if not newest:
        raise ValueError(f"{folder} keeps no raw weights: only a run's checkpoints do")
    _, tensors = read_checkpoint(run, newest, {WEIGHTS: expected})
    return newest.name, tensors[WEIGHTS]


class Checkpoints:
    """The checkpoints of one run: the newest two and the best."""

    def __init__(self, run: Path, processes: Processes) -> None:
        self.run = run
        self.processes = processes
        self._began = run.stat() if processes.rank_zero else None

    def require_folder(self) -> None:
        """Raise FileNotFoundError in the first process if the run's folder is no longer where it was."""
        if self._began:
            require_run(self.run, self._began)

    def save(self, weights: Weights, state: RunState) -> None:
        """Write weights and state whole, then remove old checkpoints; a collective operation.

        Raises:
            ValueError: the processes' copies of the weights differ, in any bit.
            OSError: the checkpoint cannot be written, or the run's folder was moved or removed.
        """
        path = self._path(state.step)
        first = self.processes.rank_zero
        files = Tensors()
        if not self.processes.any(first and path.is_dir()):  # otherwise only the state can have changed
            self._require_equal(weights.model, state.step)
            for file, tensors in weights.tensors().items():
                files[file] = gather_tensors(tensors, first, CPU)  # all of them may not fit on the device
        if first:
            self.require_folder()
            before = newest_checkpoint(self.run)
            try:
                self._write(path, state, files)
            except OSError as error:
                rest = f"; {before} is there: make room, then resume" if before else ""
                raise OSError(f"{path} could not be written ({error}){rest}") from error

    def _path(self, step: int) -> Path:
        return self.run / CHECKPOINTS / f"step-{step:08d}"

    def _require_equal(self, model: AxialTransformer, step: int) -> None:
        if self.processes.count == 1:
            return
        digest = _hash_bits(model.state_dict().values())
        if not self.processes.any(digest != self.processes.broadcast(digest)):
            return
        before = newest_checkpoint(self.run) or "the start"
        raise ValueError(
            f"the weights of the {self.processes.count} processes differ after step {step}, and no checkpoint of them "
            f"was kept. Run `axial doctor`; then resume from {before}"
        )

    def _write(self, path: Path, state: RunState, files: Tensors) -> None:
        if not files:
            state.write(path)
        else:
            with folder_written_whole(path) as aside:
                for name, tensors in files.items():
                    write_tensors(aside / name, tensors)
                state.write(aside)
        if state.left_out_at:  # the run may go back
            return
        for old in _newest_first(self.run)[KEPT:]:
            if _step(old) != state.best_step:
                shutil.rmtree(old)

    def restore(self, weights: Weights, state: RunState) -> None:
        """Set weights and state to the newest checkpoint, if there is one; a collective operation.

        The first process reads the tensors for all.

        Raises:
            ValueError: it is of another run (other data, seed, batch size, optimizer or model), or damaged.
            OSError: one of its files is missing.
        """
        newest = newest_checkpoint(self.run)
        step = int(self.processes.broadcast(_step(newest) if newest else -1))
        if step < 0:
            return
        path = self._path(step)
        expected = weights.tensors()
        if self.processes.rank_zero:
            saved, tensors = read_checkpoint(self.run, path, expected, state.identity)
        else:
            saved = RunState.read(path)
            tensors = Tensors()
            for file, own in expected.items():
                tensors[file] = {name: torch.empty(tensor.shape, device="cpu") for name, tensor in own.items()}
        vars(state).update(vars(saved))
        weights.restore(tensors)
        for own in weights.tensors().values():
            self.processes.broadcast_tensors(own.values())
        self.processes.barrier()

    def go_back(self, weights: Weights, state: RunState) -> None:
        """Restore the newest checkpoint before the steps left out, at half the rates; a collective operation.

        Newer checkpoints are removed. Without any checkpoint, only the rates change.
        """
        self.require_folder()
        changed: dict[str, Any] = {name: getattr(state, name) for name in KEPT_NUMBERS}
        changed |= {"rates": state.rates / 2, "left_out_at": ()}
        if self.processes.rank_zero:
            good = self._remove_from(min(state.left_out_at))
            if good:
                replace(RunState.read(good), **changed).write(good)
        self.processes.barrier()
        self.restore(weights, state)
        vars(state).update(changed)

    def _remove_from(self, step: int) -> Path | None:
        """Remove the checkpoints from a step on, but for the oldest of all; return the newest that is left."""
        paths = _newest_first(self.run)
        while len(paths) > 1 and _step(paths[0]) >= step:
            shutil.rmtree(paths.pop(0))
        return newest_checkpoint(self.run)


def _newest_first(run: Path) -> list[Path]:
    folders = (run / CHECKPOINTS).glob("step-*")
    named = [path for path in folders if path.name.removeprefix("step-").isdecimal() and path.is_dir()]
    return sorted(named, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _hash_bits(tensors: Iterable[Tensor]) -> int:
    """Return a hash, below 2^48, of the bits of tensors that are not in shards."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if not isinstance(tensor, DTensor):
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest()[:6])
