"""Folders of pictures: to images of the model's size, and back to files of the same names, modes and pixels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression import container
from axial_transformers.compression.errors import DamagedError, OtherVersionError
from axial_transformers.compression.files import tiles
from axial_transformers.compression.files.contents import Contents, OtherSizes, other_size_error
from axial_transformers.compression.files.restored_names import check_name, restored_names
from axial_transformers.compression.files.whole_pictures import (
    MODES,
    as_png,
    comes_back,
    decoded,
    encoded,
    from_png,
    keeps,
)
from axial_transformers.data import join_uint16, split_uint16
from axial_transformers.data.picture_files import MOST_PIXELS, Member, PictureError
from axial_transformers.models import AxialTransformerConfig

_MODELLED = {1: "L", 2: "I;16", 3: "RGB"}
_WHOLE = "whole file (of a newer release)"  # release 0.1.0 shows this where it cannot read a description

_LITTLE = 64
"""Number of bytes by which a PNG file may be larger than the picture's own: all releases read an archive of it."""


class _Entry(NamedTuple):
    """The description of one file."""

    name: str
    mode: str | None
    """None: the archive holds the file itself."""
    size: tuple[int, int]
    """Height and width; zeros if the archive holds the file itself."""

    @property
    def restored_as_it_is(self) -> bool:
        """True if the file is written under its own name."""
        return self.mode is None or keeps(self.name, self.mode, self.size)

    def json(self) -> list[Any]:
        """The entry as `_entries` reads it."""
        return [_WHOLE, self.name] if self.mode is None else [self.name, self.mode, *self.size]


@dataclass
class _Stored:
    """One file as it is stored: tiles of the model, or a file."""

    path: Path
    entry: _Entry
    tiles: NDArray[np.uint8] | None = None
    file: bytes | None = None

    def whole(self) -> None:
        """Stores the file itself."""
        self.entry, self.tiles, self.file = _Entry(self.entry.name, None, (0, 0)), None, _content(self.path)


