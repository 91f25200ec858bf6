"""state.json of a checkpoint: counters, identity of the run, checksums."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axial_transformers.storage.files import written_whole
from axial_transformers.storage.typed_json import from_json, read_object

RECORD = "state.json"


@dataclass
class Counters:
    """The numbers of a run's state."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Wall-clock time spent, over all resumes."""
    clock: float = 0.0
    """The same, as the schedule of the learning rate counts it: equal in all processes."""
    evaluated_step: int | None = None
    """Step at which the averaged weights were last evaluated."""
    best_step: int | None = None
    """Step at which they were best."""
    best_bits_per_dim: float | None = None
    """Their bits/dim then."""


@dataclass(frozen=True)
class Record:
    """The content of state.json, which holds its own SHA-256 too."""

    counters: Counters
    identity: dict[str, Any]
    """The run's data, seed, batch size and model."""
    files: dict[str, str]
    """SHA-256 of each of the checkpoint's other files."""

    def write(self, folder: Path) -> None:
        """Writes it into a checkpoint's folder, whole or not at all."""
        content = {"counters": vars(self.counters), "identity": self.identity, "files": self.files}
        with written_whole(folder / RECORD) as aside:
            text = json.dumps({**content, "sha256": _sha256(content)}, indent=2) + "\n"
            aside.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """Reads it from a checkpoint's folder.

        Raises:
            ValueError: it is damaged, or something else.
            FileNotFoundError: there is none.
        """
        content = read_object(folder / RECORD, "a training state")
        if content.pop("sha256", None) != _sha256(content):
            raise ValueError(f"{RECORD} is not what was written")
        counters = from_json(Counters, content.get("counters"), RECORD)
        identity, files = content.get("identity"), content.get("files")
        if not isinstance(identity, dict) or not isinstance(files, dict):
            raise ValueError(f"{RECORD} names no run, or no files")
        return cls(counters, identity, files)


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
