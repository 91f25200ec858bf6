"""Files to an archive and back: a folder of pictures, or an array in an .npz or .npy file."""

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.compression import container
from axial_transformers.compression.archive import ArchiveReader, compress
from axial_transformers.compression.errors import ArchiveError, DamagedError
from axial_transformers.compression.files import array_files as arrays
from axial_transformers.compression.files import picture_folders as pictures
from axial_transformers.compression.files.packed import OtherSizes, Packed
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Progress
from axial_transformers.storage.files import folder_written_whole, written_whole

_MOST_METADATA = 1 << 24


class Written(NamedTuple):
    """What `compress_files` did."""

    images: torch.Tensor
    """uint8 [N, *A, C], as the model saw them."""
    size: int
    """Bytes of the archive."""
    left_out: list[str]
    """What of the source the archive does not hold."""


def compress_files(
    model: AxialTransformer,
    source: str | Path,
    target: str | Path,
    *,
    other_sizes: OtherSizes = "refuse",
    verify: bool = True,
    chunk_images: int = 128,
    micro_batch: int = 16,
    progress: Progress = iter,
) -> Written:
    """Writes the archive of a folder of pictures, or of the array of images in an .npz or .npy file.

    Pixels, names and modes of pictures are kept; name, type and shape of an array. The file appears when it is whole
    and, if `verify`, was decoded and compared.

    Raises:
        FileNotFoundError: no such source.
        ValueError: no images of this model there, or of another size (unless tiled); the line names the file.
    """
    packed = _pack(Path(source), model, other_sizes)
    images = torch.from_numpy(packed.images)
    metadata = zlib.compress(json.dumps(packed.description, separators=(",", ":")).encode(), 9)
    archive = compress(
        model, images, verify=verify, chunk_images=chunk_images, micro_batch=micro_batch,
        metadata=metadata, files=packed.files, progress=progress,
    )  # fmt: skip
    with written_whole(target) as aside:
        aside.write_bytes(archive)
    return Written(images, len(archive), packed.left_out)


def decompress_files(
    model: AxialTransformer,
    archive: str | Path,
    target: str | Path,
    *,
    salvage: bool = False,
    micro_batch: int = container.MOST_IMAGES,
    progress: Progress = iter,
) -> list[str]:
    """Writes what `compress_files` read: into a new folder, or into a new .npz or .npy file.

    Args:
        salvage: leave out what damaged chunks held instead of failing.

    Returns:
        The names of what is left out.

    Raises:
        FileNotFoundError: no such archive.
        FileExistsError: `target` exists.
        ArchiveError: see `errors`.
    """
    target = Path(target)
    with Path(archive).open("rb") as file:
        reader = ArchiveReader(model, file, micro_batch=micro_batch)
        entries = reader.header.chunks
        description = _description(reader.header.metadata)
        is_folder = "pictures" in description
        if not is_folder and target.suffix not in (".npz", ".npy"):
            raise ValueError(f"{archive} holds an array: give a target that ends in .npz or .npy, not {target}")
        if target.exists() and not (is_folder and target.is_dir() and not any(target.iterdir())):
            raise FileExistsError(f"{target} exists already: give another target, or remove it first")
        images, files = list[NDArray[np.uint8] | None](), list[bytes | None]()
        for i in progress(range(len(entries))):
            try:
                content = reader.content(i)
                if entries[i].images:
                    images.extend(reader.images(i, content).numpy())
                else:
                    files.append(content)
            except ArchiveError:
                if not salvage:
                    raise
                images += [None] * entries[i].images
                files += [None] * (not entries[i].images)
    if is_folder:
        with folder_written_whole(target) as folder:
            return pictures.unpack(folder, description["pictures"], model.config, images, files)
    with written_whole(target) as aside:
        return arrays.unpack(aside, description, model.config, images)


def _pack(source: Path, model: AxialTransformer, other_sizes: OtherSizes) -> Packed:
    if source.is_dir():
        return pictures.pack(source, model.config, other_sizes)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder or file")
    if source.suffix.lower() not in (".npz", ".npy"):
        raise ValueError(f"{source} is neither a folder of pictures nor an .npz or .npy file")
    return arrays.pack(source, model.config, other_sizes)


def _description(metadata: bytes) -> dict[str, Any]:
    """The JSON object that an archive of files carries along."""
    try:
        unpacked = zlib.decompressobj().decompress(metadata, _MOST_METADATA)
        description = json.loads(unpacked)
    except (zlib.error, ValueError, RecursionError) as error:
        raise DamagedError("the archive holds images, but no description of files: use axial.decompress") from error
    if not isinstance(description, dict):
        raise DamagedError("the archive's description of files is damaged")
    return description
