"""axial compress: images or a scan to one file, losslessly."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from axial_transformers.cli.commands import Compress
from axial_transformers.cli.console import print_rows, say
from axial_transformers.compression.archive import Written, require_free, tell, write_contents
from axial_transformers.compression.contents import Contents, read_contents
from axial_transformers.data import open_source
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import Bar, bar
from axial_transformers.recipes.for_archive import prepare_for_archive
from axial_transformers.storage.model_folders import WEIGHTS, locate
from axial_transformers.training.trained_model import open_model
from axial_transformers.wording import counted


def main(options: Compress) -> None:
    """Run the command."""
    name, source, archive = options.words
    require_free(archive, source, options.force)
    contents = None
    model: str | Path
    if name is None:
        model, contents = _train(options, source, archive)
    else:
        model = name
    trained = open_model(model, options.weights, "cpu")
    trained.require_columns(source)
    if contents is None:
        data = replace(trained.data, axes=options.axes or trained.data.axes, key=options.key or trained.data.key)
        contents = read_contents(open_source(source, data, bar("reading")), trained.model.config, options.only_data)
        tell(contents)
    written = write_contents(
        trained.model,
        contents,
        archive,
        embed=options.embed,
        force=options.force,
        verify=options.verify,
        progress=bar("compressing"),
    )
    codecs = _compared(written, model) if options.compare else {}
    tiles, values = contents.tiles, contents.values
    rate = 8 * (written.size - len(contents.stored)) / values
    if options.json:
        metrics = {
            "archive": str(archive), "images": len(tiles), "bytes": written.size, "bits_per_dim": rate,
            "model_bytes": written.model_size, "input_bytes": written.contents.input_size,
            "stored_bytes": len(written.contents.stored), "compared": codecs or None,
        }  # fmt: skip
        print(json.dumps(metrics))
        return
    array = written.contents.description.array
    _print(written, archive, "volume" if array and array.axes else trained.kind if array else "image", rate)
    bits = {codec: 8 * size / values for codec, size in codecs.items()}
    print_rows({codec: f"{size:>13,} bytes  {bits[codec]:.4f} bits/dim" for codec, size in codecs.items()})


def _train(options: Compress, source: str | Path, archive: Path) -> tuple[Path, Contents]:
    """Train a model of a source; return the folder of its run, beside the archive, and what goes into the archive."""
    folder = archive.with_name(f"{archive.name}.run")
    settings: dict[str, Any] = {
        "training.minutes": options.minutes,
        "data.axes": options.axes,
        "data.key": options.key,
    }
    if options.size is not None and len(options.size) > 1:
        settings["data.size"] = options.size
    elif options.size is not None:
        settings |= {"data.size": options.size[0], "data.cut": "tiles"}
    ready = prepare_for_archive(
        source,
        folder,
        {setting: value for setting, value in settings.items() if value is not None},
        start_from=options.start_from,
        only_data=options.only_data,
        force=options.force,
        progress=bar,
    )
    result = ready.train(Bar("training"), command=("compress", str(source), str(archive)))
    if result.ending == "interrupted":
        say(f"stopped at step {result.step}: the archive gets the best weights so far; Ctrl-C again leaves it out")
    say(f"the training is in {folder}: the same command continues it; remove the folder to begin anew")
    return folder, ready.contents


def _compared(written: Written, model: str | Path) -> dict[str, int]:
    """Return bytes of the archive with its weights, without the files that it stores, and of other codecs."""
    weights = 0 if written.model_size else (locate(str(model)) / WEIGHTS).stat().st_size
    codecs = coded_sizes(written.contents.sizes, written.contents.example, bar)
    sizes = {f"{name}, {way}": size for name, ways in codecs.items() for way, size in ways.items()}
    sizes["archive, weights counted"] = written.size - len(written.contents.stored) + weights
    return dict(sorted(sizes.items(), key=lambda each: each[1]))


def _print(written: Written, archive: Path, kind: str, rate: float) -> None:
    tiles, examples = len(written.contents.tiles), len(written.contents.tiles.arrays)
    count = f"{counted(tiles, 'tile')} of {counted(examples, kind)}" if tiles > examples else counted(examples, kind)
    print(f"{archive}: {count}, {written.size:,} bytes")
    print(f"{rate:.4f} bits/dim")
    if written.model_size:
        print(f"holds its model, with rounded weights: {written.model_size:,} bytes")
    if written.contents.stored:
        stored = len(written.contents.description.stored)
        print(f"stored, not coded by the model: {counted(stored, 'file')}, {len(written.contents.stored):,} bytes")
    ratio = written.contents.input_size / written.size
    print(f"input {written.contents.input_size:,} bytes, archive {written.size:,} bytes, ratio {ratio:.2f}")
