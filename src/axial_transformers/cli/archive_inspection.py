"""The work of `axial inspect NAME.axl`: what an archive holds, from its header and its configuration."""

import json
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from axial_transformers.cli.console import print_rows
from axial_transformers.cli.parsing import command
from axial_transformers.compression.container import ArchiveError, DamagedError, Header, read_chunk, read_header
from axial_transformers.compression.embedded_model import without_weights
from axial_transformers.compression.files import array_files, volumes
from axial_transformers.compression.files.entries import entries_of, unpack
from axial_transformers.compression.files.pictures import PictureEntry
from axial_transformers.compression.files.source import enumeration
from axial_transformers.compression.files.videos import VideoEntry
from axial_transformers.data.scan_files import suffix_of
from axial_transformers.storage.files import source_path
from axial_transformers.wording import counted


def inspect(path: Path, as_json: bool) -> None:
    """Print what an archive holds. Images and weights are not decoded.

    Raises:
        ArchiveError: the header, the description of files or the model's configuration is damaged.
    """
    with source_path(path).open("rb") as file:
        header = read_header(file)
        held, sizes, damaged = _held(file, header), _sizes(header), _damaged(file, header)
        facts, rows = _model(file, header)
    rate = 8 * (sizes["all"] - sizes["files"]) / held["values"] if held["values"] else None
    to_open = _to_open(path, header, held)
    if as_json:
        found = {"bytes": sizes, "bits_per_dim": rate, "holds": held, "model": facts, "damaged_chunks": damaged}
        print(json.dumps({"archive": str(path), **found, "to_open": to_open}))
        return
    parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if size and name != "all")
    shown = {"holds": _shown(held), "bytes": f"{sizes['all']:,}: {parts}"}
    if rate is not None:
        shown["bits/dim"] = f"{rate:.4f}, " + ("weights counted" if header.carries_model else "without its model")
    if header.labels or header.cond:
        stored = "stored" if header.carries_model else "not stored: give them again to read it"
        shown["conditions"] = f"{' and '.join(_conditions(header))}, {stored}"
    if damaged:
        shown["damaged"] = f"{len(damaged)} of {counted(len(header.chunks), 'chunk')}: --salvage saves the others"
    for title, table in {str(path): shown, "model": rows, "to open": to_open}.items():
        print_rows(table, title)


def _sizes(header: Header) -> dict[str, int]:
    """Return the bytes of an archive, and of its parts."""
    chunks = [chunk.size for chunk in header.chunks]
    files, model = sum(chunks[i] for i in header.files), sum(chunks[: header.of_model])
    values, start = sum(chunks) - files - model, header.start(0)
    return {"all": start + sum(chunks), "header": start, "model": model, "values": values, "files": files}


def _held(file: BinaryIO, header: Header) -> dict[str, Any]:
    """Return what the values are, with names, or with dtype and shape, and their number."""
    like: Any = header  # it has shape and channels, as a configuration has
    try:
        described = unpack(header.metadata, header.images + len(header.files))
    except ArchiveError:  # the metadata of `axial.compress` may be any bytes
        shape = [header.images, *header.shape, header.channels]
        return {"kind": "examples from Python", "names": [], "shape": shape, "values": prod(shape)}
    if "array" in described:
        array_files.images_of(described, like)  # checks it
        names = {"kind": "array", "names": [described.pop("array")]}
        return {**names, **described, "values": prod(described["shape"])}
    if "scan" in described:
        if header.files != [len(header.chunks) - 1]:
            raise DamagedError("the archive of a scan must end with one file")
        found = volumes.describe(read_chunk(file, header, header.files[0]))
        return {"kind": "scan", **found, "values": prod(found["shape"])}
    ((kind, entries),) = described.items()
    files = entries_of(VideoEntry if kind == "videos" else PictureEntry, entries, like)
    coded = {entry.name: prod(entry.size) for entry in files if entry.size is not None}
    return {
        "kind": "videos" if kind == "videos" else "images",
        "names": [*coded],
        "kept_files": [entry.name for entry in files if entry.size is None],
        "values": sum(coded.values()) * header.channels,
    }


def _shown(held: dict[str, Any]) -> str:
    parts = [held["kind"] + (f", {enumeration(held['names'])}" if held["names"] else "")]
    if "shape" in held:
        parts.append(" ".join([*held.get("dtype", "").split(), " x ".join(map(str, held["shape"]))]))
    if kept := held.get("kept_files"):
        parts.append(f"files as they are, {enumeration(kept)}")
    return "; ".join(parts)


def _damaged(file: BinaryIO, header: Header) -> list[int]:
    """Return the chunks whose checksums differ, or that are missing."""
    found = list[int]()
    for i in range(len(header.chunks)):
        try:
            read_chunk(file, header, i)
        except ArchiveError:
            found.append(i)
    return found


def _model(file: BinaryIO, header: Header) -> tuple[dict[str, Any], dict[str, str]]:
    """Return facts of the model, and rows (name, value)."""
    name = header.fingerprint.hex()
    if not header.carries_model:
        shape = " x ".join(map(str, (*header.shape, header.channels)))
        rows = {"needed": f"{name[:16]}, which is not in the archive", "data": f"{shape}, {header.num_values:,} values"}
        return {"in_archive": False, "fingerprint": name}, rows
    content = read_chunk(file, header, 0)
    model, _ = without_weights(content)
    count, described = sum(weight.numel() for weight in model.parameters()), model.config.describe()
    share = len(content) / header.start(len(header.chunks))
    weights = f"{count:,}, rounded, in {len(content):,} bytes: {share:.1%} of the file (--fit: about 5 % or less)"
    facts = {"in_archive": True, "fingerprint": name, "bytes": len(content), "weights": count, "config": described}
    return facts, {**described, "weights": weights, "fingerprint": name[:16]}


def _conditions(header: Header) -> list[str]:
    return ["label"] * header.labels + ["cond"] * header.cond


def _to_open(path: Path, header: Header, held: dict[str, Any]) -> dict[str, str]:
    """Return a command and a line of Python."""
    opened, model, suffix = f"open({str(path)!r}, 'rb')", [] if header.carries_model else ["MODEL"], "/"
    if held["kind"] == "array":
        suffix = ".npz"
    elif held["kind"] == "scan" and len(held["names"]) == 1:
        suffix = suffix_of(Path(held["names"][0]))
    given = ", ".join(["model", opened, *(f"{name}={name}" for name in _conditions(header))])
    python = f"axial.decompress({given})" if model else f"axial.open_archive({str(path)!r}).values"
    words = command("decompress", *model, path, f"restored{suffix}")
    return {"Python": python} if "Python" in held["kind"] else {"command": words, "Python": python}
