"""The state of a run, and its checkpoints on disk.

RUN/checkpoints/step-00001000/
  model.safetensors      the weights that are trained
  ema.safetensors        their running average
  optimiser.safetensors  Adam's moments
  state.json             counters, what the run is (data, seed, model), SHA-256 of the files above
"""

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from axial_transformers.storage.files import folder_written_whole, require_inside
from axial_transformers.storage.model_folders import read_tensors, write_tensors
from axial_transformers.training.checkpoint_record import Counters, Record
from axial_transformers.training.optimiser import like_moments, moments, set_moments
from axial_transformers.training.parallelism import fill, whole
from axial_transformers.training.processes import Processes

WEIGHTS, AVERAGE, OPTIMISER = "model.safetensors", "ema.safetensors", "optimiser.safetensors"
SETTINGS = "train.json"
KEPT = 2


@dataclass
class State:
    """Everything that changes while a model is trained."""

    model: Any
    average: Any
    optimiser: Optimizer
    counters: Counters = field(default_factory=Counters)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of each file of a checkpoint, off the device: all shares together may not fit there."""
        return {
            WEIGHTS: {name: whole(tensor).cpu() for name, tensor in self.model.state_dict().items()},
            AVERAGE: {name: whole(tensor).cpu() for name, tensor in self.average.state_dict().items()},
            OPTIMISER: moments(self.model, self.optimiser),
        }

    def expected(self) -> dict[str, Mapping[str, Tensor]]:
        """Tensors of the names and shapes that `tensors` has."""
        return {
            WEIGHTS: self.model.state_dict(),
            AVERAGE: self.average.state_dict(),
            OPTIMISER: like_moments(self.model),
        }

    def restore(self, tensors: dict[str, dict[str, Tensor]], counters: Counters) -> None:
        """The inverse of `tensors`."""
        fill(self.model, tensors[WEIGHTS])
        fill(self.average, tensors[AVERAGE])
        set_moments(self.model, self.optimiser, tensors[OPTIMISER])
        self.counters = counters


class OtherRun(ValueError):
    """A checkpoint is not of the run to resume."""


class Checkpoints:
    """The checkpoints of one run: the newest two (should one be damaged) and the best.

    `identity` says what must not change over a run's life: the data's fingerprint, the seed, the batch size, the model.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))

    def save(self, state: State) -> None:
        """Write the state, whole or not at all, then remove what is neither new nor best. All processes take part.

        Raises:
            OSError: it could not be written; the checkpoints before are untouched.
        """
        files, path, before = state.tensors(), self._path(state.counters.step), self.newest()
        if self.processes.first:
            try:
                self._write(path, state, files)
            except OSError as error:
                rest = f"; {before} is intact: make room, then resume" if before else ""
                raise OSError(f"{path} could not be written ({error}){rest}") from error
        self.processes.wait()

    def _write(self, path: Path, state: State, files: dict[str, dict[str, Tensor]]) -> None:
        if path.exists():  # the same tensors; but an evaluation may have happened since
            Record(state.counters, self.identity, Record.read(path).files).write(path)
        else:
            with folder_written_whole(path) as aside:
                digests = {}
                for name, tensors in files.items():
                    write_tensors(aside / name, tensors)
                    digests[name] = _sha256(aside / name)
                Record(state.counters, self.identity, digests).write(aside)
        for old in self._newest_first()[KEPT:]:
            if _step(old) != state.counters.best_step:
                shutil.rmtree(old)

    def restore(self, state: State) -> None:
        """Put `state` where the newest intact checkpoint was; leave it as it is if there is no checkpoint at all.

        Damaged newer checkpoints are named on stderr, and removed once an older one is found to be intact.

        Raises:
            OtherRun: the newest checkpoint is of another run (other data, seed, batch size or model).
            OSError: every checkpoint is damaged.
        """
        damaged: dict[Path, Exception] = {}
        for path in self._newest_first():
            try:
                record = Record.read(path)
                self._check_identity(record.identity)
                tensors = _read_tensors(path, record.files, state.expected())
            except OtherRun:
                raise
            except (OSError, ValueError, RecursionError) as error:
                damaged[path] = error
                continue
            state.restore(tensors, record.counters)
            self.processes.wait()
            for each, reason in damaged.items() if self.processes.first else ():
                print(f"{each} is damaged ({reason}): gone back to {path.name}", file=sys.stderr)
                shutil.rmtree(each)
            return
        if damaged:
            newest = next(iter(damaged.values()))
            raise OSError(f"{self.folder} holds no intact checkpoint ({newest}): remove it to start again")

    def newest(self) -> Path | None:
        """The newest checkpoint."""
        return next(iter(self._newest_first()), None)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _newest_first(self) -> list[Path]:
        found = [path for path in self.folder.glob("step-*") if path.name[5:].isdecimal() and path.is_dir()]
        return sorted(found, key=_step, reverse=True)

    def _check_identity(self, stored: dict[str, Any]) -> None:
        old, new = dict(_leaves(stored)), dict(_leaves(self.identity))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                raise OtherRun(
                    f"{self.folder.parent} cannot be resumed: it has {name} = {old.get(name)}, not {new.get(name)}"
                )


def open_run(folder: Path, resume: bool) -> None:
    """Make `folder` ready to train in, rid of what a killed process left half-written.

    Raises:
        FileExistsError: it holds something, and is not to be resumed or is no run. It is left as it was.
        ValueError: it holds a link that leads out of it, or what is neither a file nor a folder; likewise.
    """
    strays = [*folder.rglob(".*.part*")]
    if folder.is_dir() and {*folder.iterdir()} - {*strays}:
        if not resume:
            raise FileExistsError(f"{folder} is not empty: resume what was begun there, or give another folder")
        if not (folder / SETTINGS).exists():
            raise FileExistsError(f"{folder} holds no run to resume (it has no {SETTINGS}): give another folder")
        for path in folder.rglob("*"):  # nothing outside is to be written or removed
            if require_inside(path, folder).exists() and not (path.is_file() or path.is_dir()):
                raise ValueError(f"{path} is neither a file nor a folder: remove it")
    for stray in strays:
        if stray.is_dir() and not stray.is_symlink():
            shutil.rmtree(stray)
        else:
            stray.unlink(missing_ok=True)  # it was in such a folder
    folder.mkdir(parents=True, exist_ok=True)


def export(model: Any, folder: Path) -> None:
    """`model.save_pretrained` into a folder that holds more than the model; each file is replaced whole."""
    with tempfile.TemporaryDirectory(prefix=".export.", suffix=".part", dir=folder) as aside:
        model.save_pretrained(aside)
        for file in Path(aside).iterdir():
            file.replace(folder / file.name)


def _read_tensors(
    folder: Path, files: dict[str, str], expected: dict[str, Mapping[str, Tensor]]
) -> dict[str, dict[str, Tensor]]:
    found = {name: read_tensors(folder / name, tensors) for name, tensors in expected.items()}
    for name in found:
        if _sha256(folder / name) != files.get(name):
            raise ValueError(f"{name} is not what was written")
    return found


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
