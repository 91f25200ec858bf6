"""The state of a run and its checkpoints; a resume takes the newest intact one.

RUN/checkpoints/step-00001000/
  model.safetensors      raw weights
  ema.safetensors        EMA weights
  optimizer.safetensors  moments of Adam, momentum of Muon
  state.json             counters, identity of the run, SHA-256 of the files above
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from reprlib import repr as brief
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from axial_transformers.models import AxialTransformer
from axial_transformers.storage.files import folder_written_whole, require_inside, written_whole
from axial_transformers.storage.model_folders import read_tensors, write_tensors
from axial_transformers.storage.typed_json import from_json, read_object
from axial_transformers.training.optimizer import expected_moments, moments, set_moments
from axial_transformers.training.parallelism import full_tensors, load_full_tensors
from axial_transformers.training.processes import Processes

RECORD = "state.json"


@dataclass
class Counters:
    """The numbers of a run's state."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Wall-clock time, over all resumes."""
    clock: float = 0.0
    """The same, as the learning rate counts it: equal in all processes."""
    evaluated_step: int | None = None
    """Step at which the EMA weights were last evaluated."""
    best_step: int | None = None
    """Step at which they were best."""
    best_bits_per_dim: float | None = None
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


@dataclass(frozen=True)
class CheckpointRecord:
    """The content of state.json, which also has its own SHA-256."""

    counters: Counters
    identity: dict[str, Any]
    """Data, seed, batch size, optimizer and model: what must not change over a run's life."""
    files: dict[str, str]
    """SHA-256 of each of the other files."""

    def write(self, folder: Path) -> None:
        content = {"counters": vars(self.counters), "identity": self.identity, "files": self.files}
        with written_whole(folder / RECORD) as aside:
            text = json.dumps({**content, "sha256": _sha256_of_json(content)}, indent=2) + "\n"
            aside.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "CheckpointRecord":
        content = read_object(folder / RECORD, "a training state")
        if content.pop("sha256", None) != _sha256_of_json(content):
            raise ValueError(f"{RECORD} is not what was written")
        counters = from_json(Counters, content.get("counters"), RECORD)
        identity, files = content.get("identity"), content.get("files")
        if not isinstance(identity, dict) or not isinstance(files, dict):
            raise ValueError(f"{RECORD} names no run, or no files")
        return cls(counters, identity, files)


