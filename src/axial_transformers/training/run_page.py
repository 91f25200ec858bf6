"""What a run says of itself: rows (name, value), where `...` marks code; RUN/index.html; a model card."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path, PurePath
from textwrap import shorten
from typing import Any

from PIL import Image

from axial_transformers.data.kinds import kind_of
from axial_transformers.models import AxialTransformer
from axial_transformers.models.hub_card import Result, model_card
from axial_transformers.pictures import html
from axial_transformers.storage import hub, model_folders
from axial_transformers.storage.files import require_inside, written_whole
from axial_transformers.storage.typed_json import to_json
from axial_transformers.training.config import RunConfig
from axial_transformers.training.metrics import VALIDATION, Curve, read_curves
from axial_transformers.training.run_folder import Facts, RunRecord, read_run
from axial_transformers.wording import counted

PAGE, BITS = "index.html", "bits.png"
GRIDS = 6
WIDTH = 62


def describe_data(run: RunConfig, facts: Facts) -> dict[str, str]:
    """Return the rows of a run's data."""
    rows, model = {} if run.source is None else {"source": f"`{run.source}`"}, run.model
    if facts.class_names is not None:
        rows["classes"] = f"{len(facts.class_names)}: {shorten(', '.join(facts.class_names), WIDTH)}"
    kind = kind_of(model, run.data.axes)
    if facts.validation is not None:
        evaluated = f" ({run.validate_on:,} are evaluated)" if run.validate_on < facts.validation else ""
        test = "no test part" if facts.test is None else f"{facts.test:,} test"
        count = counted(facts.train + facts.validation + (facts.test or 0), kind)
        rows["examples"] = f"{count}: {facts.train:,} train, {facts.validation:,} validation{evaluated}, {test}"
    shape, channels = " x ".join(map(str, model.shape)), counted(model.channels, "channel")
    rows["each"] = f"{shape}, {channels}, values {model.lowest}..{model.highest}"
    return rows


def describe_run(record: RunRecord, curves: Mapping[str, Curve]) -> dict[str, dict[str, str]]:
    """Return the rows of a run's data, training and machine, by title."""
    run, facts, config = record.run, record.facts, record.run.training
    training = {} if run.recipe is None else {"recipe": run.recipe}
    if run.start_from:
        training["started from"] = f"`{run.start_from}`"
    training["training"] = (
        f"{config.steps:,} steps of {config.batch_size}, learning rate {config.learning_rate:g}, {config.schedule}, "
        f"{config.precision}, seed {config.seed}, processes: {facts.processes}"
    )
    if seconds := curves.get("seconds"):
        step, time = seconds[-1]
        training["time"] = f"{timedelta(seconds=round(time))} h for {step:,.0f} steps"
    if best := best_validation(curves):
        step, bits = best
        errors = dict(curves.get(f"{VALIDATION}standard_error", []))
        error = f" ± {errors[step]:.2g} (standard error)" if step in errors else ""
        training["validation"] = f"{bits:.4f} bits/dim{error} at step {step:,.0f}, EMA weights: the lowest of the run"
    if facts.command:
        training["command"] = _typed(facts.command)
    if facts.resumed_by:
        training["last resumed by"] = _typed(facts.resumed_by)
    examples = {"training examples": f"{facts.train:,}, SHA-256 `{facts.fingerprint}`"}
    return {
        "data": describe_data(run, facts) | examples,
        "training": training,
        "machine": facts.machine,
    }


def _typed(words: Sequence[str]) -> str:
    return f"`{shlex.join(('axial', *words))}`"


def best_validation(curves: Mapping[str, Curve]) -> tuple[float, float] | None:
    """Return the step with the fewest validation bits/dim, and these."""
    return min(curves.get(f"{VALIDATION}bits_per_dim", []), key=lambda point: point[1], default=None)


