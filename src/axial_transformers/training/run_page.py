"""RUN/index.html: the samples, curves, data and settings of a run."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from PIL import Image

from axial_transformers.pictures import html
from axial_transformers.storage.files import require_inside, written_whole
from axial_transformers.training.metrics import VALIDATION, read_curves
from axial_transformers.training.run_description import describe_run
from axial_transformers.training.run_folder import RunRecord, read_run

PAGE, BITS = "index.html", "bits.png"
GRIDS = 6


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
    model = {**run.model.describe(), "parameters": f"{record.facts.parameters:,}"}
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