def _sha256_of_json(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


CHECKPOINTS = "checkpoints"
WEIGHTS, AVERAGE, OPTIMISER = "model.safetensors", "ema.safetensors", "optimizer.safetensors"
KEPT = 2
CHUNK = 1 << 18
"""Words that are hashed at a time; bounds the memory."""


def in_background(device: torch.device) -> bool:
    """Return True where training goes on while a checkpoint is written: a CPU would need room for a copy."""
    return device.type != "cpu"


@dataclass
class State:
    """Everything that training changes."""

    model: AxialTransformer
    average: AxialTransformer
    optimizers: Sequence[Optimizer]
    counters: Counters = field(default_factory=Counters)

    def tensors(self, keep: bool = True, copy: bool = False) -> dict[str, dict[str, Tensor]]:
        """Return the full tensors of each file, on the CPU: they may not fit on the device; a collective operation.

        A process that does not `keep` them gets none. With `copy`, none is a tensor of the state itself.
        """
        host = torch.device("cpu")
        return {file: full_tensors(tensors, keep, host, copy) for file, tensors in self.held().items()}

    def held(self) -> dict[str, dict[str, Tensor]]:
        return {
            WEIGHTS: self.model.state_dict(),
            AVERAGE: self.average.state_dict(),
            OPTIMISER: moments(self.model, self.optimizers),
        }

    def expected(self) -> dict[str, Mapping[str, Tensor]]:
        return {
            WEIGHTS: self.model.state_dict(),
            AVERAGE: self.average.state_dict(),
            OPTIMISER: expected_moments(self.model, self.optimizers),
        }

    def restore(self, tensors: dict[str, dict[str, Tensor]], counters: Counters) -> None:
        load_full_tensors(self.model, tensors[WEIGHTS])
        load_full_tensors(self.average, tensors[AVERAGE])
        set_moments(self.model, self.optimizers, tensors[OPTIMISER])
        vars(self.counters).update(vars(counters))


class OtherRun(ValueError):
    """A checkpoint is not of the run to resume."""


class Checkpoint(NamedTuple):
    """An intact checkpoint, read."""

    path: Path
    counters: Counters
    tensors: dict[str, dict[str, Tensor]]


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest checkpoint of a run, intact or not."""
    return next(iter(_newest_first(run)), None)


def newest_intact(
    run: Path,
    expected: Mapping[str, Mapping[str, Tensor]],
    check_identity: Callable[[dict[str, Any]], None] = lambda identity: None,
) -> tuple[Checkpoint | None, dict[Path, Exception]]:
    """Return the newest intact checkpoint with tensors as `expected`, and why newer ones are damaged."""
    damaged: dict[Path, Exception] = {}
    for path in _newest_first(run):
        try:
            record = CheckpointRecord.read(_file(run, path / RECORD).parent)
            check_identity(record.identity)
            tensors = {name: _read(_file(run, path / name), record, tensors) for name, tensors in expected.items()}
            return Checkpoint(path, record.counters, tensors), damaged
        except OtherRun:
            raise
        except (OSError, ValueError, RecursionError) as error:
            damaged[path] = error
    if damaged:
        newest = next(iter(damaged.values()))
        raise OSError(f"{run / CHECKPOINTS} holds no intact checkpoint ({newest}): remove it to start again")
    return None, damaged


class Checkpoints:
    """The checkpoints of one run: the newest two, in case one is damaged, and the best.

    Where training goes on meanwhile (`in_background`), a thread of the first process writes one after the other.
    """

    def __init__(self, run: Path, identity: dict[str, Any], processes: Processes) -> None:
        self.run, self.processes = run, processes
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._step = -1  # of the newest, which may not be written yet
        self._writer = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def save(self, state: State) -> None:
        """Write the state whole, then remove old checkpoints; a collective operation.

        Raises:
            ValueError: the processes' copies of the weights differ, in any bit.
            OSError: the checkpoint cannot be written; or the one before, if that was written in the background.
        """
        step, files, overlap = state.counters.step, None, in_background(self.processes.device)
        if step != self._step:  # else they are written, or the thread is about to
            self.wait()
            count, weights = self.processes.count, state.model.state_dict().values()
            if count > 1 and not self.processes.agree(_digest_of_copies(weights, self.processes.device)):
                before = newest_checkpoint(self.run) or "the start"
                raise ValueError(
                    f"the weights of the {count} processes differ after step {step}, and no checkpoint of them was "
                    f"kept. Run `axial doctor`; then resume from {before}"
                )
            files = state.tensors(keep=self.processes.rank_zero, copy=overlap)
        self._step = step
        if self.processes.rank_zero:
            write = partial(self._write, self._written, replace(state.counters), files)
            if overlap:
                self._written = self._writer.submit(write)
            else:
                write()

    def wait(self) -> None:
        """Wait until every checkpoint is written; a collective operation.

        Raises:
            OSError: one could not be written.
        """
        if self._written:
            self._written.result()
        self.processes.barrier()

    def close(self) -> None:
        """Wait until every checkpoint is written, in this process alone; OSError if one could not be."""
        with self._writer:  # which ends with what it writes, even if an interrupt ends the wait
            if self._written:
                self._written.result()

    def _write(
        self, before: Future[None] | None, counters: Counters, files: dict[str, dict[str, Tensor]] | None
    ) -> None:
        if before:
            before.result()  # or its error
        path, intact = self.run / CHECKPOINTS / checkpoint_name(counters.step), newest_checkpoint(self.run)
        try:
            if files is None:  # the same tensors; but an evaluation may have happened since
                CheckpointRecord(counters, self.identity, CheckpointRecord.read(path).files).write(path)
            else:
                with folder_written_whole(path) as aside:
                    digests = {}
                    for name, tensors in files.items():
                        write_tensors(aside / name, tensors)
                        digests[name] = _sha256(aside / name)
                    CheckpointRecord(counters, self.identity, digests).write(aside)
            for old in _newest_first(self.run)[KEPT:] if not counters.left_out_at else ():  # the run may go back
                if _step(old) != counters.best_step:
                    shutil.rmtree(old)
        except OSError as error:
            rest = f"; {intact} is intact: make room, then resume" if intact else ""
            raise OSError(f"{path} could not be written ({error}){rest}") from error

    def restore(self, state: State) -> None:
        """Set `state` to the newest intact checkpoint; leave it as it is if there is none; a collective operation.

        The first process reads the tensors for all. It names damaged newer checkpoints on stderr, and removes them.

        Raises:
            OtherRun: the newest checkpoint is of another run: other data, seed, batch size, optimizer or model.
            OSError: every checkpoint is damaged.
        """
        first, expected = self.processes.rank_zero, state.expected()
        found, damaged = newest_intact(self.run, expected, self._check_identity) if first else (None, {})
        step = int(self.processes.broadcast(found.counters.step if found else -1))
        if step < 0:
            return
        path = self.run / CHECKPOINTS / checkpoint_name(step)
        counters = found.counters if found else CheckpointRecord.read(path).counters
        empty = {file: {name: torch.empty(each.shape) for name, each in own.items()} for file, own in expected.items()}
        state.restore(found.tensors if found else empty, counters)
        self._step = step
        self.processes.broadcast_tensors(each for own in state.held().values() for each in own.values())
        self.processes.barrier()
        for each, reason in damaged.items():
            print(f"{each} is damaged ({reason}): gone back to {path.name}", file=sys.stderr)
            shutil.rmtree(each)

    def go_back(self, state: State) -> None:
        """Set `state` to the newest checkpoint before the steps left out, at half the rates; a collective operation.

        Newer checkpoints are removed. Without any checkpoint, only the rates change.
        """
        self.wait()
        now, found = state.counters, _newest_first(self.run) if self.processes.rank_zero else []
        changed: dict[str, Any] = {"rates": now.rates / 2, "left_out": now.left_out, "left_out_at": ()}
        changed |= {name: getattr(now, name) for name in ("seconds", "clock", "best_step", "best_bits_per_dim")}
        if found:
            good = next((path for path in found if _step(path) < min(now.left_out_at)), found[-1])
            for newer in found[: found.index(good)]:
                shutil.rmtree(newer)
            record = CheckpointRecord.read(good)
            replace(record, counters=replace(record.counters, **changed)).write(good)
        self.processes.barrier()
        self.restore(state)
        vars(now).update(changed)

    def _check_identity(self, stored: dict[str, Any]) -> None:
        old, new = dict(_leaves(stored)), dict(_leaves(self.identity))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                what = f"{name if name in new else brief(name)} = {brief(old.get(name))}, not {brief(new.get(name))}"
                raise OtherRun(f"{self.run} cannot be resumed: it has {what}")


def checkpoint_name(step: int) -> str:
    """Return the name of the folder of a checkpoint."""
    return f"step-{step:08d}"


def _newest_first(run: Path) -> list[Path]:
    found = (run / CHECKPOINTS).glob("step-*")
    return sorted((path for path in found if path.name[5:].isdecimal() and path.is_dir()), key=_step, reverse=True)


def _file(run: Path, path: Path) -> Path:
    if not require_inside(path, run).is_file():
        raise FileNotFoundError(f"{path.name} is missing")
    return path


def _read(path: Path, record: CheckpointRecord, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors = read_tensors(path, expected)
    if _sha256(path) != record.files.get(path.name):
        raise ValueError(f"{path.name} is not what was written")
    return tensors


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_copies(tensors: Iterable[Tensor], device: torch.device) -> int:
    """Return a hash, below 2^63, of the bits of tensors on a device, but not of shards; it is computed there.

    Each word of a chunk has an odd, random factor. So a change of one word always changes the hash; others, such as two
    words that change places, nearly always.
    """
    factors = torch.randint(-(2**63), 2**63 - 1, (CHUNK,), generator=torch.Generator().manual_seed(0)) | 1
    factors, digest = factors.to(device), torch.zeros((), dtype=torch.int64, device=device)
    for tensor in tensors:
        if not isinstance(tensor, DTensor):
            words = {1: torch.uint8, 2: torch.int16}.get(tensor.itemsize, torch.int32)
            for chunk in tensor.detach().contiguous().view(-1).view(words).split(CHUNK):
                digest = digest * factors[0] + (chunk * factors[: len(chunk)]).sum()
    return int(digest) & (2**63 - 1)


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
