"""What a model card says of a run: the steps, the data, the validation."""

import shlex
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from axial_transformers.models import AxialTransformer
from axial_transformers.models.hub_card import Result, model_card
from axial_transformers.planning.operations import engineering
from axial_transformers.storage import hub, model_folders
from axial_transformers.storage.files import require_inside
from axial_transformers.storage.typed_json import to_json
from axial_transformers.training.checkpoints import Counters, Record, newest_checkpoint
from axial_transformers.training.curves import read_curves
from axial_transformers.training.metrics import VALIDATION
from axial_transformers.training.run_folder import Origin, RunRecord, read_run


@dataclass(frozen=True)
class RunCard:
    """The parts of a model card that a run knows."""

    rows: dict[str, str]
    result: Result | None
    settings: dict[str, Any]


def describe_run(folder: Path) -> RunCard | None:
    """Return what a model card says of the run in a folder; None if there is none. Of paths it has only the last part.

    Raises:
        ValueError: the record of the run is damaged.
    """
    record = read_run(folder)
    if record is None:
        return None
    counters = _counters(folder)
    rows = {"trained": _training(record, counters), "training data": _data(record)}
    if record.command is not None:
        rows["command"] = f"`{shlex.join(map(_last_part, record.command))}`"
    result = None
    if counters is not None and counters.best_step is not None and counters.best_bits_per_dim is not None:
        name = "its data" if record.about is None else _name(record.about)
        result = Result(data=name, split="validation", bits_per_dim=counters.best_bits_per_dim)
        rows["validation"] = _validation(folder, record, counters.best_step, counters.best_bits_per_dim)
    return RunCard(rows, result, to_json(record.training))


def card_of(folder: Path, model: AxialTransformer, repository: str, licence: str | None = None) -> str:
    """The model card that a folder holds, or one made of what its run and the model know.

    Raises:
        ValueError: the folder has a card, and a licence is given as well; or this is no name of a repository.
    """
    hub.require_repository(repository)
    own = folder / hub.CARD
    if own.is_file() and own.stat().st_size:  # it is empty while the shell writes the card of a dry run into it
        if licence is not None:
            raise ValueError(f"{own} is the model card: state the licence {licence} there, or remove the file")
        return own.read_text(encoding="utf-8")
    run, today = describe_run(folder), f"{datetime.now().astimezone():%Y-%m-%d}"
    return model_card(
        model,
        model.config,
        repository,
        licence=licence,
        rows={**(run.rows if run else {}), "uploaded": f"{today}, axial-transformers {version('axial-transformers')}"},
        result=run.result if run else None,
        settings=run.settings if run else None,
    )


def describe_upload(folder: Path, card: str, repository: str, revision: str | None) -> str:
    """Return what `push_to_hub` sends of a model folder, and where it goes, as one line."""
    sizes = {name: (folder / name).stat().st_size for name in (model_folders.CONFIG, model_folders.WEIGHTS)}
    sizes[hub.CARD] = len(card.encode())
    files = ", ".join(f"{name} ({engineering(size)}B)" for name, size in sizes.items())
    return f"{files} to {hub.address(repository)}, branch {revision or 'main'}"


def _counters(folder: Path) -> Counters | None:
    """The counters of the newest checkpoint; None where there is none, or it is damaged."""
    newest = newest_checkpoint(folder)
    if newest is not None:
        with suppress(OSError, ValueError):
            return Record.read(require_inside(newest, folder)).counters
    return None


def _training(record: RunRecord, counters: Counters | None) -> str:
    config = record.training
    steps = config.steps if counters is None else counters.step
    time = "" if counters is None else f", {timedelta(seconds=round(counters.seconds))} h"
    recipe = "" if record.about is None else f"recipe `{record.about.recipe}`: "
    return f"{recipe}{steps:,} steps of {config.batch_size} examples, {config.precision}, seed {config.seed}{time}"


def _data(record: RunRecord) -> str:
    about = record.about
    name = "" if about is None else f"`{_name(about)}`, "
    found = None if about is None else about.summary
    count = "" if found is None else f"{found.train:,} examples, "
    return f"{name}{count}fingerprint `{record.data.fingerprint}`"


def _validation(folder: Path, record: RunRecord, step: int, bits_per_dim: float) -> str:
    metrics = require_inside(folder / "metrics.jsonl", folder)
    errors = read_curves(metrics).get(f"{VALIDATION}standard_error", []) if metrics.is_file() else []
    error = dict(errors).get(step)
    about, count = record.about, ""
    if about is not None and about.summary is not None:
        count = f" of {min(about.summary.validation, about.validate_on):,} examples"
    within = "" if error is None else f" ± {error:.2g} (standard error)"
    return (
        f"{bits_per_dim:.4f}{within} bits/dim{count}, of the moving average of the weights at"
        f" step {step:,}: the lowest of the run"
    )


def _name(about: Origin) -> str:
    """The last part of the source's path or address: the rest may tell what is nobody's business."""
    return _last_part(about.source) or "its data"


def _last_part(word: str) -> str:
    """Of a path, or of an address, also after `--option=`; other words as they are."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    path = urlsplit(value).path if "://" in value else value
    return f"{option}{equals}{PurePath(path.replace(chr(92), '/')).name or path}"
