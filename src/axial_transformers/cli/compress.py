"""axial compress: images or a scan to one file, losslessly."""

import json

from axial_transformers.cli.commands import Compress
from axial_transformers.cli.comparison import compared, print_comparison
from axial_transformers.cli.fitting import fitted
from axial_transformers.compression.archive import NoGainError
from axial_transformers.compression.files.file_archive import compress_files, require_free
from axial_transformers.messages import Message
from axial_transformers.progress import bar
from axial_transformers.storage.model_folders import WEIGHTS, locate
from axial_transformers.training.trained_model import open_model
from axial_transformers.wording import counted

_KINDS = {"pictures": "image", "videos": "video", "scan": "volume"}
"""What an example of an archive is called; of an array, by the model."""


def main(options: Compress) -> None:
    """Run the command."""
    try:
        _compress(options)
    except NoGainError as error:
        way = "--fit MINUTES lets a model learn the source" if options.fit is None else "or train for more minutes"
        raise NoGainError(Message("{}; {}", error, way)) from error


def _compress(options: Compress) -> None:
    name, source, archive = options.words
    require_free(archive, source, options.force)
    trained = open_model(name or fitted(options, source, archive), options.weights, "cpu")
    model, other_sizes = trained.model, options.other_sizes
    if other_sizes == "auto":
        other_sizes = "tile" if trained.data.fit == "tiles" else "store"
    written = compress_files(
        model, source, archive, embed=options.embed or name is None, only_if_smaller=True, other_sizes=other_sizes,
        drop_header=options.drop_header, verify=options.verify, force=options.force, progress=bar("compressing"),
    )  # fmt: skip
    kind = _KINDS.get(next(iter(written.description)), trained.kind)
    count, size = len(written.images), written.size - sum(written.file_sizes)
    comparison, rate = None, {"archive": 8 * size / written.images.values if count else None}
    if options.compare and count:
        weights = 0 if name is None or options.embed else (locate(name) / WEIGHTS).stat().st_size
        comparison = compared(written, weights, kind)
    ratio = written.input_size / written.size
    if options.json:
        metrics = {
            "archive": str(archive), "images": count, "bytes": written.size, "bits_per_dim": rate,
            "model_bytes": written.model_size, "input_bytes": written.input_size, "ratio": ratio,
            "webp": {"images": len(written.webp), "bytes": sum(written.webp)},
            "files": {"number": len(written.file_sizes), "bytes": sum(written.file_sizes)},
            "compared": comparison,
        }  # fmt: skip
        print(json.dumps(metrics))
        return
    tiled = kind == "video" or written.examples < count
    tiles = f"{counted(count, 'tile')} of {counted(written.examples, kind)}"
    print(f"{archive}: {tiles if tiled else counted(count, kind)}, {written.size:,} bytes")
    if count:
        print(f"{rate['archive']:.4f} bits/dim")
    if written.model_size:
        print(f"holds its model, with rounded weights: {written.model_size:,} bytes")
    if written.webp:
        print(f"stored as WebP, not by the model: {counted(len(written.webp), 'image')}, {sum(written.webp):,} bytes")
    if sizes := written.file_sizes:
        what = "headers" if kind == "volume" else "files"
        print(f"stored as {what}, not by the model: {counted(len(sizes), 'file')}, {sum(sizes):,} bytes")
    print(f"input {written.input_size:,} bytes, archive {written.size:,} bytes, ratio {ratio:.2f}")
    if comparison:
        print_comparison(comparison, kind)
