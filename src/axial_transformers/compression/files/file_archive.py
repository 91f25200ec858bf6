"""Files to an archive and back."""

import io
import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.compression.archive import ArchiveReader, Limit, by_zlib, to_embed, write_archive
from axial_transformers.compression.container import ArchiveError, DamagedError
from axial_transformers.compression.files import array_files, volumes
from axial_transformers.compression.files.entries import (
    FileEntry,
    Names,
    Planned,
    entries_of,
    pack,
    planned,
    restored,
    unpack,
)
from axial_transformers.compression.files.pictures import PictureEntry
from axial_transformers.compression.files.source import (
    Contents,
    OtherSizes,
    Source,
    content,
    enumeration,
    source_of,
    write_new,
)
from axial_transformers.compression.files.videos import VideoEntry
from axial_transformers.compression.rounding import Rounded
from axial_transformers.data import picture_files, scans, video
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.progress import Progress
from axial_transformers.storage.files import folder_written_whole, require_writable, source_path, written_whole
from axial_transformers.wording import duration

_Images = Iterator[NDArray[np.integer] | None]
_Files = Iterator[bytes | None]

log = logging.getLogger("axial_transformers")

_SUFFIXES = (*picture_files.SUFFIXES, *video.SUFFIXES)


@dataclass(frozen=True, kw_only=True)
class Written(Contents):
    """An archive that `compress_files` has written; sizes in bytes."""

    input_size: int
    size: int
    file_sizes: list[int]
    webp: list[int]
    """Of the images stored as WebP."""
    model: AxialTransformer
    """What coded the images: the given model, or its rounded weights."""
    model_size: int
    """Of the model in the archive; 0: the archive does not carry it."""


def compress_files(  # noqa: PLR0913
    model: AxialTransformer,
    source: str | Path,
    target: str | Path,
    *,
    embed: bool = False,
    only_if_smaller: bool = False,
    other_sizes: OtherSizes = "store",
    drop_header: bool = False,
    force: bool = False,
    verify: bool = True,
    progress: Progress = iter,
) -> Written:
    """Write the archive of an image, a folder of images, the array of images in an .npz or .npy file, or a scan.

    Pixels, names and modes of images are kept; values, name, type and shape of an array; other files of a folder byte
    for byte. Models of clips take videos. A scan of any lengths becomes tiles. It comes back byte for byte where its
    file holds the values as they are, otherwise with the same values, type and geometry; the log says which. The
    archive appears only when it is complete and, with `verify`, checked.

    Args:
        source: for scans, all that `read_scan` takes.
        embed: store the model, too, with rounded weights; see `compress`.
        only_if_smaller: write no archive that is larger than the source, or than zlib of its values. With `embed`,
            this is so.
        other_sizes: store images of another size than the model's as files, or cut them into tiles.
        drop_header: of a scan, keep values, type and geometry alone: no name, no data of patients.
        force: replace a regular file at `target`, which must not be of the source; write an archive of any size.
        verify, progress: as for `compress`.

    Raises:
        FileNotFoundError: no such source.
        FileExistsError: `target` exists.
        NoGainError: the archive is too large; a ValueError.
        ValueError: no images of this model, or of another size.
    """
    whole, target = source_path(source), Path(target)
    source, _ = scans.parted(whole)
    require_free(target, source, force)
    contents = read_source(whole, model.config, other_sizes, drop_header)
    found = source_of(source)
    tell(contents, found)
    metadata = pack(contents.description, len(contents.images) + len(contents.files))
    limit = limit_of(contents, found, model.config) if (embed or only_if_smaller) and not force else None
    if limit and not len(contents.images):
        limit.check(len(metadata))
    embedded = to_embed(model, contents.images, progress=progress) if embed else None
    if limit:
        _foresee(model, contents, embedded, limit, verify)
    with written_whole(target, replace=force) as aside:
        with aside.open("wb") as file:
            packed = write_archive(
                model, file, contents.images, Conditioning(), verify, metadata, contents.files, progress, embedded
            )
        size = aside.stat().st_size
        if limit:
            limit.check(size - limit.stored)
        require_free(target, source, force)  # it may have come into being since
    of_files = [packed.header.chunks[i].size for i in packed.header.files]
    input_size = found.size(map(found.name, found.files))
    return Written(
        **vars(contents), input_size=input_size, size=size, file_sizes=of_files, webp=packed.webp,
        model=embedded.model if embedded else model, model_size=len(embedded.content) if embedded else 0,
    )  # fmt: skip


