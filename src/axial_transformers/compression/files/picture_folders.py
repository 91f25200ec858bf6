"""Folders of pictures: to images of the model's size, and back to files of the same names, modes and pixels."""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.files import tiles
from axial_transformers.compression.files.contents import Contents, OtherSizes, other_size_error
from axial_transformers.data import join_uint16, split_uint16
from axial_transformers.data.picture_files import MOST_PIXELS, Member, is_gray16, opened, upright
from axial_transformers.models import AxialTransformerConfig

_MODES = {1: "L", 2: "I;16", 3: "RGB"}
_KEEPS = {
    ".png": _MODES.values(), ".tif": _MODES.values(), ".tiff": _MODES.values(), ".bmp": ("L", "RGB"), ".webp": ("RGB",),
    ".ppm": ("RGB",), ".pgm": ("L",),
}  # fmt: skip


def read(folder: Path, config: AxialTransformerConfig, other_sizes: OtherSizes) -> Contents:
    """Reads every picture below a folder; those of other modes than the model's are stored whole, as PNG files.

    Raises:
        ValueError: a file that is not a picture, or of another size (unless tiled).
    """
    if len(config.shape) != 2:
        raise ValueError(f"{folder} holds pictures, but the model is of shape {config.shape}")
    images, pictures, files = [], [], []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        picture = _open(path)
        pictures.append([path.relative_to(folder).as_posix(), picture.mode, picture.height, picture.width])
        if picture.mode == _MODES.get(config.channels):
            if (picture.height, picture.width) != config.shape and other_sizes == "refuse":
                raise other_size_error(path, (picture.height, picture.width), config.shape)
            images.append(tiles.cut(_values(picture)[None], config.shape))
        else:
            files.append(_as_png(picture))
    if not pictures:
        raise ValueError(f"{folder} holds no pictures")
    empty = np.zeros((0, *config.shape, config.channels), np.uint8)
    return Contents(np.concatenate([empty, *images]), {"pictures": pictures}, files)


def write(
    target: Path, pictures: Any, config: AxialTransformerConfig, images: Sequence[NDArray[np.uint8] | None],
    files: Sequence[bytes | None],
) -> list[str]:  # fmt: skip
    """Writes the pictures into an empty folder, and returns the names of those of which a part is missing (None).

    Raises:
        DamagedError: the description does not fit the images and files, or names files outside of the folder.
    """
    lost, images_left, files_left = [], iter(images), iter(files)
    for name, mode, *axes in _checked(pictures):
        size, modelled = (axes[0], axes[1]), mode == _MODES.get(config.channels)
        source: Iterator[Any] = images_left if modelled else files_left
        count = prod(tiles.grid(size, config.shape)) if modelled else 1
        parts = list(islice(source, count))
        if len(parts) < count:
            raise DamagedError(f"the archive describes more pictures than it holds: {name!r}")
        if any(part is None for part in parts):
            lost.append(name)
        elif modelled:
            _save(_picture(tiles.join(np.stack(parts), size)[0]), target, name)
        else:
            _save(_from_png(parts[0], name, mode, size), target, name)
    if [*images_left, *files_left]:
        raise DamagedError("the archive holds more pictures than it describes")
    return lost


def _checked(pictures: Any) -> list[tuple[str, str, int, int]]:
    """The description [[name, mode, height, width], ..], after it is checked."""
    if not isinstance(pictures, list):
        raise DamagedError("the archive's description of its pictures is damaged")
    for picture in pictures:
        if not isinstance(picture, list) or [type(part) for part in picture] != [str, str, int, int]:
            raise DamagedError(f"the archive's description of a picture is damaged: {picture!r:.100}")
        name, height, width = PurePosixPath(picture[0]), *picture[2:]
        if name.is_absolute() or not name.parts or ".." in name.parts or set("\\:\0") & set(picture[0]):
            raise DamagedError(f"the archive names a file outside of its folder: {picture[0]!r:.100}")
        if min(height, width) < 1 or height * width > MOST_PIXELS:
            raise DamagedError(f"the archive claims {height}x{width} pixels for {picture[0]!r:.100}")
    return [tuple(picture) for picture in pictures]


def _open(path: Path) -> Image.Image:
    """The upright picture of a file, in one of the modes that an archive holds."""
    with opened(path) as header:
        if header.format == "MPO":
            raise ValueError(f"{path} holds several images: save each as a file of its own")
        deep, picture = is_gray16(header), upright(path, header)
    if deep:
        return Image.fromarray(np.asarray(picture).astype(np.uint16))
    if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA"):
        raise ValueError(f"{path} has pixels of mode {picture.mode}, which no archive holds: convert it first")
    return picture


def _values(picture: Image.Image) -> NDArray[np.uint8]:
    """[H, W, C]."""
    values = np.asarray(picture)
    return split_uint16(values[..., None]) if picture.mode == "I;16" else np.atleast_3d(values)


def _picture(values: NDArray[np.uint8]) -> Image.Image:
    values = np.ascontiguousarray(values)
    if values.shape[-1] == 2:
        return Image.fromarray(join_uint16(values)[..., 0])
    return Image.fromarray(values if values.shape[-1] == 3 else values[..., 0])


def _as_png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _from_png(file: bytes, name: str, mode: str, size: tuple[int, int]) -> Image.Image:
    try:
        member = Member(file, repr(name))
        with opened(member, formats=("PNG",)) as picture:
            found = (picture.mode, picture.height, picture.width)
            if found == (mode, *size):
                return upright(member, picture)
    except ValueError as error:
        raise DamagedError(f"the archive is damaged: {error}") from error
    raise DamagedError(f"{name!r} is of mode and size {found}, not {(mode, *size)}")


def _save(picture: Image.Image, target: Path, name: str) -> None:
    """Saves under its own name, with .png appended if files of that kind do not keep pixels and mode."""
    path = target / name
    if path.suffix.lower() != ".png" and picture.mode not in _KEEPS.get(path.suffix.lower(), ()):
        path = path.with_name(f"{path.name}.png")
    if path.exists():
        raise DamagedError(f"the archive names {name!r} twice")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, lossless=True)  # an option of WebP, ignored by other formats
