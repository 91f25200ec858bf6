"""axial inspect: data, what `axial train` would do with them, models and archives."""

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from axial_transformers.cli.console import command, print_rows
from axial_transformers.cli.parsing import parse_known
from axial_transformers.cli.train import requested
from axial_transformers.data import is_hub_dataset
from axial_transformers.progress import bar
from axial_transformers.training import RunConfig
from axial_transformers.wording import counted

if TYPE_CHECKING:  # options are read without torch
    from axial_transformers.compression.container import Header
    from axial_transformers.recipes.prepare import Prepared
    from axial_transformers.training import Facts
    from axial_transformers.training.costs import StepCosts

VALUES_SEEN = 1 << 22
"""Most values that are looked at, about."""


@dataclass(frozen=True)
class Inspect:
    """Show data as axial train reads them, and what it would train; or a model, or an archive.

    It takes the settings of axial train, too. Compare memory and FLOPs of a step with a device's data sheet.

        axial inspect my_photos/               data: kind, number, splits, values; then the plan of axial train
        axial inspect imagenet32 --model.dim 1024
        axial inspect runs/digits              a run, an exported model, or a hub id
        axial inspect photos.axl               an archive: model, files, sizes, how to open it
    """

    USAGE: ClassVar[str] = "SOURCE|RECIPE|MODEL|ARCHIVE [OPTIONS]"

    name: str
    """A source, a recipe, with or without a source after it; a run, a model, or an archive."""
    _: KW_ONLY
    json: bool = False
    """Print one JSON object; bytes, FLOPs."""


def main(words: Sequence[str]) -> None:
    """Run the command."""
    options, others = parse_known(Inspect, words)
    name = options.name
    is_archive = Path(name).suffix.lower() == ".axl"
    has_model = is_model(name)
    if others and (is_archive or has_model):
        if not Path(name).exists():
            raise FileNotFoundError(f"{name}: no such file or folder, and a model of the hub has its settings already")
        raise ValueError(f"{name} has its settings already: leave out {' '.join(others)}")
    if is_archive:
        inspect_archive(Path(name), options.json)
    elif has_model:
        inspect_model(name, options.json)
    else:
        inspect_data(name, requested([name, *others])[0], options.json)


def is_model(name: str) -> bool:
    """Return True for the folder of a model or a run, and for what can only be a hub id."""
    if (Path(name) / "config.json").is_file():
        return True
    return name.count("/") == 1 and not Path(name).exists() and not is_hub_dataset(name)


def inspect_model(name: str, as_json: bool) -> None:
    """Print what a model is and what a step of its training costs, and the records of a run."""
    from axial_transformers.cli.plan import plan
    from axial_transformers.models import AxialTransformer
    from axial_transformers.training import read_run
    from axial_transformers.training.metrics import read_curves
    from axial_transformers.training.run_page import describe_run

    record = read_run(name)
    run, costs = _priced(record.run if record else RunConfig(model=AxialTransformer.read_config(name)))
    if as_json:
        print_json(run, costs, record.facts if record else None)
        return
    print_rows(plan(run, costs), name)
    if record:
        for title, rows in describe_run(record, read_curves(record.run.out)).items():
            print_rows({key: value.replace("`", "") for key, value in rows.items()}, f"{title} of the run")


def inspect_data(name: str, run: RunConfig, as_json: bool) -> None:
    """Print what a run reads and costs; of a recipe without data, what it costs."""
    from axial_transformers.cli.plan import plan
    from axial_transformers.recipes.prepare import prepare

    data: dict[str, str] = {}
    facts = None
    if run.source or run.open:
        prepared = prepare(run, progress=bar)
        run, costs, facts = prepared.run, prepared.costs, prepared.facts
        data = _described(prepared)
    else:
        run, costs = _priced(run)
    if as_json:
        print_json(run, costs, facts)
    else:
        print_rows(data | plan(run, costs, facts), name)


def _priced(run: RunConfig) -> "tuple[RunConfig, StepCosts]":
    """Return the run with what `auto` means on this machine, and what a step costs."""
    from axial_transformers.training.costs import step_costs

    run = replace(run, training=run.training.resolve_auto())
    return run, step_costs(run.model, run.training)