def write_page(
    folder: Path,
    status: str = "not running",
    target: Path | None = None,
    sections: Sequence[html.Section] = (),
) -> Path:
    """Write the page of a run, with more sections below its samples; return its path, by default RUN/index.html."""
    record = read_run(folder)
    if record is None:
        raise ValueError(f"{folder} holds no run: only a run has a page")
    path = target or require_inside(folder / PAGE, folder)
    first, samples, *others = _sections(folder, record, status)
    with written_whole(path) as aside:
        html.write_page(aside, path.resolve().parent.name, [first, samples, *sections, *others])
    return path


def _sections(folder: Path, record: RunRecord, status: str) -> list[html.Section]:
    run, curves = record.run, read_curves(folder)
    described = describe_run(record, curves)
    state = {"state": status, "written": f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"}
    bits = {"training": curves.get("bits_per_dim"), "validation": curves.get(f"{VALIDATION}bits_per_dim")}
    grids = sorted((folder / "samples").glob("step-*.png"), reverse=True)
    model = {"model": record.facts.model_name, **run.model.describe(), "parameters": f"{record.facts.parameters:,}"}
    settings = {f"model.{key}": value for key, value in asdict(run.model).items()}
    settings |= {f"training.{key}": value for key, value in asdict(run.training).items()}

    def figures(*paths: Path) -> list[html.Figure]:
        inside = [require_inside(path, folder) for path in paths if path.is_file()]
        return [html.figure(Image.open(path), path.stem if path in grids else "") for path in inside]

    return [
        html.Section(facts=state | described["training"]),
        html.Section(
            title="Samples",
            text="The newest first, none left out. They are of the EMA weights (averaged).",
            images=figures(*grids[:: max(1, -(-len(grids) // GRIDS))]),
        ),
        html.Section(
            title="Curves",
            text="Bits per dimension by step; lower is better. The validation examples are evaluated with the EMA "
            "weights. Values far above the others are drawn at the upper edge.",
            curves={name: points for name, points in bits.items() if points},
        ),
        html.Section(
            title="Bits of each position",
            text="Validation examples. Below each are the bits of its positions, given those before.",
            images=figures(folder / BITS),
        ),
        html.Section(title="Data", facts=described["data"]),
        html.Section(title="Settings", facts=model | described["machine"] | settings),
    ]


def card_of(folder: Path, model: AxialTransformer, repository: str, licence: str | None = None) -> str:
    """Return the model card in a folder, or a new one."""
    hub.require_repository(repository)
    own = folder / hub.CARD
    if own.is_file() and own.stat().st_size:  # it is empty while the shell writes the card of a dry run into it
        if licence is not None:
            raise ValueError(f"{own} is the model card: state the licence {licence} there, or remove the file")
        return own.read_text(encoding="utf-8")
    rows, result, settings = _public(folder)
    rows["uploaded"] = f"{datetime.now().astimezone():%Y-%m-%d}, axial-transformers {version('axial-transformers')}"
    return model_card(model, model.config, repository, licence=licence, rows=rows, result=result, settings=settings)


def _public(folder: Path) -> tuple[dict[str, str], Result | None, dict[str, Any] | None]:
    record = read_run(folder)
    if record is None:
        return {}, None, None
    curves, run = read_curves(folder), record.run
    public = replace(
        record,
        run=replace(run, source=None, start_from=run.start_from and PurePath(run.start_from).name),
        facts=replace(record.facts, command=None, resumed_by=None, class_names=None, columns=None),
    )
    found, best = describe_run(public, curves), best_validation(curves)
    data = run.recipe or "its data"
    result = None if best is None else Result(data=data, split="validation", bits_per_dim=best[1])
    return {**found["data"], **found["training"]}, result, to_json(record.run.training)


def describe_upload(repository: str, revision: str | None) -> str:
    """Return in a line what `push_to_hub` sends, and where."""
    files = f"{model_folders.CONFIG}, {model_folders.WEIGHTS}, {hub.CARD}"
    return f"{files} to {hub.address(repository)}, branch {revision or 'main'}"
