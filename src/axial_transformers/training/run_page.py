"""RUN/index.html: the curves, samples, data and settings of a run."""

import shlex
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from axial_transformers.pictures import Look, html, save_grid
from axial_transformers.pictures.charts import SMALL, ChartLine, line_chart
from axial_transformers.storage.files import require_inside, written_whole
from axial_transformers.storage.locks import holder
from axial_transformers.training.batches import TrainingExamples
from axial_transformers.training.metrics import VALIDATION, Curve, read_curves
from axial_transformers.training.run_description import best_validation, describe_run
from axial_transformers.training.run_folder import RunRecord, read_run

PAGE, DATA, BITS = "index.html", "data.png", "bits.png"
SHARE = 0.02
EXAMPLES, MAX_VALUES = 24, 1 << 20
GRIDS = 6
MAX_PIXELS, FEWER_PIXELS = 1024, 512
REFRESH = 60


class RunPage:
    """The page of a run that trains; leaving the context writes the last one. A failure only warns."""

    def __init__(self, folder: Path | None, record: RunRecord) -> None:
        self.ending: str | None = None
        """Why and when the run ended, for the last page."""
        self._folder, self._record, self._warned, self._next = folder, record, False, 0.0

    def begin(self, status: str, examples: TrainingExamples) -> Path | None:
        """Write the first page; return its path."""
        if self._folder is None:
            return None
        with self._warning():
            if not (self._folder / DATA).is_file():
                write_examples(self._folder / DATA, examples, self._record.run.data.axes)
        self.write(status)
        return None if self._warned else self._folder / PAGE

    def write(self, status: str) -> None:
        if self._folder is None or time.monotonic() < self._next:
            return
        start = time.monotonic()
        with self._warning():
            _write(self._folder, self._record, status, REFRESH)
        self._next = time.monotonic() + (time.monotonic() - start) / SHARE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            with self._warning():
                _write(self._folder, self._record, self.ending or f"ended by an error: {error or kind}")

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any kind: what is only looked at stops no run
            if not self._warned:
                warnings.warn(f"the run goes on, but its page, {PAGE}, could not be written: {error}", stacklevel=4)
            self._warned = True


def write_page(folder: Path, target: Path | None = None, sections: Sequence[str] = ()) -> Path:
    """Write the page of a run that has ended, and return its path; `sections` are HTML."""
    record = read_run(folder)
    if record is None:
        raise ValueError(f"{folder} holds no run: only a run has a page")
    return _write(folder, record, target=target, sections=sections)


def _write(
    folder: Path,
    record: RunRecord,
    status: str | None = None,
    refresh: int | None = None,
    target: Path | None = None,
    sections: Sequence[str] = (),
) -> Path:
    path = target or require_inside(folder / PAGE, folder)
    with written_whole(path) as aside:
        text = _page(folder, record, status, refresh, sections)
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files are not always UTF-8
    return path