def read(folder: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Reads every picture below a folder; those of other modes than the model's become files.

    Every picture is restored and compared, before anything is compressed. It is stored as the first of these that keeps
    it: tiles of the model, for pictures of its mode; a PNG file, for others, if it is no larger than their own file;
    that file.

    Raises:
        ValueError: a file that is not a picture, or of another size (unless tiled).
    """
    if len(config.shape) != 2:
        raise ValueError(f"{folder} holds pictures, but the model is of shape {config.shape}")
    paths, left_out = _files(folder)
    if not paths:
        raise ValueError(f"{folder} holds no pictures")
    stored = [_stored(path, path.relative_to(folder).as_posix(), config, other_sizes) for path in paths]
    for some, name in zip(stored, _names([some.entry for some in stored])):
        if name not in (some.entry.name, f"{some.entry.name}.png"):
            some.whole()
    pictures = [some.entry.json() for some in stored]
    _names(_entries(pictures))
    empty = np.zeros((0, *config.shape, config.channels), np.uint8)
    return Contents(
        np.concatenate([empty, *(some.tiles for some in stored if some.tiles is not None)]),
        {"pictures": pictures},
        [some.file for some in stored if some.file is not None],
        left_out=left_out,
        whole=[some.entry.name for some in stored if some.entry.mode is None],
    )


def write(
    target: Path, pictures: Any, config: AxialTransformerConfig, images: Sequence[NDArray[np.uint8] | None],
    files: Sequence[bytes | None],
) -> list[str]:  # fmt: skip
    """Writes the pictures into an empty folder, and returns the names of those of which a part is missing (None).

    Raises:
        DamagedError: the description does not fit the images and files, or names files outside of the folder.
        OtherVersionError: the description has entries that this release does not know.
    """
    lost, images_left, files_left = [], iter(images), iter(files)
    entries = _entries(pictures)
    for entry, name in zip(entries, _names(entries)):
        modelled = entry.mode is not None and entry.mode == _MODELLED.get(config.channels)
        source: Iterator[Any] = images_left if modelled else files_left
        count = prod(tiles.grid(entry.size, config.shape)) if modelled else 1
        parts = list(islice(source, count))
        if len(parts) < count:
            raise DamagedError(f"the archive describes more pictures than it holds: {entry.name!r:.100}")
        if any(part is None for part in parts):
            lost.append(entry.name)
        elif entry.mode is None:
            _write(target / name, parts[0])
        elif modelled:
            _write(target / name, encoded(_picture(tiles.join(np.stack(parts), entry.size)[0]), name))
        else:
            _write(target / name, encoded(_from_file(parts[0], entry), name))
    if [*images_left, *files_left]:
        raise DamagedError("the archive holds more pictures than it describes")
    return lost


def _files(folder: Path) -> tuple[list[Path], list[str]]:
    """The files below a folder in their order, and the names of everything else there that is no folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    chosen = [path for path in paths if path.is_file() and not path.name.startswith(".")]
    return chosen, [path.relative_to(folder).as_posix() for path in sorted({*paths} - {*chosen})]


def _content(path: Path) -> bytes:
    if path.stat().st_size > container.MOST_BYTES:
        raise ValueError(f"{path} is larger than {container.MOST_BYTES:,} bytes: leave it out")
    return path.read_bytes()


def _stored(path: Path, name: str, config: AxialTransformerConfig, other_sizes: OtherSizes) -> _Stored:
    """The first way of storing a picture that keeps it."""
    content = _content(path)
    picture, look = decoded(Member(content, str(path)))
    stored = _Stored(path, _Entry(name, None, (0, 0)), file=content)
    if picture is None:
        return stored
    entry = _Entry(name, look.mode, (picture.height, picture.width))
    restored_as = name if entry.restored_as_it_is else f"{name}.png"
    if entry.mode == _MODELLED.get(config.channels):
        values = _values(picture)
        if comes_back(_picture(values), restored_as, look):
            if entry.size != config.shape and other_sizes == "refuse":
                raise other_size_error(path, entry.size, config.shape)
            return _Stored(path, entry, tiles=tiles.cut(values[None], config.shape))
        return stored
    png = as_png(picture, restored_as, look)
    return stored if png is None or len(png) - _LITTLE > len(content) else _Stored(path, entry, file=png)


def _names(entries: Sequence[_Entry]) -> list[str]:
    return restored_names([entry.name for entry in entries], [entry.restored_as_it_is for entry in entries])


def _entries(pictures: Any) -> list[_Entry]:
    """The description [[name, mode, height, width] or [_WHOLE, name], ..], after it is checked."""
    if not isinstance(pictures, list):
        raise DamagedError("the archive's description of its pictures is damaged")
    entries = [_entry(picture) for picture in pictures]
    for name, _, (height, width) in entries:
        check_name(name)
        if height * width > MOST_PIXELS:
            raise DamagedError(f"the archive claims {height}x{width} pixels for {name!r:.100}")
    return entries


def _entry(picture: Any) -> _Entry:
    types = [type(part) for part in picture] if isinstance(picture, list) else []
    if types == [str, str] and picture[0] == _WHOLE:
        return _Entry(picture[1], None, (0, 0))
    if types == [str, str, int, int] and picture[1] in MODES:
        if min(picture[2:]) < 1:
            raise DamagedError(f"the archive claims {picture[2]}x{picture[3]} pixels for {picture[0]!r:.100}")
        return _Entry(picture[0], picture[1], (picture[2], picture[3]))
    raise OtherVersionError(
        f"the archive describes a picture as {picture!r:.100}, which this release does not know: a newer release of"
        " axial-transformers is needed"
    )


def _values(picture: Image.Image) -> NDArray[np.uint8]:
    """[H, W, C]."""
    values = np.asarray(picture)
    return split_uint16(values[..., None]) if picture.mode == "I;16" else np.atleast_3d(values)


def _picture(values: NDArray[np.uint8]) -> Image.Image:
    values = np.ascontiguousarray(values)
    if values.shape[-1] == 2:
        return Image.fromarray(join_uint16(values)[..., 0])
    return Image.fromarray(values if values.shape[-1] == 3 else values[..., 0])


def _from_file(file: bytes, entry: _Entry) -> Image.Image:
    try:
        picture = from_png(file, entry.name)
    except PictureError as error:
        raise DamagedError(f"the archive is damaged: {error}") from error
    found = (picture.mode, picture.height, picture.width)
    if found != (entry.mode, *entry.size):
        raise DamagedError(f"{entry.name!r:.100} is of mode and size {found}, not {(entry.mode, *entry.size)}")
    return picture


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:  # file systems that take two names for one
        raise DamagedError(f"the archive names {path.name!r:.100} twice") from error