def limit_of(contents: Contents, source: Source, config: AxialTransformerConfig) -> Limit:
    """Return the bytes of a source, or those of its values by zlib and of its other files, if these are fewer."""
    examples = map(contents.images.example, range(len(contents.images.sizes)))
    of_values = by_zlib(config, examples, sum(len(read()) for read in contents.files))
    return min(of_values._replace(size=source.size(map(source.name, source.files)), of="the input"), of_values)


SAMPLED = 48
"""Images by which size and time are estimated, if there are at least four times as many."""


def _foresee(model: AxialTransformer, contents: Contents, embedded: Rounded | None, limit: Limit, verify: bool) -> None:
    """Say how large the archive will be, and how long it takes; NoGainError if it is too large."""
    share, count = len(contents.images) / SAMPLED, len(contents.images)
    if share < 4:
        return
    numbers = np.linspace(0, count - 1, SAMPLED).astype(int).tolist()
    for some in numbers[:1], numbers:  # the first one may compile
        began, images = time.perf_counter(), np.concatenate([contents.images[i : i + 1] for i in some])
        packed = write_archive(model, io.BytesIO(), torch.from_numpy(images), Conditioning(), verify, embedded=embedded)
    size = embedded.expected if embedded else sum(entry.size for entry in packed.header.chunks) * share
    limit.check(size)
    threads = min(torch.get_num_threads(), share)
    log.info(f"about {size + limit.stored:,.0f} bytes, in {duration((time.perf_counter() - began) * share / threads)}")


def tell(contents: Contents, source: Source) -> None:
    """Say what the archive leaves out, and what it stores without the model."""
    (kind, *_) = contents.description
    if kind == "videos":
        videos = f"videos, {contents.examples:,}"
        log.info(f"{videos}: they come back as lossless .mkv files of the same frames, without sound")
    if contents.left_out:
        log.info(f"warning: not in the archive, {enumeration(contents.left_out)}")
    if contents.whole:
        log.info(f"stored as the files that they are, not by the model, {source.enumeration(contents.whole)}")


def require_target(target: Path) -> None:
    """Raise OSError where `target` could not be written."""
    require_writable(target, folder=target.suffix not in (".npz", ".npy"))


def decompress_files(
    model: AxialTransformer | None,
    archive: str | Path,
    target: str | Path,
    *,
    salvage: bool = False,
    only: str | None = None,
    most_values: int | None = None,
    progress: Progress = iter,
) -> list[str]:
    """Write the files from which `compress_files` made the archive: a new folder, or a new .npz or .npy file.

    One image or video is written as a file if the target has its suffix.

    Args:
        model: the one that wrote the archive; None: the one that the archive carries.
        salvage: leave out the contents of damaged chunks.
        only: name of the one image or video, or index of the one example, to restore.
        most_values, progress: as for `decompress`.

    Returns:
        The names of the files, or the indices of the examples, that are left out.

    Raises:
        FileNotFoundError: no such archive.
        FileExistsError: `target` exists.
        ArchiveError: see `container`.
    """
    target = Path(target)
    with source_path(archive).open("rb") as file:
        reader = ArchiveReader(file, model, most_values=most_values)
        files_held = len(reader.header.files)
        description = unpack(reader.header.metadata, reader.header.images + files_held)
        if "scan" in description:
            _write_scan(reader, target, only, progress)
            return []
        chosen = _chosen(description, only, reader.config, range(reader.header.images), range(files_held))
        as_array, one = chosen.array is not None, len(chosen.entries) == 1 and target.suffix.lower() in _SUFFIXES
        plan = planned(chosen.entries, target.name if one else None)
        if as_array and target.suffix not in (".npz", ".npy"):
            raise ValueError(f"{archive} holds an array: give a target that ends in .npz or .npy, not {target}")
        in_place = not as_array and not one and target.is_dir() and not any(target.iterdir())
        if not in_place:
            _require_new(target)
        images, files = _images(reader, chosen.images, salvage, progress), _files(reader, chosen.files, salvage)
        try:
            if as_array:
                return _write_array(target, chosen, reader.config, images)
            return _write_files(target, plan, one, restored(plan, reader.config, images, files))
        except _NothingLeft:
            raise ArchiveError(f"{archive}: every chunk is damaged or missing, nothing can be restored") from None


