"""axial compress: images or a scan to one file, losslessly."""

import json
import time
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from cyclopts import Parameter

from axial_transformers.cli.console import print_rows, say
from axial_transformers.cli.options import Weights, sorted_words
from axial_transformers.progress import Bar, bar
from axial_transformers.wording import counted, duration

if TYPE_CHECKING:  # options are read without torch
    from axial_transformers.compression.archive import Written
    from axial_transformers.compression.contents import Contents
    from axial_transformers.models import AxialTransformer
    from axial_transformers.pictures.other_codecs import Coded


@dataclass(frozen=True)
class Compress:
    """Compress images, an array, a table, a scan or clips into one file, losslessly.

    A small model is trained on the source for five minutes, or for as many as --minutes says, and stored in the file.
    With MODEL, that is stored and codes the data.

        axial compress icons/ icons.axl
        axial compress head.nii.gz head.axl --minutes 60
        axial compress runs/fashion_mnist fashion_mnist.npz all.axl
    """

    USAGE: ClassVar[str] = "[MODEL] SOURCE ARCHIVE [OPTIONS]"

    model: str | Path | None = None
    """Folder of a run or of an exported model, or a hub id. Leave it out, and one is trained."""
    source: str | Path | None = None
    """What axial train reads, or an image. Files come back with the same values, in their own format or the nearest
    lossless one."""
    archive: Path | None = None
    """The file to write, NAME.axl."""
    _: KW_ONLY
    minutes: float | None = None
    """Minutes of training; 5 without MODEL. Ctrl-C ends it early; the same command goes on with it, from the folder
    ARCHIVE.run."""
    start_from: Annotated[str | None, Parameter(name="--from")] = None
    """Begin the training with the weights of this model in place of random ones."""
    size: Annotated[tuple[int, ...] | None, Parameter(name="--data.size")] = None
    """The side of tiles of images, or the sides of blocks of an array or scan, such as 8 8 128, of a trained model."""
    axes: Annotated[str | None, Parameter(name="--data.axes")] = None
    """Axes of an array, one letter each, such as NCHW; as for axial train."""
    key: Annotated[str | None, Parameter(name="--data.key")] = None
    """Name of the array within an .npz file that the model codes; the others are stored."""
    decimal: Annotated[Literal[",", "."] | None, Parameter(name="--data.decimal")] = None
    """What stands before the decimals of a table; as for axial train."""
    embed: bool | None = None
    """Store the model, with rounded weights, so that the archive needs nothing else. By default, the archive names a
    model of this package where that saves 5 %. With --no-embed, decompressing needs MODEL."""
    only_data: bool = False
    """Leave out the files of a folder that are no data."""
    force: bool = False
    """Replace the archive. Write one that is larger than the source, or than zlib of its values."""
    verify: bool = True
    """Decompress and compare before the file appears."""
    compare: bool = False
    """Also print bytes, bits/dim and speed of PNG, WebP and xz, with the extra `codecs` of JPEG XL, and of Tomoz if it
    is installed."""
    weights: Weights = "ema"
    json: bool = False
    """Print one JSON object."""

    @property
    def words(self) -> tuple[str | Path | None, str, Path]:
        """Model, source and archive; the model is None if one is to be trained."""
        model, source, archive = sorted_words(self.model, self.source, self.archive, "SOURCE and ARCHIVE")
        of_new = self.minutes, self.start_from, self.size
        if model is not None and of_new != (None, None, None):
            raise ValueError(
                f"--minutes, --from and --data.size are of a new model: leave out {model}, or begin with it, by"
                f" --from {model}"
            )
        return model, str(source), archive


def main(options: Compress) -> None:
    """Run the command."""
    from axial_transformers.compression.archive import require_free, tell, write_contents
    from axial_transformers.compression.contents import read_contents
    from axial_transformers.data import open_source
    from axial_transformers.training.trained_model import open_model

    name, source, archive = options.words
    require_free(archive, source, options.force)
    contents = base = None
    model = name
    seconds = 0.0
    if model is None:
        model, contents, base, seconds = _train(options, source, archive)
    trained = open_model(model, options.weights, "cpu")
    trained.require_columns(source)
    if contents is None:
        opened = open_source(source, replace(trained.data, **_reading(options)), bar("reading files"))
        contents = read_contents(opened, trained.model.config, options.only_data)
        tell(contents)
    start = time.perf_counter()
    written = write_contents(
        trained.model,
        contents,
        archive,
        embed=options.embed,
        base=base,
        force=options.force,
        verify=options.verify,
        progress=bar("compressing: chunks"),
    )
    seconds += time.perf_counter() - start
    compared, difference = _compared(written, model, seconds) if options.compare else ([], "")
    cost = duration(seconds) if name is None else f"{duration(seconds)} and the training of {name}"
    stored = len(contents.stored)
    rate = 8 * (written.size - stored) / contents.values
    if options.json:
        sizes = {coded.name: {"bytes": coded.bytes, "seconds": coded.seconds} for coded in compared}
        metrics = {
            "archive": str(archive), "images": len(contents.tiles), "bytes": written.size,
            "bits_per_dim": rate, "model_bytes": written.model_size, "input_bytes": contents.input_size,
            "stored_bytes": stored, "compared": sizes or None,
        }  # fmt: skip
        print(json.dumps(metrics))
        return
    _print(written, archive, trained.kind, rate)
    if compared:
        _print_compared(compared, contents)
        print(f"{difference}, for {cost}")


