"""The work of `axial inspect NAME.axl`: what an archive holds, from its header and its configuration."""

import json
from pathlib import Path
from typing import Any, BinaryIO

from axial_transformers.cli.console import command, print_rows
from axial_transformers.compression.container import ArchiveError, DamagedError, Header, read_chunk, read_header
from axial_transformers.compression.embedded_model import without_weights
from axial_transformers.compression.files.entries import FileEntry, entries_of, unpack
from axial_transformers.compression.files.pictures import PictureEntry
from axial_transformers.compression.files.source import enumeration
from axial_transformers.compression.files.videos import VideoEntry
from axial_transformers.compression.files.volumes import describe
from axial_transformers.storage.files import source_path


def inspect_archive(path: Path, as_json: bool) -> None:
    """Print what an archive holds. Images and weights are not decoded.

    Raises:
        ArchiveError: the header, the description of files or the model's configuration is damaged.
    """
    with source_path(path).open("rb") as file:
        header = read_header(file)
        holds = _held(file, header)
        model = without_weights(read_chunk(file, header, 0))[0].config.describe() if header.carries_model else None
    chunks = [chunk.size for chunk in header.chunks]
    files, of_model = sum(chunks[i] for i in header.files), sum(chunks[: header.of_model])
    sizes = {"all": header.start(0) + sum(chunks), "model": of_model, "files": files}
    name, given = header.fingerprint.hex(), [] if model else ["MODEL"]
    to_open = command("decompress", *given, path, "restored.npz" if holds.startswith("array") else "restored/")
    if as_json:
        found = {"archive": str(path), "bytes": sizes, "holds": holds, "model": model, "fingerprint": name}
        print(json.dumps({**found, "to_open": to_open}))
        return
    rows = {"holds": holds, "bytes": ", ".join(f"{part} {size:,}" for part, size in sizes.items())}
    rows["needs"] = "nothing: it holds its model" if model else f"the model {name[:16]}"
    print_rows(rows | {"to open": to_open}, str(path))
    if model:
        print_rows(model, "model")


def _held(file: BinaryIO, header: Header) -> str:
    """Return in a line what the values are."""
    try:
        described = unpack(header.metadata, header.images + len(header.files))
    except ArchiveError:  # the metadata of `axial.compress` may be any bytes
        return f"{header.images} examples of {[*header.shape, header.channels]}, from Python: axial.decompress"
    if "array" in described:
        return f"array {described['array']}: {described['dtype']} {described['shape']}"
    if "scan" in described:
        if header.files != [len(header.chunks) - 1]:
            raise DamagedError("the archive of a scan must end with one file")
        found = describe(read_chunk(file, header, header.files[0]))
        return f"scan, {enumeration(found['names'])}: {found['dtype']} {found['shape']}"
    ((kind, entries),) = described.items()
    entry_of: type[FileEntry] = VideoEntry if kind == "videos" else PictureEntry
    like: Any = header  # it has shape and channels, as a configuration has
    return f"{kind}, {enumeration([entry.name for entry in entries_of(entry_of, entries, like)])}"
