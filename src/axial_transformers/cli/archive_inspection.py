"""The work of `axial inspect NAME.axl`: what an archive holds, from its header and its configuration."""

import json
from pathlib import Path

from axial_transformers.cli.console import command, print_rows
from axial_transformers.compression.container import Header, read_chunk, read_header
from axial_transformers.compression.description import Description
from axial_transformers.compression.embedded_model import without_weights
from axial_transformers.data.scan_files import suffix_of
from axial_transformers.storage.files import source_path
from axial_transformers.wording import counted


def inspect_archive(path: Path, as_json: bool) -> None:
    """Print what an archive holds. Images and weights are not decoded.

    Raises:
        ArchiveError: the header, the description of files or the model's configuration is damaged.
    """
    with source_path(path).open("rb") as file:
        header = read_header(file)
        model = without_weights(read_chunk(file, header, 0))[0].config.describe() if header.carries_model else None
    chunks = [chunk.size for chunk in header.chunks]
    stored = 0 if header.stored is None else chunks[header.stored]
    sizes = {"all": header.start(0) + sum(chunks), "model": sum(chunks[: header.of_model]), "stored files": stored}
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


def _held(header: Header) -> tuple[str, str]:
    """Return in a line what the values are and how they return, and a target for them."""
    if not header.metadata:
        return f"{header.images} examples of {[*header.shape, header.channels]}, from Python", ""
    description = Description.unpack(header.metadata)
    stored = f"; {counted(len(description.stored), 'stored file')}" if description.stored else ""
    if array := description.array:
        return (
            f"{array.name}: {array.dtype} {list(array.shape)}, with equal values{stored}",
            f"restored{suffix_of(Path(array.name))}",
        )
    names = ", ".join(image.name for image in description.images[:3])
    count = counted(len(description.images), "image")
    return f"{count} with equal values: {names}{', ...' * (len(description.images) > 3)}{stored}", "restored/"
