"""axial compress: images or a scan to one file, losslessly."""

import json

from axial_transformers.cli.commands import Compress
from axial_transformers.cli.console import print_rows
from axial_transformers.cli.fitting import fitted
from axial_transformers.compression.files.file_archive import Written, compress_files, require_free
from axial_transformers.pictures.other_codecs import coded_sizes
from axial_transformers.progress import bar
from axial_transformers.storage.model_folders import WEIGHTS, locate
from axial_transformers.training.trained_model import open_model
from axial_transformers.wording import counted

_KINDS = {"pictures": "image", "videos": "video", "scan": "volume"}
"""What an example of an archive is called; of an array, by the model."""


def main(options: Compress) -> None:
    """Run the command."""
    name, source, archive = options.words
    require_free(archive, source, options.force)
    trained = open_model(name or fitted(options, source, archive), options.weights, "cpu")
    other_sizes = options.other_sizes
    if other_sizes == "auto":
        other_sizes = "tile" if trained.data.fit == "tiles" else "store"
    embed = options.embed or name is None
    written = compress_files(
        trained.model, source, archive, embed=embed, only_if_smaller=True, other_sizes=other_sizes,
        drop_header=options.drop_header, verify=options.verify, force=options.force, progress=bar("compressing"),
    )  # fmt: skip
    codecs = dict[str, int]()
    if options.compare and len(written.images):
        codecs = _compared(written, 0 if embed else (locate(str(name)) / WEIGHTS).stat().st_size)
    size = written.size - sum(written.file_sizes)
    rate = 8 * size / written.images.values if len(written.images) else None
    if options.json:
        metrics = {
            "archive": str(archive), "images": len(written.images), "bytes": written.size, "bits_per_dim": rate,
            "model_bytes": written.model_size, "input_bytes": written.input_size,
            "webp": {"images": len(written.webp), "bytes": sum(written.webp)},
            "files": {"number": len(written.file_sizes), "bytes": sum(written.file_sizes)},
            "compared": codecs or None,
        }  # fmt: skip
        print(json.dumps(metrics))
        return
    _print(written, str(archive), _KINDS.get(next(iter(written.description)), trained.kind), rate)
    bits = {codec: 8 * size / written.images.values for codec, size in codecs.items()}
    print_rows({codec: f"{size:>13,} bytes  {bits[codec]:.4f} bits/dim" for codec, size in codecs.items()})


def _compared(written: Written, weights: int) -> dict[str, int]:
    """Return bytes of the archive with its weights, without the files that it keeps, and of other codecs."""
    codecs = coded_sizes(written.images.sizes, written.images.example, bar)
    sizes = {f"{name}, {way}": size for name, ways in codecs.items() for way, size in ways.items()}
    sizes["archive, weights counted"] = written.size - sum(written.file_sizes) + weights
    return dict(sorted(sizes.items(), key=lambda each: each[1]))


def _print(written: Written, archive: str, kind: str, rate: float | None) -> None:
    count = len(written.images)
    tiled = kind == "video" or written.examples < count
    tiles = f"{counted(count, 'tile')} of {counted(written.examples, kind)}"
    print(f"{archive}: {tiles if tiled else counted(count, kind)}, {written.size:,} bytes")
    if rate is not None:
        print(f"{rate:.4f} bits/dim")
    if written.model_size:
        print(f"holds its model, with rounded weights: {written.model_size:,} bytes")
    if written.webp:
        print(f"stored as WebP, not by the model: {counted(len(written.webp), 'image')}, {sum(written.webp):,} bytes")
    if sizes := written.file_sizes:
        what = "headers" if kind == "volume" else "files"
        print(f"stored as {what}, not by the model: {counted(len(sizes), 'file')}, {sum(sizes):,} bytes")
    ratio = written.input_size / written.size
    print(f"input {written.input_size:,} bytes, archive {written.size:,} bytes, ratio {ratio:.2f}")
