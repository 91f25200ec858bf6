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
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from axial_transformers.files import folder_written_whole, written_whole
from axial_transformers.training.optimiser import moments, set_moments
from axial_transformers.training.processes import Processes
from axial_transformers.training.spread import fill, whole

WEIGHTS, AVERAGE, OPTIMISER, RECORD = "model.safetensors", "ema.safetensors", "optimiser.safetensors", "state.json"
SETTINGS = "train.json"
KEPT = 2


@dataclass
class Counters:
    """The numbers of a run's state."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Wall clock spent, over all resumes."""
    evaluated_step: int | None = None
    """When the averaged weights were last evaluated."""
    best_step: int | None = None
    """When they were best."""
    best_bits_per_dim: float | None = None
    """How good they were then."""


@dataclass
class State:
    """Everything that changes while a model is trained."""

    model: Any
    average: Any
    optimiser: Optimizer
    counters: Counters = field(default_factory=Counters)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of each file of a checkpoint."""
        return {
            WEIGHTS: {name: whole(tensor) for name, tensor in self.model.state_dict().items()},
            AVERAGE: {name: whole(tensor) for name, tensor in self.average.state_dict().items()},
            OPTIMISER: moments(self.model, self.optimiser),
        }

    def restore(self, tensors: dict[str, dict[str, Tensor]], counters: Counters) -> None:
        """The inverse of `tensors`."""
        fill(self.model, tensors[WEIGHTS])
        fill(self.average, tensors[AVERAGE])
        set_moments(self.model, self.optimiser, tensors[OPTIMISER])
        self.counters = counters


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
        files = state.tensors()
        if self.processes.first:
            self._write(self._path(state.counters.step), state, files)
        self.processes.wait()

    def _write(self, path: Path, state: State, files: dict[str, dict[str, Tensor]]) -> None:
        if path.exists():  # the same tensors; but an evaluation may have happened since
            self._write_record(path, state, json.loads((path / RECORD).read_text())["files"])
        else:
            with folder_written_whole(path) as aside:
                digests = {}
                for name, tensors in files.items():
                    _write_tensors(aside / name, tensors)
                    digests[name] = _sha256(aside / name)
                self._write_record(aside, state, digests)
        for old in self._newest_first()[KEPT:]:
            if _step(old) != state.counters.best_step:
                shutil.rmtree(old)

    def restore(self, state: State) -> None:
        """Put `state` where the newest intact checkpoint was; leave it as it is if there is no checkpoint at all.

        Damaged newer checkpoints are named on stderr, and removed once an older one is found to be intact.

        Raises:
            ValueError: the checkpoint is of another run (other data, seed, batch size or model).
            OSError: every checkpoint is damaged.
        """
        damaged = []
        for path in self._newest_first():
            try:
                record, tensors = _read(path)
            except (OSError, ValueError) as error:
                if self.processes.first:
                    print(f"{path} is damaged ({error}): trying the checkpoint before it", file=sys.stderr)
                damaged.append(path)
                continue
            self._check_identity(record["identity"])
            state.restore(tensors, Counters(**record["counters"]))
            self.processes.wait()
            for each in damaged if self.processes.first else ():
                shutil.rmtree(each)
            return
        if damaged:
            raise OSError(f"{self.folder} holds no intact checkpoint: remove it to start again")

    def newest(self) -> Path | None:
        """The newest checkpoint."""
        return next(iter(self._newest_first()), None)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("step-[0-9]*"), key=_step, reverse=True)

    def _write_record(self, folder: Path, state: State, digests: dict[str, str]) -> None:
        record = {"counters": vars(state.counters), "identity": self.identity, "files": digests}
        with written_whole(folder / RECORD) as aside:
            aside.write_text(json.dumps(record, indent=2) + "\n")

    def _check_identity(self, stored: dict[str, Any]) -> None:
        old, new = dict(_leaves(stored)), dict(_leaves(self.identity))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                raise ValueError(
                    f"{self.folder.parent} cannot be resumed: it has {name} = {old.get(name)}, not {new.get(name)}"
                )


def open_run(folder: Path, resume: bool) -> None:
    """Make `folder` ready to train in, rid of what a killed process left half-written.

    Raises:
        FileExistsError: it holds something, and is not to be resumed or is no run.
    """
    for place in (".", "checkpoints", "checkpoints/*"):
        for stray in folder.glob(f"{place}/.*.part*"):
            if stray.is_dir():
                shutil.rmtree(stray)
            else:
                stray.unlink()
    if folder.is_dir() and any(folder.iterdir()):
        if not resume:
            raise FileExistsError(f"{folder} is not empty: resume what was begun there, or give another folder")
        if not (folder / SETTINGS).exists():
            raise FileExistsError(f"{folder} holds no run to resume (it has no {SETTINGS}): give another folder")
    folder.mkdir(parents=True, exist_ok=True)


def export(model: Any, folder: Path) -> None:
    """`model.save_pretrained` into a folder that holds more than the model; each file is replaced whole."""
    with tempfile.TemporaryDirectory(prefix=".export.", suffix=".part", dir=folder) as aside:
        model.save_pretrained(aside)
        for file in Path(aside).iterdir():
            file.replace(folder / file.name)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    record = json.loads((path / RECORD).read_text())
    if not isinstance(record, dict) or record.keys() != {"counters", "identity", "files"}:
        raise ValueError(f"{RECORD} is not a training state's")
    if record["counters"].keys() != {each.name for each in fields(Counters)}:
        raise ValueError(f"{RECORD} has other counters")
    for name in (WEIGHTS, AVERAGE, OPTIMISER):
        if _sha256(path / name) != record["files"].get(name):
            raise ValueError(f"{name} is not what was written")
    return record, {name: load_file(path / name) for name in (WEIGHTS, AVERAGE, OPTIMISER)}


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


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