def _write_scan(reader: ArchiveReader, target: Path, only: str | None, progress: Progress) -> None:
    files, count = reader.header.files, reader.header.images
    if only is not None:
        raise ValueError(f"the archive holds one scan, which is restored whole, not {only!r:.100} alone")
    if files != [len(reader.header.chunks) - 1]:
        raise DamagedError("the archive of a scan must end with one file")
    if not target.is_dir() or any(target.iterdir()):
        _require_new(target)
    images = _images(reader, range(count), False, progress)
    volumes.write(target, reader.config, images, count, reader.content(files[0]))


def _require_new(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists already: give another target, or remove it first")


class _NothingLeft(Exception):
    """Nothing of what was wanted can be read."""


def _write_array(target: Path, chosen: "_Chosen", config: AxialTransformerConfig, images: _Images) -> list[str]:
    with written_whole(target, replace=False) as aside:
        lost = array_files.write(aside, chosen.array, config, images, len(chosen.images))
        if len(lost) == chosen.array["shape"][0]:
            raise _NothingLeft
    return lost


def _write_files(target: Path, plan: Sequence[Planned], one: bool, contents: _Files) -> list[str]:
    if one:
        (content,) = contents
        if content is None:
            raise _NothingLeft
        with written_whole(target, replace=False) as aside:
            aside.write_bytes(content)
        return []
    lost = list[str]()
    with folder_written_whole(target) as folder:
        for content, (entry, restored_as) in zip(contents, plan):
            if content is None:
                lost.append(entry.name)
            else:
                write_new(folder / restored_as, content)
        if plan and len(lost) == len(plan):
            raise _NothingLeft
    return lost


class _Chosen(NamedTuple):
    images: range
    files: range
    entries: Sequence[FileEntry] = ()
    array: Any = None
    """In place of files, the description of an array."""


def _chosen(
    description: dict[str, Any], only: str | None, config: AxialTransformerConfig, images: range, files: range
) -> _Chosen:
    if "array" in description:
        return _Chosen(images, files, array=description) if only is None else _example(only, description, config)
    ((kind, described),) = description.items()
    entries = entries_of(VideoEntry if kind == "videos" else PictureEntry, described, config)
    if only is None:
        return _Chosen(images, files, entries)
    first_image = first_file = 0
    for entry, restored_as in planned(entries):
        count = entry.images(config)
        if only in (entry.name, restored_as):
            of_files = range(first_file, first_file + (not count))
            return _Chosen(range(first_image, first_image + count), of_files, [entry])
        first_image, first_file = first_image + count, first_file + (not count)
    raise ValueError(f"the archive holds no {only!r:.100}, but {', '.join(entry.name for entry in entries)!r:.100}")


def _example(only: str, description: dict[str, Any], config: AxialTransformerConfig) -> _Chosen:
    each, count = array_files.images_of(description, config), description["shape"][0]
    if not only.isdecimal() or int(only) >= count:
        raise ValueError(f"the archive holds an array of {count} examples: choose one of 0..{count - 1}, not {only}")
    first = int(only) * each
    chosen = {**description, "shape": [1, *description["shape"][1:]]}
    return _Chosen(range(first, first + each), range(0), array=chosen)


def _images(reader: ArchiveReader, numbers: range, salvage: bool, progress: Progress) -> _Images:
    header = reader.header
    within = [
        (i, slice(max(0, numbers.start - first), min(entry.images, numbers.stop - first)))
        for i, entry in enumerate(header.chunks)
        for first in [header.first_image(i)]
        if max(first, numbers.start) < min(first + entry.images, numbers.stop)
    ]
    for (_, some), images in zip(progress(within), reader.images([i for i, _ in within], salvage), strict=True):
        yield from [None] * (some.stop - some.start) if images is None else images.numpy()[some]


def _files(reader: ArchiveReader, numbers: range, salvage: bool) -> _Files:
    for i in reader.header.files[numbers.start : numbers.stop]:
        try:
            yield reader.content(i)
        except ArchiveError:
            if not salvage:
                raise
            yield None


def require_free(target: Path, source: Path, force: bool) -> None:
    """Raise OSError if an archive must not be written to `target`."""
    if not os.path.lexists(target):
        return require_writable(target)
    if not force:
        raise FileExistsError(f"{target} exists already: give another name, or force=True to replace it")
    found = target.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise FileExistsError(f"{target} is no regular file, and is not replaced: give another name")
    parts = [source, *(source.rglob("*") if source.is_dir() else ())]
    if any(part.exists() and os.path.samestat(part.stat(), found) for part in parts):
        raise FileExistsError(f"{target} is, or is a link to, what is to be compressed: give another name")


def read_source(source: Path, config: AxialTransformerConfig, other_sizes: OtherSizes, drop_header: bool) -> Contents:
    """Return what goes into an archive; errors as for `compress_files`."""
    if not scans.parted(source)[0].exists():
        raise FileNotFoundError(f"{source}: no such folder or file")
    if scans.is_scan(source):
        return volumes.read(source, config, drop_header=drop_header)
    if drop_header:
        raise ValueError(f"{source} is no scan, whose header drop_header leaves out: omit that")
    if source.suffix.lower() in (".npz", ".npy") and not source.is_dir():
        return array_files.read(source, config, other_sizes)
    if len(config.shape) not in (2, 3):
        raise ValueError(f"{source} is no .npz or .npy file, and the model of shape {config.shape} is not of pictures")
    return read_files(source, VideoEntry if len(config.shape) == 3 else PictureEntry, config, other_sizes)


def read_files(path: Path, kind: type[FileEntry], config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Read one image or video, or every file below a folder.

    The model codes those that come back; other files are stored whole.
    """
    found = source_of(path)
    names = Names([found.name(file) for file in found.files])
    entries, modelled, others = list[FileEntry](), list[tuple[Path, FileEntry]](), list[str]()
    for file in found.files:
        name = found.name(file)
        entry = kind.of_file(file, name, config)
        if entry is None:
            others.append(name)
        elif entry.size and other_sizes == "store" and entry.size[-2:] != config.shape[-2:]:
            entry = None
        if entry is None or not (entry.restored_as_it_is or names.has_room_for(entry.restored_as)):
            entry = kind(name, None)
        entries.append(entry)
        if entry.size is not None:
            modelled.append((file, entry))
    if len(others) == len(entries):
        example = f": {others[0]} {kind.REASON}" if others else ""
        raise ValueError(f"{path} holds no {kind.KIND}{example}")
    planned(entries)
    return Contents(
        kind.images_of(modelled, config),
        {kind.KIND: [entry.json() for entry in entries]},
        [partial(content, file) for file, entry in zip(found.files, entries, strict=True) if entry.size is None],
        left_out=found.left_out,
        whole=[entry.name for entry in entries if entry.size is None],
        examples=len(modelled),
    )