def write_examples(path: Path, examples: TrainingExamples, axes: str | None) -> None:
    """Write a sheet of some examples, evenly spaced."""
    total, *shape = examples.values.shape
    count = max(1, min(EXAMPLES, total, MAX_VALUES // int(np.prod(shape))))
    shown = examples.values[np.linspace(0, total - 1, count).astype(np.int64)]
    save_grid(path, np.asarray(shown), look=Look.of(examples, axes))


def _page(folder: Path, record: RunRecord, status: str | None, refresh: int | None, sections: Sequence[str]) -> str:
    curves = read_curves(folder)
    rows = describe_run(record, curves)
    name = f"Training run: {record.run.recipe or folder.resolve().name}"
    parts = [
        f"<h1>{escape(name)}</h1>",
        _status(folder, record, curves, status, refresh),
        _samples(folder),
        *sections,
        _curves(record, curves),
        _bits(folder),
        _next_steps(folder, record),
        _data(folder, rows["data"]),
        _settings(record, rows["training"]),
        html.section("Machine", "", html.facts(rows["machine"])),
    ]
    return html.document(name, [part for part in parts if part], refresh)


def _status(
    folder: Path, record: RunRecord, curves: Mapping[str, Curve], status: str | None, refresh: int | None
) -> str:
    if status is None:
        newest = max((points[-1][0] for points in curves.values()), default=0.0)
        trainer = holder(folder)
        state = f"training, by {trainer}" if trainer else "not running"
        status = f"{state}, newest metrics of step {newest:,.0f} of {record.run.training.steps:,}"
    written = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"
    if refresh:
        anew = shlex.join(["axial", "inspect", str(folder), "--page"])
        written += f"; long ago, if the run was killed: {anew} tells whether it runs"
    facts = {"state": status, "written": written}
    if best := best_validation(curves):
        step, bits = best
        facts["best validation"] = f"{bits:.4f} bits/dim at step {step:,.0f}"
    return html.facts(facts)


def _curves(record: RunRecord, curves: Mapping[str, Curve]) -> str:
    training, validation = (curves.get(name, []) for name in ("bits_per_dim", f"{VALIDATION}bits_per_dim"))
    if not training and not validation:
        return html.section("Curves", f"None yet: the first point is at step {record.run.training.log_every:,}.")
    lines = [ChartLine(training, name="training"), ChartLine(validation, best=True, name="validation")]
    chart = line_chart(lines, "bits/dim by step")
    others = {
        "learning_rate": "learning rate",
        "examples_per_second": "examples/s",
        "gradient_norm": f"gradient norm, before clipping at {record.run.training.clip_norm:g}",
    }
    small = [
        html.figure(line_chart([ChartLine(curves[name])], title, size=SMALL), title)
        for name, title in others.items()
        if name in curves
    ]
    return html.section(
        "Curves",
        "Bits per dimension by step; lower is better. The validation examples are evaluated with the EMA weights. "
        "Values far above the others are drawn at the upper edge.",
        html.figure(chart),
        html.tiles(small),
    )


def _samples(folder: Path) -> str:
    grids = sorted((folder / "samples").glob("step-*.png"))
    if not grids:
        return ""
    chosen = sorted({round(i) for i in np.linspace(0, len(grids) - 1, min(GRIDS, len(grids)))})
    *earlier, newest = [grids[i] for i in chosen]
    return html.section(
        "Samples",
        "The newest first, then earlier ones, none left out. They are of the EMA weights (averaged).",
        f'<div class="half">{html.figure(_picture(newest, folder, MAX_PIXELS), _step_of(newest))}</div>',
        html.tiles([html.figure(_picture(each, folder, FEWER_PIXELS), _step_of(each)) for each in earlier]),
    )


def _step_of(grid: Path) -> str:
    digits = grid.stem.removeprefix("step-")
    return escape(f"step {int(digits):,}" if digits.isdecimal() else grid.stem)


def _bits(folder: Path) -> str:
    figure = _figure(folder, BITS)
    text = "Validation examples, and below each its bits given the positions before, by the newest averaged weights."
    return html.section("Bits of each position", text, figure) if figure else ""


def _data(folder: Path, rows: Mapping[str, str]) -> str:
    grid = _figure(folder, DATA, "Examples, evenly spaced over those that train.")
    return html.section("Data", "", html.facts(rows), grid)


def _figure(folder: Path, name: str, caption: str = "") -> str:
    path = folder / name
    return html.figure(_picture(path, folder, MAX_PIXELS), caption) if path.is_file() else ""


def _settings(record: RunRecord, rows: Mapping[str, str]) -> str:
    run, parameters = record.run, f"{record.facts.parameters:,}"
    facts = {"model": record.model_name, **run.model.describe(), "parameters": parameters}
    every = {
        f"{part}.{name}".replace("_", "-"): str(value)
        for part, config in (("model", run.model), ("training", run.training))
        for name, value in asdict(config).items()
    }
    return html.section("Settings", "", html.facts({**facts, **rows}), html.details("all settings", html.facts(every)))


def _next_steps(folder: Path, record: RunRecord) -> str:
    if record.run.source is None:
        return ""
    run = shlex.quote(str(folder))
    steps = {
        f"axial sample {run} --count 64": "sample new examples",
        f"axial evaluate {run}": "measure bits/dim",
        f"axial train {run}": "go on with the run",
        "axial inspect my_data/": "see how your own data is read",
    }
    rows = (f"{command:<{max(map(len, steps))}}  # {what}" for command, what in steps.items())
    return html.section("Next steps", "", f"<pre><code>{escape(chr(10).join(rows))}</code></pre>")


def _picture(path: Path, folder: Path, side: int) -> str:
    return html.stored_image(require_inside(path, folder), side)
