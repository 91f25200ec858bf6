"""What a run says of itself: rows (name, value), where `...` marks code; RUN/index.html; a model card."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version
from math import ceil
from pathlib import Path, PurePath
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from axial_transformers.data.kinds import kind_of
from axial_transformers.models import AxialTransformer
from axial_transformers.models.hub_card import Result, model_card
from axial_transformers.storage import hub, model_folders
from axial_transformers.storage.files import require_inside, written_whole
from axial_transformers.storage.typed_json import to_json
from axial_transformers.training.config import RunConfig
from axial_transformers.training.metrics import VALIDATION, Curve, read_curves
from axial_transformers.training.run_folder import Facts, RunRecord, read_run
from axial_transformers.wording import counted, duration

if TYPE_CHECKING:  # cards and rows are made without images
    from axial_transformers.pictures import html

PAGE = "index.html"
BITS = "bits.png"
GRIDS = 6
WIDTH = 62


def describe_data(run: RunConfig, facts: Facts) -> dict[str, str]:
    """Return the rows of a run's data."""
    model = run.model
    rows = {}
    if run.source:
        rows["source"] = f"`{run.source}`"
    if facts.class_names:
        rows["classes"] = f"{len(facts.class_names)}: {shorten(', '.join(facts.class_names), WIDTH)}"
    if facts.validation is not None:
        count = counted(facts.train + facts.validation + (facts.test or 0), kind_of(model, run.data.axes))
        validation = f"{facts.validation:,} validation"
        if run.validate_on < facts.validation:
            validation += f" ({run.validate_on:,} are evaluated)"
        test = "no test part" if facts.test is None else f"{facts.test:,} test"
        rows["examples"] = f"{count}: {facts.train:,} train, {validation}, {test}"
    shape = " x ".join(map(str, model.shape))
    rows["each"] = f"{shape}, {counted(model.channels, 'channel')}, values {model.lowest}..{model.highest}"
    return rows


def describe_run(record: RunRecord, curves: Mapping[str, Curve]) -> dict[str, dict[str, str]]:
    """Return the rows of a run's data, training and machine, by title."""
    facts = record.facts
    data = describe_data(record.run, facts)
    data["training examples"] = f"{facts.train:,}, SHA-256 `{facts.fingerprint}`"
    return {"data": data, "training": _describe_training(record, curves), "machine": facts.machine}


def _describe_training(record: RunRecord, curves: Mapping[str, Curve]) -> dict[str, str]:
    run = record.run
    facts = record.facts
    config = run.training
    rows = {}
    if run.recipe:
        rows["recipe"] = run.recipe
    if run.start_from:
        rows["started from"] = f"`{run.start_from}`"
    rows["training"] = (
        f"{config.steps:,} steps of {config.batch_size}, learning rate {config.learning_rate:g}, {config.schedule}, "
        f"{config.precision}, seed {config.seed}, processes: {facts.processes}"
    )
    if "seconds" in curves:
        step, time = curves["seconds"][-1]
        rows["time"] = f"{duration(time)} for {step:,.0f} steps"
    best = best_validation(curves)
    if best:
        step, bits = best
        metric = f"{bits:.4f} bits/dim"
        error = dict(curves.get(f"{VALIDATION}standard_error", [])).get(step)
        if error:
            metric += f" ± {error:.2g} (standard error)"
        rows["validation"] = f"{metric} at step {step:,.0f}, EMA weights: the lowest of the run"
    for title, words in {"command": facts.command, "last resumed by": facts.resumed_by}.items():
        if words:
            rows[title] = f"`{shlex.join(('axial', *words))}`"
    return rows


def best_validation(curves: Mapping[str, Curve]) -> tuple[float, float] | None:
    """Return the step with the fewest validation bits/dim, and these."""
    return min(curves.get(f"{VALIDATION}bits_per_dim", []), key=lambda point: point[1], default=None)