def print_json(run: RunConfig, costs: "StepCosts", facts: "Facts | None") -> None:
    """Print a run, facts about its data, and the sizes of its model, as one object."""
    from axial_transformers.decoding.sampling import cache_numbers
    from axial_transformers.storage.typed_json import to_json
    from axial_transformers.training.costs import parameters

    numbers = cache_numbers(run.model)
    shown = {
        "run": to_json(run),
        "facts": facts and to_json(facts),
        "step": asdict(costs),
        "parameters": parameters(run.model),
        "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers},
    }
    print(json.dumps(shown, default=str))


def _described(prepared: "Prepared") -> dict[str, str]:
    """Return what the data are, as rows (name, value)."""
    import numpy as np

    from axial_transformers.data.kinds import KINDS, kind_of

    examples, model, listing = prepared.examples, prepared.run.model, prepared.listing
    rows = {"kind": KINDS[kind_of(model, prepared.run.data.axes)]}
    if listing.all and not listing.is_one_file:
        rows["files"] = counted(len(listing.files), f"{listing.kind} file")
        if listing.others:
            rows["files"] += f"; {counted(len(listing.others), 'other file')} not read"
    seen = np.asarray(examples.spread(max(1, VALUES_SEEN // prod(model.shape))).values[:])
    ends = np.array([seen.min(), seen.max(), model.lowest, model.highest])
    grid = examples.range.grid
    low, high, lowest, highest = grid.floats(ends) if grid else ends
    rows["found"] = f"values {low:g}..{high:g} to train on; the model is for {lowest:g}..{highest:g}"
    if grid:
        rows["found"] += f", floats in {grid}"
    if prepared.why_values:
        rows["decided"] = prepared.why_values
    return rows


def inspect_archive(path: Path, as_json: bool) -> None:
    """Print what an archive holds. Images and weights are not decoded.

    Raises:
        ArchiveError: the header, the description of files or the model's configuration is damaged.
    """
    from axial_transformers.compression.container import opened, read_chunk, read_header
    from axial_transformers.compression.embedded_model import without_weights

    with opened(path) as file:
        header = read_header(file)
        holds_model = header.carries_model and header.needs is None
        model = without_weights(read_chunk(file, header, 0))[0].config.describe() if holds_model else None
    chunks = [chunk.size for chunk in header.chunks]
    stored = 0 if header.stored_chunk is None else chunks[header.stored_chunk]
    sizes = {"all": header.starts[-1], "model": sum(chunks[: header.model_chunks]), "stored files": stored}
    holds, target = _held(header)
    needs = header.needs and header.needs.name
    to_open = "axial.decompress"
    if target:
        words = ["MODEL", path, target] if needs == "" else [path, target]
        to_open = command("decompress", *words)
    if as_json:
        facts = {
            "archive": str(path),
            "bytes": sizes,
            "holds": holds,
            "model": model,
            "needs": needs,
            "fingerprint": header.fingerprint.hex(),
            "to_open": to_open,
        }
        print(json.dumps(facts))
        return
    pieces = [f"{size:,} of the {part}" for part, size in sizes.items() if size and part != "all"]
    rows = {
        "holds": holds,
        "bytes": ", ".join([f"{sizes['all']:,}", *pieces]),
        "needs": _needed(header),
        "to open": to_open,
    }
    print_rows(rows, str(path))
    if model:
        print_rows(model, "model")


def _needed(header: "Header") -> str:
    """Return what opening an archive needs."""
    needs = header.needs
    if needs is None:
        return "nothing: it holds its model"
    if not needs.name:
        return f"the model {needs.fingerprint.hex()[:16]}"
    held = ", whose changes it holds" if header.carries_model else ""
    return f"the model {needs.name} of axial-transformers {needs.version} or later{held}"


def _held(header: "Header") -> tuple[str, str]:
    """Return in a line what the values are and how they return, and a target for them."""
    import numpy as np

    from axial_transformers.compression.description import Description
    from axial_transformers.data.scans import suffix_of

    if not header.metadata:
        return f"{header.images} examples of {[*header.shape, header.channels]}, from Python", ""
    description = Description.unpack(header.metadata)
    stored = f"; {counted(len(description.stored), 'stored file')}" if description.stored else ""
    if array := description.array:
        return (
            f"{array.name}: {np.dtype(array.dtype)} {list(array.shape)}, with the same values{stored}",
            f"restored{suffix_of(Path(array.name))}",
        )
    return f"{counted(len(description.images), 'image')}, with the same pixels{stored}", "restored/"
