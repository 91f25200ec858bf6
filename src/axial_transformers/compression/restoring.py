"""Files written from the examples of an archive."""

import logging
import os
import zlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.container import ArchiveError, DamagedError, opened
from axial_transformers.compression.contents import FORMATS
from axial_transformers.compression.description import HeldArray
from axial_transformers.compression.reader import ArchiveReader
from axial_transformers.data import images, npy, scans, tables, video
from axial_transformers.data.scans import suffix_of
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Progress
from axial_transformers.storage.files import folder_written_whole, require_writable, written_whole

AT_A_TIME = 1 << 24
"""Bytes of a stored file that are in memory together."""

Examples = Iterable[NDArray[np.integer] | None]
"""Examples [*A, C]; None for lost ones."""
Parts = Iterable[tuple[str, Iterable[bytes]]]
"""Names of stored files, and their contents in parts."""

log = logging.getLogger("axial_transformers")


def decompress_files(
    model: AxialTransformer | None,
    archive: str | Path,
    target: str | Path,
    *,
    salvage: bool = False,
    progress: Progress = iter,
) -> list[str]:
    """Write the files from which `compress_files` made the archive, into a new folder.

    One image alone is written as a file if the target has a suffix of images, arrays, scans or videos. So is an array:
    as .npy, .npz, or in its own format. Any other target, such as x.out, is a folder.

    Args:
        model: the one that wrote an archive that carries none.
        salvage: leave out the contents of damaged chunks; in arrays they are 0.
        progress: wraps the loop over chunks.

    Returns:
        The names of the files, or the indices of the examples, that are lost.

    Raises:
        FileNotFoundError: no such archive.
        FileExistsError: `target` exists.
        ArchiveError: see `container`.
    """
    with opened(archive) as file:
        return _restore(ArchiveReader(file, model), Path(target), salvage, progress)


def _restore(reader: ArchiveReader, target: Path, salvage: bool, progress: Progress) -> list[str]:
    require_target(target)
    description = reader.description()
    array, pictures, stored = description.array, description.images, description.stored
    sizes = description.example_sizes(reader.model.config)
    single = _is_file(target) and (array is not None or (len(pictures) == 1 and not stored))
    if array:
        kept = suffix_of(Path(array.name))
        suffix = suffix_of(target) if single else kept
        if suffix not in (".npy", ".npz", kept):
            raise ValueError(
                f"the archive holds {array.name!r:.100}: give a target of this suffix, or .npz, or a folder"
            )
        if stored and suffix != ".npz":
            log.info(f"left out, since such files do not hold it: {', '.join(name for name, _ in stored)}")
    examples = reader.examples(sizes, salvage, progress)
    lost: list[str] = []
    with written_whole(target, replace=False) if single else folder_written_whole(target) as place:

        def new_path(name: str) -> Path:
            return place if single else _new(place, name)

        parts = _stored(reader, stored, place.parent, salvage, lost)
        if array:
            write_array(new_path(array.name), array, reader.model.config, examples, parts, lost)
        else:
            for (name, mode, *_), values in zip(pictures, examples):
                if values is None:
                    lost.append(name)
                else:
                    write_image(new_path(name), values, mode)
            for name, content in parts:
                with new_path(name).open("wb") as file:
                    file.writelines(content)
        if len(lost) == len(sizes) + len(stored):
            raise ArchiveError("every chunk is damaged or missing, nothing can be restored")
    return lost


def require_target(target: Path) -> None:
    """Raise OSError where `target` could not be written, or exists."""
    require_writable(target, folder=not _is_file(target) or os.path.lexists(target))


def _is_file(target: Path) -> bool:
    """Return True if a target has the suffix of a file, which it becomes unless many files return."""
    return suffix_of(target) in (*images.SUFFIXES, *npy.SUFFIXES, *scans.SUFFIXES, *video.SUFFIXES)


def _new(folder: Path, name: str) -> Path:
    """Return the path of a file to write; DamagedError if its name is taken, as where case makes no difference."""
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            return path
    except (FileExistsError, NotADirectoryError):
        pass
    raise DamagedError(f"the archive names {name!r:.100} twice, or as a file and as a folder")