def _reading(options: Compress) -> dict[str, Any]:
    """Return the settings of data that are given."""
    settings = {"axes": options.axes, "key": options.key, "decimal": options.decimal}
    return {name: value for name, value in settings.items() if value is not None}


class _Trained(NamedTuple):
    folder: Path
    contents: "Contents"
    base: "AxialTransformer | None"
    """The model of the package that was changed; None: the model is a new one."""
    seconds: float
    """It took so long to decide what to train, and to train it."""


def _train(options: Compress, source: str | Path, archive: Path) -> _Trained:
    """Train a model of a source, in a folder beside the archive."""
    from axial_transformers.models import AxialTransformer
    from axial_transformers.recipes.for_archive import prepare_for_archive
    from axial_transformers.storage.model_folders import SHIPPED

    folder = archive.with_name(f"{archive.name}.run")
    settings: dict[str, Any] = {f"data.{name}": value for name, value in _reading(options).items()}
    if options.minutes is not None:
        settings["training.minutes"] = options.minutes
    if options.size is not None:
        settings["data.size"] = options.size
        if len(options.size) == 1:
            settings |= {"data.size": options.size[0], "data.cut": "tiles"}
    start = time.perf_counter()
    ready = prepare_for_archive(
        source,
        folder,
        settings,
        start_from=options.start_from,
        embed=options.embed is not None,
        only_data=options.only_data,
        force=options.force,
        progress=bar,
    )
    decided = time.perf_counter()
    result = ready.train(Bar("training: steps"), command=("compress", str(source), str(archive)))
    if result.ending == "interrupted":
        say(f"stopped at step {result.step}: the archive gets the best weights so far; Ctrl-C again leaves it out")
    say(f"the training is in {folder}: the same command continues it; remove the folder to begin anew")
    base = AxialTransformer.from_pretrained(SHIPPED / ready.base) if ready.base and options.embed is None else None
    return _Trained(folder, ready.contents, base, decided - start + result.seconds)


def _compared(written: "Written", model: str | Path, seconds: float) -> "tuple[list[Coded], str]":
    """Return what this archive with its weights, but without stored files, and other codecs make of the examples.

    The smallest comes first. The text says by how much the archive is smaller or larger than others.
    """
    from axial_transformers.pictures.other_codecs import Coded, coded_sizes, verdict
    from axial_transformers.storage.model_folders import WEIGHTS, locate

    size = written.size - len(written.contents.stored)
    what = "weights counted"
    if written.base:
        what = f"beside the model {written.base}"
    elif not written.model_size:
        size += (locate(str(model)) / WEIGHTS).stat().st_size
    own = Coded("archive", what, size, seconds)
    others = coded_sizes([*written.contents.examples()], bar)
    return sorted([own, *others], key=lambda coded: coded.bytes), verdict(size, others)


def _print_compared(compared: "list[Coded]", contents: "Contents") -> None:
    """Print bytes, bits/dim and speed of each codec."""
    megabytes = contents.values * contents.tiles.range.type.itemsize / 1e6
    rows = {}
    for coded in compared:
        rate = 8 * coded.bytes / contents.values
        speed = f"{coded.seconds:>9,.1f} s  {megabytes / coded.seconds:>8.4f} MB/s"
        rows[coded.name] = f"{coded.bytes:>13,} bytes  {rate:.4f} bits/dim  {speed}"
    print_rows(rows)


def _print(written: "Written", archive: Path, kind: str, rate: float) -> None:
    contents = written.contents
    array = contents.description.array
    if array is None:
        kind = "image"
    elif array.axes:
        kind = "volume"
    tiles = len(contents.tiles)
    examples = len(contents.tiles.arrays)
    count = counted(examples, kind)
    if tiles > examples:
        count += f" in {counted(tiles, 'tile' if kind == 'image' else 'block')}"
    print(f"{archive}: {count}, {written.size:,} bytes")
    print(f"{rate:.4f} bits/dim")
    if written.base and written.model_size:
        print(f"needs the model {written.base} of this package, whose changes it holds: {written.model_size:,} bytes")
    elif written.base:
        print(f"needs the model {written.base} of this package")
    elif written.model_size:
        print(f"holds its model, with rounded weights: {written.model_size:,} bytes")
    if contents.stored:
        files = counted(len(contents.description.stored), "file")
        print(f"stored, not coded by the model: {files}, {len(contents.stored):,} bytes")
    print(f"opening it takes about {duration(written.seconds)} on as many threads")
    print(
        f"input {contents.input_size:,} bytes, archive {written.size:,} bytes,"
        f" ratio {contents.input_size / written.size:.2f}"
    )
