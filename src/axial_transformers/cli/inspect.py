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
from axial_transformers.training import RunConfig
from axial_transformers.wording import counted

if TYPE_CHECKING:  # options are read without torch
    from axial_transformers.compression.container import Header
    from axial_transformers.data import Examples

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
    is_id = name.count("/") == 1 and not Path(name).exists() and not is_hub_dataset(name)
    is_archive, is_model = Path(name).suffix.lower() == ".axl", is_id or (Path(name) / "config.json").is_file()
    if others and (is_archive or is_model):
        raise ValueError(f"{name} has its settings already: leave out {' '.join(others)}")
    if is_archive:
        inspect_archive(Path(name), options.json)
    else:
        inspect(name, None if is_model else requested([name, *others])[0], options.json)


def inspect(name: str, run: RunConfig | None, as_json: bool) -> None:
    """Print what a run reads and costs; without a run, what is in the model of this name."""
    from axial_transformers.cli.training import plan, planned, read
    from axial_transformers.decoding.sampling import cache_numbers
    from axial_transformers.models import AxialTransformer
    from axial_transformers.storage.typed_json import to_json
    from axial_transformers.training import read_run
    from axial_transformers.training.costs import parameters, step_costs
    from axial_transformers.training.metrics import read_curves
    from axial_transformers.training.run_page import describe_run

    record = read_run(name) if run is None else None
    if run is None:
        run = record.run if record else RunConfig(model=AxialTransformer.read_config(name))
    facts, found = None, dict[str, str]()
    if record or not (run.source or run.open):
        run = replace(run, training=run.training.resolve_auto())
        costs = step_costs(run.model, run.training)
    else:
        run, examples, _, facts = read(run)
        run, costs = planned(run)
        found = _found(run, examples)
    if as_json:
        numbers, known = cache_numbers(run.model), record.facts if record else facts
        sizes = {"parameters": parameters(run.model), "cache_bytes": {"float32": 4 * numbers, "bfloat16": 2 * numbers}}
        shown = {"run": to_json(run), "facts": known and to_json(known), "step": asdict(costs), **sizes}
        print(json.dumps(shown, default=str))
        return
    print_rows(found | plan(run, costs, facts), name)
    if record:
        for title, rows in describe_run(record, read_curves(record.run.out)).items():
            print_rows(rows, f"{title} of the run")


def _found(run: RunConfig, examples: "Examples") -> dict[str, str]:
    """Return what the data are, as rows (name, value)."""
    import numpy as np

    from axial_transformers.cli.training import decided
    from axial_transformers.data.kinds import KINDS, kind_of
    from axial_transformers.data.loading import files_of
    from axial_transformers.data.scans import is_scan

    model, path = run.model, Path(str(run.source))
    rows = {"kind": KINDS[kind_of(model, run.data.axes)]}
    if path.is_dir() and not is_scan(path):
        of, files, others = files_of(path, run.data)
        rows["files"] = f"{counted(len(files), f'{of} file')}; {counted(len(others), 'other file')} not read"
    seen = np.asarray(examples.spread(max(1, VALUES_SEEN // prod(model.shape))).values[:])
    ends = np.array([seen.min(), seen.max()])
    grid = examples.range.grid
    low, high = grid.floats(ends) if grid else ends
    rows["found"] = f"values {low:g}..{high:g}" + (f", floats in {grid}" if grid else "")
    return rows | decided(run, examples)


def inspect_archive(path: Path, as_json: bool) -> None:
    """Print what an archive holds. Images and weights are not decoded.

    Raises:
        ArchiveError: the header, the description of files or the model's configuration is damaged.
    """
    from axial_transformers.compression.container import read_chunk, read_header
    from axial_transformers.compression.embedded_model import without_weights
    from axial_transformers.storage.files import source_path

    with source_path(path).open("rb") as file:
        header = read_header(file)
        model = without_weights(read_chunk(file, header, 0))[0].config.describe() if header.carries_model else None
    chunks = [chunk.size for chunk in header.chunks]
    stored = 0 if header.stored is None else chunks[header.stored]
    sizes = {"all": header.starts[-1], "model": sum(chunks[: header.of_model]), "stored files": stored}
    (holds, output), name = _held(header), header.fingerprint.hex()
    to_open = command("decompress", *([] if model else ["MODEL"]), path, output) if output else "axial.decompress"
    if as_json:
        found = {"archive": str(path), "bytes": sizes, "holds": holds, "model": model, "fingerprint": name}
        print(json.dumps({**found, "to_open": to_open}))
        return
    rows = {"holds": holds, "bytes": ", ".join(f"{part} {size:,}" for part, size in sizes.items())}
    rows["needs"] = "nothing: it holds its model" if model else f"the model {name[:16]}"
    print_rows(rows | {"to open": to_open}, str(path))
    if model:
        print_rows(model, "model")


def _held(header: "Header") -> tuple[str, str]:
    """Return in a line what the values are and how they return, and a target for them."""
    from axial_transformers.compression.description import Description
    from axial_transformers.data.scans import suffix_of

    if not header.metadata:
        return f"{header.images} examples of {[*header.shape, header.channels]}, from Python", ""
    description = Description.unpack(header.metadata)
    stored = f"; {counted(len(description.stored), 'stored file')}" if description.stored else ""
    if array := description.array:
        return (
            f"{array.name}: {array.dtype} {list(array.shape)}, with equal values{stored}",
            f"restored{suffix_of(Path(array.name))}",
        )
    return f"{counted(len(description.images), 'image')} with equal values{stored}", "restored/"