def write_image(path: Path, values: NDArray[np.integer], mode: str) -> None:
    """Write values [H, W, C] as an image of a mode, which may lack the alpha, or repeat the first channel as colours.

    Raises:
        ValueError: the format of the suffix does not keep this mode without loss.
    """
    some = values[..., {"RGBA": [0, 1, 2, 3], "RGB": [0, 1, 2], "LA": [0, 3]}.get(mode, [0])]
    kind, modes = FORMATS.get(path.suffix.lower(), ("", ()))
    if mode not in modes:
        raise ValueError(f"{path.suffix} files do not keep images of mode {mode}: give a target like x.png")
    pixels = some if some.shape[-1] > 1 else some[..., 0]
    image = Image.fromarray(pixels.astype(np.uint16 if mode == "I;16" else np.uint8))
    image = image.convert("1", dither=Image.Dither.NONE) if mode == "1" else image
    image.save(path, kind)


def write_array(
    path: Path, held: HeldArray, config: AxialTransformerConfig, examples: Examples, parts: Parts, lost: list[str]
) -> None:
    """Write an array in the format of the path's suffix; values of lost examples are 0, their numbers go to `lost`.

    Args:
        parts: the other arrays of an .npz file; other formats do not hold them.
    """
    with TemporaryDirectory(dir=path.parent) as folder:
        file = path if path.suffix == ".npy" else Path(folder, "array.npy")
        array = open_memmap(file, "w+", np.dtype(held.dtype), held.shape)
        outer, _ = held.sizes(config)
        grid = config.floats
        channels_last = array[..., None] if held.channels is None else np.moveaxis(array, held.channels, -1)
        for number, example in enumerate(examples):
            if example is None:
                lost.append(str(number))
                continue
            values: NDArray[Any] = grid.floats(example, array.dtype) if grid and array.dtype.kind == "f" else example
            channels_last[np.unravel_index(number, outer)] = values
        array.flush()
        if path.suffix == ".npz":
            with ZipFile(path, "w", ZIP_DEFLATED) as whole:
                whole.write(file, f"{held.member}.npy")
                for name, content in parts:
                    with whole.open(name, "w", force_zip64=True) as member:
                        member.writelines(content)
        elif path.suffix != ".npy":
            _write_as(path, array, held)


def _write_as(path: Path, array: NDArray[Any], held: HeldArray) -> None:
    """Write an array in the format of a table or a scan, with what the archive holds about it."""
    try:
        if path.suffix.lower() in tables.SUFFIXES:
            tables.write_table(path, array, held.columns)
        else:
            like = scans.Scan(array, held.axes, held.scale, held.offset, suffix_of(path), b64decode(held.header))
            scans.write_scan(path, array, like)
    except ValueError as error:
        raise DamagedError(
            f"{held.name!r:.100} can be restored as .npy only: what it needs beside its values is lost or damaged"
            f" ({error})"
        ) from error


def _stored(
    reader: ArchiveReader, stored: Sequence[tuple[str, int]], folder: Path, salvage: bool, lost: list[str]
) -> Parts:
    """Yield the stored files, by way of a file in `folder`; their contents must be read one after the other."""
    if not stored:
        return
    try:
        chunk = reader.stored()
    except ArchiveError:
        if not salvage:
            raise
        lost += [name for name, _ in stored]
        return
    with TemporaryFile(dir=folder) as whole:
        _unpack(chunk, whole, sum(size for _, size in stored))
        for name, size in stored:
            yield name, (whole.read(min(AT_A_TIME, size - start)) for start in range(0, size, AT_A_TIME))


def _unpack(chunk: bytes, target: IO[bytes], size: int) -> None:
    """Unpack the chunk of stored files to an empty file, and rewind it; DamagedError unless that gives `size` bytes."""
    unpacking = zlib.decompressobj()
    left = chunk
    try:
        while target.tell() <= size and (unpacked := unpacking.decompress(left, AT_A_TIME)):
            target.write(unpacked)
            left = unpacking.unconsumed_tail
    except zlib.error as error:
        raise DamagedError("the archive's stored files are damaged") from error
    if target.tell() != size or not unpacking.eof or unpacking.unused_data:
        raise DamagedError("the archive's stored files are not of the sizes that it states")
    target.seek(0)
