"""The folder of a training run, written and read.

RUN/
  config.json, model.safetensors   EMA weights
  train.json                       settings, and what was found when it began
  metrics.jsonl, tensorboard/      metrics of its steps
  wandb.txt                        its identity at Weights & Biases
  samples/step-*.png               sample grids
  index.html, bits.png             see `run_page`
  checkpoints/                     see `checkpoints`
  .lock                            see `storage.locks`
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from axial_transformers.storage.files import require_inside, require_utf8
from axial_transformers.storage.locks import LOCK, folder_held
from axial_transformers.storage.typed_json import from_json, read_object, to_json, write_object
from axial_transformers.training.config import RUN_RECORD, RunConfig

if TYPE_CHECKING:  # records are read without torch
    from axial_transformers.data import Examples
    from axial_transformers.models import AxialTransformer


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found when a run began: its data, its model and its machine."""

    fingerprint: str
    """The hash of the training examples."""
    train: int
    """Number of training examples; then of validation and test examples. None: not known, or no such part."""
    validation: int | None = None
    test: int | None = None
    parameters: int
    class_names: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    """Titles of the columns of a table."""
    command: tuple[str, ...] | None = None
    """Words of the command line after `axial` that began the run; None: begun from Python."""
    resumed_by: tuple[str, ...] | None = None
    """Words of the newest resume; None: not resumed, or last from Python."""
    processes: int = 1
    machine: dict[str, str] = field(default_factory=dict)
    """What `machine_facts` says."""

    @classmethod
    def of(cls, examples: "Examples", model: "AxialTransformer") -> Self:
        """Return what training examples and a model tell."""
        return cls(
            fingerprint=examples.fingerprint,
            train=len(examples),
            parameters=sum(weight.numel() for weight in model.parameters()),
            class_names=examples.class_names,
            columns=examples.columns,
        )


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The content of train.json: the settings of a run, and what was found when it began."""

    run: RunConfig
    facts: Facts

    @property
    def identity(self) -> dict[str, Any]:
        """Return the values that a resume must not change."""
        training = self.run.training
        values: dict[str, Any] = {
            "data.fingerprint": self.facts.fingerprint,
            "training.seed": training.seed,
            "training.batch_size": training.batch_size,
            "training.optimizer": training.optimizer,
        }
        for name, value in to_json(self.run.model).items():
            values[f"model.{name}"] = value
        del values["model.needs_label"]  # a resume may begin to hide labels
        return dict(json.loads(json.dumps(values)))

    def write(self, folder: Path) -> None:
        """Write train.json, without `out`: a folder may be moved."""
        values = to_json(self)
        del values["run"]["out"]
        write_object(folder / RUN_RECORD, values)


def read_run(folder: str | Path) -> RunRecord | None:
    """Return the record of the run in a folder; None without one.

    Raises:
        ValueError: the record is damaged, of something else, or a link out of the folder.
    """
    folder = Path(folder)
    path = folder / RUN_RECORD
    if not path.is_file():
        return None
    require_inside(path, folder)
    record = from_json(RunRecord, read_object(path, "the record of a training run", mebibytes=16), path)
    return replace(record, run=replace(record.run, out=folder))


@contextmanager
def open_run(folder: Path, resume: bool) -> Iterator[None]:
    """Lock `folder` for training, and remove half-written files."""
    _require_usable(folder, resume)
    folder.mkdir(parents=True, exist_ok=True)
    with folder_held(folder):
        _require_usable(folder, resume)  # again: another process may have trained in it since
        for stray in _strays(folder):
            if stray.is_dir() and not stray.is_symlink():
                shutil.rmtree(stray)
            else:
                stray.unlink(missing_ok=True)  # it was in such a folder
        yield


def require_run(folder: Path, began: os.stat_result | None = None) -> None:
    """Raise FileNotFoundError where a run is no longer in its folder: writing there would begin half a run.

    Args:
        began: `folder.stat()` when the run began or went on; None: any run may be there.
    """
    is_run = (folder / RUN_RECORD).is_file()
    if is_run and (not began or os.path.samestat(began, folder.stat())):
        return
    raise FileNotFoundError(
        f"{folder} was moved or removed while its run trained, so the run has ended: go on from its newest checkpoint"
        " by axial train NEW_PLACE"
    )


def _require_usable(folder: Path, resume: bool) -> None:
    require_utf8(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileExistsError(f"{folder} exists already, and is no folder: give another one")
    lock = folder / LOCK
    content: set[Path] = set()
    if folder.is_dir():
        content = {*folder.iterdir()} - {*_strays(folder), lock}
    if not content:
        _require_ordinary(lock, folder)
        return
    if not (folder / RUN_RECORD).exists():
        raise FileExistsError(
            f"{folder} is not empty and holds no run to resume (it has no {RUN_RECORD}): give another folder"
        )
    if not resume:
        raise FileExistsError(f"{folder} is not empty: go on with its run (resume=True), or name another folder (out=)")
    for path in folder.rglob("*"):
        _require_ordinary(path, folder)


def _require_ordinary(path: Path, folder: Path) -> None:
    """Raise ValueError for a link out of the folder, through which it would be written, or for a device."""
    if require_inside(path, folder).exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is neither a file nor a folder: remove it")


def _strays(folder: Path) -> list[Path]:
    return [*folder.rglob(".*.part*")]


def export(model: "AxialTransformer", folder: Path) -> None:
    """Save a model into a folder with other files; each file is replaced whole."""
    with tempfile.TemporaryDirectory(prefix=".export.", suffix=".part", dir=folder) as aside:
        model.save_pretrained(aside)
        for file in Path(aside).iterdir():
            file.replace(folder / file.name)
