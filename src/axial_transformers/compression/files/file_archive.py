"""Files to an archive and back."""

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.compression import container
from axial_transformers.compression.archive import ArchiveReader, compress
from axial_transformers.compression.errors import ArchiveError, DamagedError
from axial_transformers.compression.files import array_files, descriptions, picture_folders, videos
from axial_transformers.compression.files.contents import Contents, OtherSizes
from axial_transformers.compression.files.source_folders import write_new
from axial_transformers.data import picture_files, video
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Progress
from axial_transformers.storage.files import folder_written_whole, written_whole

_Images = list[NDArray[np.uint8] | None]
_Files = list[bytes | None]

_SUFFIXES = (*picture_files.SUFFIXES, *video.SUFFIXES)


class Written(NamedTuple):
    """Result of `compress_files`."""

    images: torch.Tensor
    """uint8 [N, *A, C]: all images that the model codes, tiles included."""
    size: int
    """Size of the archive in bytes."""
    left_out: list[str]
    """Names of the source's arrays, and of its hidden files and links to folders, that the archive does not hold."""
    whole: list[str]
    """Names of the files that it holds byte for byte, not by the model."""
    others: list[str]
    """Those of them that are not of the kind that the model is of, such as notes.txt, or cannot be read."""
    examples: int
    """Number of pictures, examples or videos that the model codes: fewer than `images` where they are tiled."""
    file_bytes: int
    """Number of bytes of the archive that are files, not images."""


def compress_files(  # noqa: PLR0913
    model: AxialTransformer,
    source: str | Path,
    target: str | Path,
    *,
    other_sizes: OtherSizes = "refuse",
    replace: bool = False,
    verify: bool = True,
    chunk_images: int = 128,
    micro_batch: int = 16,
    progress: Progress = iter,
) -> Written:
    """Writes the archive of a picture, of a folder of pictures, or of the array of images in an .npz or .npy file.

    Pixels, names and modes of pictures are kept; values, name, type and shape of an array; files of a folder that are
    no pictures, byte for byte. Models of clips take videos likewise, of which frames and frame rate are kept. The
    archive appears only when it is complete and, if `verify`, was decoded and compared.

    Args:
        other_sizes: refuse images of another size than the model's, or cut them into tiles of that size.
        replace: whether the archive takes the place of a regular file at `target`, which must not be of the source.
        verify, chunk_images, micro_batch, progress: as of `compress`.

    Raises:
        FileNotFoundError: no such source.
        FileExistsError: `target` exists (unless it is to be replaced and can be).
        ValueError: no images of this model there, or of another size (unless tiled); the message names the file.
    """
    source, target = Path(source), Path(target)
    _require_free(target, source, replace)
    contents = _read(source, model, other_sizes)
    images = torch.from_numpy(contents.images)
    metadata = descriptions.pack(contents.description, len(images) + len(contents.files))
    archive = compress(
        model, images, verify=verify, chunk_images=chunk_images, micro_batch=micro_batch,
        metadata=metadata, files=contents.files, progress=progress,
    )  # fmt: skip
    with written_whole(target) as aside:
        aside.write_bytes(archive)
        _require_free(target, source, replace)  # it may have come into being since
    return Written(
        images, len(archive), contents.left_out, contents.whole, contents.others, contents.examples,
        sum(map(len, contents.files)),
    )  # fmt: skip


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

    An archive of one picture or video is written as a file if the target has the suffix of one, such as .png or .mkv.

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
        files_held = sum(not entry.images for entry in reader.header.chunks)
        description = descriptions.unpack(reader.header.metadata, reader.header.images + files_held)
        restoring, one = _restoring(description, target, model.config)
        if restoring is None and target.suffix not in (".npz", ".npy"):
            raise ValueError(f"{archive} holds an array: give a target that ends in .npz or .npy, not {target}")
        in_place = restoring is not None and not one and target.is_dir() and not any(target.iterdir())
        if os.path.lexists(target) and not in_place:
            raise FileExistsError(f"{target} exists already: give another target, or remove it first")
        images, files = _chunks(reader, salvage, progress)
    if (images or files) and all(content is None for content in (*images, *files)):
        raise ArchiveError(f"{archive}: every chunk is damaged or missing, nothing can be restored")
    if restoring is None:
        with written_whole(target) as aside:
            return array_files.write(aside, description, model.config, images)
    contents = zip(restoring.contents(images, files), restoring.names)
    if one:
        ((content, (name, _)),) = contents
        if content is None:
            raise DamagedError(f"nothing of {name!r:.100}, the one file of the archive, can be read")
        with written_whole(target) as aside:
            aside.write_bytes(content)
        return []
    lost = []
    with folder_written_whole(target) as folder:
        for content, (name, restored_as) in contents:
            if content is None:
                lost.append(name)
            else:
                write_new(folder / restored_as, content)
    return lost


class _Restoring(NamedTuple):
    names: list[tuple[str, str]]
    """The name of each file, and the one under which it is restored."""
    contents: Callable[[_Images, _Files], Iterator[bytes | None]]
    """Of the same files, made of the images and whole files of the archive."""


def _restoring(
    description: dict[str, Any], target: Path, config: AxialTransformerConfig
) -> tuple[_Restoring | None, bool]:
    """The way to restore files, None for an array; and whether the target is the name of the one file among them."""
    (kind, *others), (files, *_) = description, description.values()
    if others:
        return None, False
    one = isinstance(files, list) and len(files) == 1 and target.suffix.lower() in _SUFFIXES
    only_as = target.name if one else None
    if kind == "videos":
        movies = videos.planned(files, config, only_as)
        names = [(entry.name, name) for entry, name in movies]
        return _Restoring(names, partial(videos.restored, movies, config)), one
    pictures = picture_folders.planned(files, config, only_as)
    names = [(entry.name, name) for entry, name in pictures]
    return _Restoring(names, partial(picture_folders.restored, pictures, config)), one


def _chunks(reader: ArchiveReader, salvage: bool, progress: Progress) -> tuple[_Images, _Files]:
    """Images and whole files of an archive; None for those in damaged chunks, if `salvage`."""
    images, files = _Images(), _Files()
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


def _require_free(target: Path, source: Path, replace: bool) -> None:
    """Raises FileExistsError if an archive of `source` must not be written to `target`."""
    if not os.path.lexists(target):
        return
    if not replace:
        raise FileExistsError(f"{target} exists already: give another name, or remove it first")
    found = target.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise FileExistsError(f"{target} is no regular file, and is not replaced: give another name")
    parts = [source, *(source.rglob("*") if source.is_dir() else ())]
    if any(part.exists() and os.path.samestat(part.stat(), found) for part in parts):
        raise FileExistsError(f"{target} is, or is a link to, what is to be compressed: give another name")


def _read(source: Path, model: AxialTransformer, other_sizes: OtherSizes) -> Contents:
    config = model.config
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder or file")
    if source.suffix.lower() in (".npz", ".npy") and not source.is_dir():
        return array_files.read(source, config, other_sizes)
    if len(config.shape) == 3:
        return videos.read(source, config, other_sizes)
    if len(config.shape) != 2:
        raise ValueError(f"{source} is no .npz or .npy file, and the model of shape {config.shape} is not of pictures")
    return picture_folders.read(source, config, other_sizes)