def write_page(
    folder: Path,
    status: str = "not running",
    target: Path | None = None,
    sections: "Sequence[html.Section]" = (),
) -> Path:
    """Write the page of a run, with more sections below its samples; return its path, by default RUN/index.html."""
    from axial_transformers.pictures import html

    record = read_run(folder)
    if not record:
        raise ValueError(f"{folder} holds no run: only a run has a page")
    path = target or require_inside(folder / PAGE, folder)
    shown = _sections(folder, record, status, sections)
    with written_whole(path) as aside:
        html.write_page(aside, path.resolve().parent.name, shown)
    return path


def _sections(folder: Path, record: RunRecord, status: str, more: "Sequence[html.Section]") -> "list[html.Section]":
    from axial_transformers.pictures import html

    curves = read_curves(folder)
    described = describe_run(record, curves)
    state = {"state": status, "written": f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"}
    bits = {"training": "bits_per_dim", "validation": f"{VALIDATION}bits_per_dim"}
    grids = sorted((folder / "samples").glob("step-*.png"), reverse=True)
    every = ceil(len(grids) / GRIDS) or 1
    return [
        html.Section(facts=state | described["training"]),
        html.Section(
            title="Samples",
            text="The newest first, none left out. They are of the EMA weights (averaged).",
            images=[_figure(path, folder, path.stem) for path in grids[::every] if path.is_file()],
        ),
        *more,
        html.Section(
            title="Curves",
            text="Bits per dimension by step; lower is better. The validation examples are evaluated with the EMA "
            "weights. Values far above the others are drawn at the upper edge.",
            curves={name: curves[metric] for name, metric in bits.items() if metric in curves},
        ),
        html.Section(
            title="Bits of each position",
            text="Validation examples. Below each are the bits of its positions, given those before.",
            images=[_figure(folder / BITS, folder)] if (folder / BITS).is_file() else [],
        ),
        html.Section(title="Data", facts=described["data"]),
        html.Section(title="Settings", facts=_describe_settings(record)),
    ]


def _figure(path: Path, folder: Path, caption: str = "") -> "html.Figure":
    from PIL import Image

    from axial_transformers.pictures import html

    return html.figure(Image.open(require_inside(path, folder)), caption)


def _describe_settings(record: RunRecord) -> dict[str, Any]:
    rows: dict[str, Any] = record.run.model.describe()
    rows["parameters"] = f"{record.facts.parameters:,}"
    rows |= record.facts.machine
    for group in ("model", "training"):
        for name, value in asdict(getattr(record.run, group)).items():
            rows[f"{group}.{name}"] = value
    return rows


def card_of(folder: Path, model: AxialTransformer, repository: str, licence: str | None) -> str:
    """Return the model card in a folder, or a new one."""
    hub.require_repository(repository)
    own = folder / hub.CARD
    if own.is_file() and own.stat().st_size:  # it is empty while the shell writes the card of a dry run into it
        if licence is not None:
            raise ValueError(f"{own} is the model card: state the licence {licence} there, or remove the file")
        return own.read_text(encoding="utf-8")
    rows, result, settings = _public_rows(folder)
    rows["uploaded"] = f"{datetime.now().astimezone():%Y-%m-%d}, axial-transformers {version('axial-transformers')}"
    return model_card(model, model.config, repository, licence=licence, rows=rows, result=result, settings=settings)


def _public_rows(folder: Path) -> tuple[dict[str, str], Result | None, dict[str, Any] | None]:
    record = read_run(folder)
    if not record:
        return {}, None, None
    curves = read_curves(folder)
    start = record.run.start_from
    run = replace(record.run, source=None, start_from=start and PurePath(start).name)
    facts = replace(record.facts, command=None, resumed_by=None, class_names=None, columns=None)
    described = describe_run(RunRecord(run=run, facts=facts), curves)
    best = best_validation(curves)
    result = best and Result(data=run.recipe or "its data", split="validation", bits_per_dim=best[1])
    return described["data"] | described["training"], result, to_json(run.training)


def describe_upload(repository: str, revision: str | None) -> str:
    """Return in a line what `push_to_hub` sends, and where."""
    files = f"{model_folders.CONFIG}, {model_folders.WEIGHTS}, {hub.CARD}"
    return f"{files} to {hub.address(repository)}, branch {revision or 'main'}"
