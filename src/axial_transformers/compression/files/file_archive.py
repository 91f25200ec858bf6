"""Files to an archive and back."""

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
from axial_transformers.compression.files import array_files, picture_folders
from axial_transformers.compression.files.contents import Contents, OtherSizes
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Progress
from axial_transformers.storage.files import folder_written_whole, written_whole

_MOST_METADATA = 1 << 24


class Written(NamedTuple):
    """Result of `compress_files`."""

    images: torch.Tensor
    """uint8 [N, *A, C]: all images that the model codes, tiles included."""
    size: int
    """Size of the archive in bytes."""
    left_out: list[str]
    """Names of the source's arrays that the archive does not hold."""


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

    Pixels, names and modes of pictures are kept; values, name, type and shape of an array. The archive replaces
    `target` only when it is complete and, if `verify`, was decoded and compared.

    Args:
        other_sizes: refuse images of another size than the model's, or cut them into tiles of that size.
        verify, chunk_images, micro_batch, progress: as of `compress`.

    Raises:
        FileNotFoundError: no such source.
        ValueError: no images of this model there, or of another size (unless tiled); the message names the file.
    """
    contents = _read(Path(source), model, other_sizes)
    images = torch.from_numpy(contents.images)
    metadata = zlib.compress(json.dumps(contents.description, separators=(",", ":")).encode(), 9)
    archive = compress(
        model, images, verify=verify, chunk_images=chunk_images, micro_batch=micro_batch,
        metadata=metadata, files=contents.files, progress=progress,
    )  # fmt: skip
    with written_whole(target) as aside:
        aside.write_bytes(archive)
    return Written(images, len(archive), contents.left_out)


def decompress_files(
    model: AxialTransformer,
    archive: str | Path,
    target: str | Path,
    *,
    salvage: bool = False,
    micro_batch: int = container.MOST_IMAGES,
    progress: Progress = iter,
) -> list[str]:
    """Writes the files of which `compress_files` made the archive: a new folder, or a new .npz or .npy file.

    Args:
        salvage: leave out the contents of damaged chunks instead of failing.

    Returns:
        The names of the pictures, or the indices of the examples, that are left out.

    Raises:
        FileNotFoundError: no such archive.
        FileExistsError: `target` exists.
        ArchiveError: see `errors`.
    """
    target = Path(target)
    with Path(archive).open("rb") as file:
        reader = ArchiveReader(model, file, micro_batch=micro_batch)
        description = _description(reader.header.metadata)
        is_folder = "pictures" in description
        if not is_folder and target.suffix not in (".npz", ".npy"):
            raise ValueError(f"{archive} holds an array: give a target that ends in .npz or .npy, not {target}")
        if target.exists() and not (is_folder and target.is_dir() and not any(target.iterdir())):
            raise FileExistsError(f"{target} exists already: give another target, or remove it first")
        images, files = _chunks(reader, salvage, progress)
    if is_folder:
        with folder_written_whole(target) as folder:
            return picture_folders.write(folder, description["pictures"], model.config, images, files)
    with written_whole(target) as aside:
        return array_files.write(aside, description, model.config, images)


def _chunks(
    reader: ArchiveReader, salvage: bool, progress: Progress
) -> tuple[list[NDArray[np.uint8] | None], list[bytes | None]]:
    """Images and whole files of an archive; None for those in damaged chunks, if `salvage`."""
    images, files = list[NDArray[np.uint8] | None](), list[bytes | None]()
    for i, entry in enumerate(progress(reader.header.chunks)):
        try:
            content = reader.content(i)
            if entry.images:
                images.extend(reader.images(i, content).numpy())
            else:
                files.append(content)
        except ArchiveError:
            if not salvage:
                raise
            images += [None] * entry.images
            files += [None] * (not entry.images)
    return images, files


def _read(source: Path, model: AxialTransformer, other_sizes: OtherSizes) -> Contents:
    if source.is_dir():
        return picture_folders.read(source, model.config, other_sizes)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder or file")
    if source.suffix.lower() not in (".npz", ".npy"):
        raise ValueError(f"{source} is neither a folder of pictures nor an .npz or .npy file")
    return array_files.read(source, model.config, other_sizes)


def _description(metadata: bytes) -> dict[str, Any]:
    """The JSON object that describes the files of an archive."""
    try:
        unpacked = zlib.decompressobj().decompress(metadata, _MOST_METADATA)
        description = json.loads(unpacked)
    except (zlib.error, ValueError, RecursionError) as error:
        raise DamagedError("the archive holds images, but no description of files: use axial.decompress") from error
    if not isinstance(description, dict):
        raise DamagedError("the archive's description of files is damaged")
    return description
