"""What goes into an archive: files and their images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.compression import container
from axial_transformers.compression.archive import File
from axial_transformers.compression.container import DamagedError

_NAMED = 20


OtherSizes = Literal["store", "tile"]
"""Images of another size: files stored as they are, or tiles with repeated edges."""


@dataclass(frozen=True)
class Contents:
    """Images of the model's size, and everything else to store."""

    images: "Tiles"
    description: dict[str, Any]
    files: list[File] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """Files that are stored byte for byte."""
    examples: int = 0
    """Number before tiling."""


class Tiles:
    """Images [N, *A, C], read on demand from the examples of a source.

    Args:
        sizes: of the axes of each example.
        of: reads the images of one example.
        shape: *A and C of an image.
    """

    def __init__(
        self, sizes: Sequence[tuple[int, ...]], of: Callable[[int], NDArray[np.integer]], shape: Sequence[int]
    ):
        self.sizes, self._of, self._shape = sizes, lru_cache(1)(of), shape
        self._ends = np.cumsum([0, *(prod(tile_grid(size, tuple(shape[:-1]))) for size in sizes)])

    @property
    def values(self) -> int:
        """Values of all examples, without repeated edges."""
        return sum(map(prod, self.sizes)) * self._shape[-1]

    def example(self, number: int) -> NDArray[np.integer]:
        """Return an example [*size, C] as it was before it was cut."""
        return join_tiles(self._of(number), self.sizes[number])[0]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, chosen: slice) -> NDArray[np.integer]:
        start, stop, _ = chosen.indices(len(self))
        if start >= stop:
            return np.zeros((0, *self._shape), np.uint8)
        first, last = (int(np.searchsorted(self._ends, number, "right")) for number in (start, stop - 1))
        skipped = self._ends[first - 1]
        images = np.concatenate([self._of(i) for i in range(first - 1, last)])
        return images[start - skipped : stop - skipped]


def tile_grid(axes: tuple[int, ...], tile: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of tiles along each axis."""
    return tuple(-(-size // length) for size, length in zip(axes, tile, strict=True))


def cut_tiles(examples: NDArray[np.integer], tile: tuple[int, ...]) -> NDArray[np.integer]:
    """Cut examples [N, *A, C] into tiles [N * prod(grid), *tile, C]; repeat edges to fill them."""
    count, *axes, channels = examples.shape
    tiles = tile_grid(tuple(axes), tile)
    missing = [(0, k * length - size) for k, length, size in zip(tiles, tile, axes)]
    padded = np.pad(examples, [(0, 0), *missing, (0, 0)], mode="edge")
    interleaved = padded.reshape(count, *(n for pair in zip(tiles, tile) for n in pair), channels)
    return interleaved.transpose(_tiles_first(len(tile))).reshape(-1, *tile, channels)


def join_tiles(tiles: NDArray[np.integer], axes: tuple[int, ...]) -> NDArray[np.integer]:
    """Invert `cut_tiles`, for examples with axes *A."""
    tile, channels = tiles.shape[1:-1], tiles.shape[-1]
    per_axis = tile_grid(axes, tile)
    split = tiles.reshape(len(tiles) // prod(per_axis), *per_axis, *tile, channels)
    padded = split.transpose(np.argsort(_tiles_first(len(tile)))).reshape(
        len(split), *(k * length for k, length in zip(per_axis, tile)), channels
    )
    return padded[:, *(slice(size) for size in axes)]


def _tiles_first(axes: int) -> tuple[int, ...]:
    return (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)


class Source(NamedTuple):
    """The files that go into an archive."""

    root: Path
    files: list[Path]
    left_out: list[str]

    def name(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def enumeration(self, names: Sequence[str]) -> str:
        count, _, first = enumeration(names).partition(":")
        return f"{count}, {self.size(names):,} bytes:{first}"

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes of files."""
        return sum((self.root / name).stat().st_size for name in names)


def source_of(path: Path) -> Source:
    """Return the files below a folder, or one file."""
    if not path.is_dir():
        return Source(path.parent, [path], [])
    paths = sorted(found for found in path.rglob("*") if found.is_symlink() or not found.is_dir())
    chosen = [found for found in paths if found.is_file() and not found.name.startswith(".")]
    return Source(path, chosen, [found.relative_to(path).as_posix() for found in sorted({*paths} - {*chosen})])


def content(path: Path) -> bytes:
    """Return a file's bytes, if they are few enough."""
    if path.stat().st_size > container.MAX_BYTES:
        raise ValueError(f"{path} is larger than {container.MAX_BYTES:,} bytes: leave it out")
    return path.read_bytes()


def enumeration(names: Sequence[str]) -> str:
    """Return the number of names, and the first: 12: a, b, ..."""
    return f"{len(names):,}: {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}"


def write_new(path: Path, content: bytes) -> None:
    """Write a restored file; DamagedError if it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:  # file systems that take two names for one
        raise DamagedError(f"the archive names {path.name!r:.100} twice") from error
