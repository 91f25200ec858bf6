"""The description of what an archive holds: which files its examples come from, and how they return."""

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import PurePath, PurePosixPath

from axial_transformers.compression.container import DamagedError
from axial_transformers.data.tiles import tile_grid
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.typed_json import from_json, to_json

MODES = {
    1: ("1", "L", "I;16"),
    3: ("1", "L", "RGB"),
    4: ("1", "L", "RGB", "LA", "RGBA"),
}
"""By the channels of a model, the modes of images that it codes, as Pillow calls them."""
_MAX_TEXT, _ALWAYS, _RATIO = 1 << 27, 1 << 24, 64
"""Bytes of a description: at most, always allowed, and for each of its bytes in the archive."""
_FEW_VALUES, _VALUES_OF_BYTE = 1 << 16, 8
"""Values of its JSON: always allowed, and more for each of its bytes in the archive."""


HeldImage = tuple[str, str, int, int]
"""One example: the name of the file in which it returns, its mode, height and width."""


@dataclass(frozen=True)
class HeldArray:
    """The array whose values are the examples: [*examples, *A], with an axis of channels anywhere, or without one."""

    name: str
    """The name of the file in which it returns; its suffix decides the format."""
    member: str
    """Its name in an .npz file."""
    dtype: str
    """Type and byte order, as NumPy writes them."""
    shape: tuple[int, ...]
    channels: int | None
    """The axis of channels."""
    axes: str = ""
    """One letter of T, D, H, W, L, C for each axis of a scan."""
    scale: float = 1.0
    offset: float = 0.0
    """A value v means offset + scale * v in the unit of a scan."""
    header: str = ""
    """The geometry of a scan, as a NIfTI header in base64."""
    columns: tuple[tuple[str, str], ...] = ()
    """Titles and types of the columns of a table; empty titles if it has none."""

    def __post_init__(self) -> None:
        lengths_only = self.shape and all(0 < length < 1 << 31 for length in self.shape) and len(self.shape) <= 16
        of_channels = self.channels is None or 0 <= self.channels < len(self.shape)
        if not (lengths_only and of_channels and re.fullmatch(r"\|[biu]1|[<>]([iu][248]|f[248])", self.dtype)):
            raise ValueError("an array of such a type and shape is in no archive")

    def sizes(self, config: AxialTransformerConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the lengths of the axes before those of the model, and of those."""
        lengths = [length for axis, length in enumerate(self.shape) if axis != self.channels]
        outer = len(lengths) - len(config.shape)
        channels = 1 if self.channels is None else self.shape[self.channels]
        if outer < 0 or channels != config.channels:
            raise DamagedError("the archive describes an array that is not of its model")
        return tuple(lengths[:outer]), tuple(lengths[outer:])


@dataclass(frozen=True)
class Description:
    """What the examples of an archive are: images in order, or one array; and the files that are stored beside them."""

    images: tuple[HeldImage, ...] = ()
    array: HeldArray | None = None
    stored: tuple[tuple[str, int], ...] = ()
    """Names and bytes; of .npz files, its other arrays."""

    def __post_init__(self) -> None:
        if bool(self.images) == bool(self.array):
            raise ValueError("it has images and an array, or neither")
        small = all(0 < length < 1 << 31 for _, _, *lengths in self.images for length in lengths)
        if not small or any(size < 0 for _, size in self.stored):
            raise ValueError("it has images or files of such sizes that no archive holds")
        names = [*(name for name, *_ in self.images), *(name for name, _ in self.stored)]
        _check_names([*names, self.array.name] if self.array else names)

    def example_sizes(self, config: AxialTransformerConfig) -> list[tuple[int, ...]]:
        """Return the lengths of the axes *A of each example."""
        if self.array is None:
            return [(height, width) for _, _, height, width in self.images]
        outer, size = self.array.sizes(config)
        return [size] * prod(outer)

    def check(self, config: AxialTransformerConfig, tiles: int) -> None:
        """Raise DamagedError unless an archive of so many tiles can hold this."""
        modes = MODES.get(config.channels, ()) if len(config.shape) == 2 else ()
        if not {mode for _, mode, *_ in self.images} <= {*modes}:
            raise DamagedError("the archive describes images that its model does not code")
        if self.array:
            outer, size = self.array.sizes(config)
            described = prod(outer) * prod(tile_grid(size, config.shape))
        else:
            described = sum(prod(tile_grid(size, config.shape)) for size in self.example_sizes(config))
        if described != tiles:
            raise DamagedError("the archive does not hold what it describes")

    def pack(self) -> bytes:
        """Return the description as bytes.

        Raises:
            ValueError: too many files, or names that are too long.
        """
        packed = zlib.compress(json.dumps(to_json(self), separators=(",", ":")).encode(), 9)
        try:
            Description.unpack(packed)
        except DamagedError as error:
            raise ValueError(f"too many files, or names that are too long ({error}): split the folder") from error
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> "Description":
        """Return the description in these bytes; its names are safe.

        Raises:
            DamagedError: it is damaged, or takes more memory than its archive accounts for.
        """
        if not packed:
            raise DamagedError("the archive holds examples, but no description of files: use axial.decompress")
        try:
            unpacking = zlib.decompressobj()
            text = unpacking.decompress(packed, min(_MAX_TEXT, max(_ALWAYS, _RATIO * len(packed))))
            values = text.count(b",") + text.count(b"[") + 4 * text.count(b"{")  # about, and those within names
            if unpacking.unconsumed_tail or values > _FEW_VALUES + _VALUES_OF_BYTE * len(packed):
                raise ValueError("it is too large for its archive")
            return from_json(cls, json.loads(text), "it")
        except (zlib.error, ValueError, RecursionError) as error:
            raise DamagedError(f"the archive's description of what it holds is damaged ({error})") from error


def _check_names(names: Sequence[str]) -> None:
    """Raise ValueError for names that lead out of the target folder, and for equal ones."""
    for name in names:
        posix = PurePosixPath(name)
        native = PurePath(name)
        outside = posix.is_absolute() or native.is_absolute() or native.drive or ".." in native.parts
        if outside or not posix.parts or "\0" in name or str(posix) != name:
            raise ValueError(f"{name!r:.100} is a file outside of its folder")
        os.fsencode(name)
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise ValueError(f"{twice[0]!r:.100} is there twice")
