"""What of a source goes into an archive: its examples in tiles, their description, and files to store beside them."""

import io
import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.compression.description import MODES, Description, HeldArray, HeldImage
from axial_transformers.data import DataConfig, load, scans, tables
from axial_transformers.data.arrays import chosen_array, is_batch
from axial_transformers.data.blocks_of_arrays import Sliced, channels_last, range_of_array
from axial_transformers.data.errors import ParsingError
from axial_transformers.data.folders import files_below
from axial_transformers.data.images import SUFFIXES, is_gray16, opened, upright
from axial_transformers.data.npy import array_names, read_array
from axial_transformers.data.scans import suffix_of
from axial_transformers.data.tiles import cut_tiles, tile_grid
from axial_transformers.data.value_range import ValueRange, integers
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.wording import counted

FORMATS = {
    ".png": ("PNG", ("1", "L", "I;16", "LA", "RGB", "RGBA")), ".bmp": ("BMP", ("L", "RGB")),
    ".tif": ("TIFF", ("L", "I;16", "RGB")), ".tiff": ("TIFF", ("L", "I;16", "RGB")),
    ".ppm": ("PPM", ("RGB",)), ".pgm": ("PPM", ("L",)),
}  # fmt: skip
"""By suffix, the format of Pillow and the modes that it keeps without loss."""
_NAMED = 20


class Tiles:
    """Images [N, *A, C], cut on demand from examples of any lengths.

    Args:
        sizes: of the axes *A of each example.
        read: returns the example [*size, C] of a number.
        shape: *A and C of an image.
    """

    def __init__(
        self, sizes: Sequence[tuple[int, ...]], read: Callable[[int], NDArray[np.integer]], shape: tuple[int, ...]
    ):
        self.sizes, self.example, self._shape = sizes, read, shape
        self._of = lru_cache(1)(lambda number: cut_tiles(read(number)[None], shape[:-1]))
        self._ends = np.cumsum([0, *(prod(tile_grid(size, shape[:-1])) for size in sizes)])

    @property
    def values(self) -> int:
        """Values of all examples, without repeated edges."""
        return sum(map(prod, self.sizes)) * self._shape[-1]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, chosen: slice) -> NDArray[np.integer]:
        start, stop, _ = chosen.indices(len(self))
        first, last = (int(np.searchsorted(self._ends, number, "right")) for number in (start, stop - 1))
        skipped = self._ends[first - 1]
        images = np.concatenate([self._of(i) for i in range(first - 1, last)])
        return images[start - skipped : stop - skipped]


@dataclass(frozen=True)
class Contents:
    """What goes into an archive."""

    tiles: Tiles
    description: Description
    stored: bytes
    """The chunk of stored files, if there are any."""
    input_size: int
    """Bytes of all files of the source that the archive holds."""
    said: Sequence[str]
    """Lines about what is left out, and how files return."""


def _packed(files: Iterable[tuple[str, bytes]]) -> tuple[tuple[tuple[str, int], ...], bytes]:
    """Return names and sizes of files, and their contents one after the other, by zlib; nothing without any."""
    packer, sizes, parts = zlib.compressobj(9), list[tuple[str, int]](), list[bytes]()
    for name, content in files:
        sizes.append((name, len(content)))
        parts.append(packer.compress(content))
    return tuple(sizes), b"".join([*parts, packer.flush()]) if sizes else b""


def read_contents(
    source: Path, config: AxialTransformerConfig, data: DataConfig | None = None, only_data: bool = False
) -> Contents:
    """Read a source for an archive by a model of this configuration.

    Args:
        data: how the model's own data are read.
        only_data: leave out files that are no data.

    Raises:
        FileNotFoundError: no such source.
        ValueError: no data of this model in it.
    """
    data = data or DataConfig()
    file, _ = scans.parted(source)
    suffix = file.suffix.lower()
    if scans.is_scan(source):
        return _of_scan(source, config, data)
    if suffix in tables.SUFFIXES:
        return _of_table(file, config, data)
    if suffix in (".npy", ".npz") and not (suffix == ".npz" and is_batch(file, array_names(file))):
        return _of_array(file, config, data)
    if len(config.shape) == 2 and (suffix in SUFFIXES or _holds_images(file)):
        return _of_images(file, config, only_data)
    return _of_examples(source, config, data)


def _of_images(path: Path, config: AxialTransformerConfig, only_data: bool) -> Contents:
    """Return the images of a folder, or one image; other files are stored."""
    files, said = _files_of(path)
    images, coded, others, taken = list[HeldImage](), list[Path](), dict[str, Path](), {*files}
    for name, file in files.items():
        image = _image_in(file)
        if image is None or image.mode not in MODES.get(config.channels, ()):
            others[name] = file
            continue
        _values_of(image, config, file)
        returned = _returned(name, image, taken)
        taken.add(returned)
        images.append((returned, image.mode, image.height, image.width))
        coded.append(file)
    if not images:
        modes = ", ".join(MODES.get(config.channels, ())) or "any mode"
        raise ValueError(f"{path} holds no image of {modes}, which a model of {config.channels} channels codes")
    renamed = len(taken) - len(files)
    as_png = f", {renamed:,} of them as .png" if renamed else ""
    said.append(f"with equal values, not equal bytes, return {counted(len(images), 'file')}{as_png}")
    if others:
        done = "left out, since they are no data of the model" if only_data else "stored, not coded by the model"
        shown = ", ".join([*[*others][:_NAMED], *["..."] * (len(others) > _NAMED)])
        said.append(f"{done}: {counted(len(others), 'file')}, {shown}")
    if only_data:
        others.clear()

    def read(number: int) -> NDArray[np.integer]:
        image, (_, *held) = _image_in(coded[number]), images[number]
        if image is None or [image.mode, image.height, image.width] != held:
            raise ValueError(f"{coded[number]} has changed since it was first read: compress it again")
        return _values_of(image, config, coded[number])

    names, stored = _packed((name, file.read_bytes()) for name, file in others.items())
    description = Description(tuple(images), stored=names)
    tiles = Tiles(description.example_sizes(config), read, (*config.shape, config.channels))
    return Contents(tiles, description, stored, sum(file.stat().st_size for file in (*coded, *others.values())), said)


def _files_of(path: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a folder, or one file, by their names in it, and lines about what is left out."""
    if not path.is_dir():
        return {path.name: path}, []
    found, left_out = files_below(path)
    files = {file.relative_to(path).as_posix(): file for file in found if not file.is_symlink()}
    links = [f"left out: {counted(len(found) - len(files), 'link')}"] if len(files) < len(found) else []
    return files, [left_out, *links] if left_out else links


def _holds_images(path: Path) -> bool:
    return path.is_dir() and any(file.suffix.lower() in SUFFIXES for file in _files_of(path)[0].values())


def _image_in(file: Path) -> Image.Image | None:
    """Return the upright image in a file in one of the modes of `MODES`; None without one, or with several."""
    if file.suffix.lower() not in SUFFIXES:
        return None
    with suppress(ParsingError), opened(file) as header:
        if header.format == "MPO":  # of which `opened` shows the first image
            return None
        deep, image = is_gray16(header), upright(header)
        if deep:
            return None if image.has_transparency_data else Image.fromarray(np.asarray(image).astype(np.uint16))
        if image.mode in ("P", "PA") or "transparency" in image.info:
            return image.convert("RGBA" if image.has_transparency_data else "RGB")
        return image if image.mode in MODES[4] else None
    return None


def _values_of(image: Image.Image, config: AxialTransformerConfig, file: Path) -> NDArray[np.integer]:
    """Return the values [H, W, C] of an image."""
    mode = {1: image.mode if image.mode == "I;16" else "L", 3: "RGB", 4: "RGBA"}[config.channels]
    return _within(np.atleast_3d(np.asarray(image.convert(mode))), config, file)


def _within(values: NDArray[Any], config: AxialTransformerConfig, where: Path) -> NDArray[np.integer]:
    ValueRange.of(values)._replace(grid=config.floats).require_within(config.range, where)
    return values.astype(config.range.type)


def _returned(name: str, image: Image.Image, taken: set[str]) -> str:
    """Return the name under which an image returns: its own if its format keeps all values, else one of a .png."""
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    if suffix in FORMATS and image.mode in FORMATS[suffix][1]:
        return name
    for returned in (path.with_suffix(".png").as_posix(), f"{name}.png"):
        if returned not in taken and len(os.fsencode(PurePosixPath(returned).name)) < 256:
            return returned
    raise ValueError(f"{name} would return as a .png file whose name is taken or too long: rename it")


def _of_array(path: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    """Return one array of an .npy or .npz file; the others of an .npz file are stored."""
    names = array_names(path)
    name = chosen_array(path, names, data if data.key in names else replace(data, key=None))
    stored = [(f"{each}.npy", _npy(read_array(path, each))) for each in names if each != name]
    return _coded(path, read_array(path, name), data.axes, config, path.name, name, stored)


def _of_table(path: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    """Return the columns of numbers of a table; a warning says what is left out."""
    table = tables.read_table(path, decimal=data.decimal)
    names = f": {', '.join(table.titles)}" if table.titles else ""
    said = f"1 table returns with its {counted(len(table.columns), 'column')} of numbers, as float64 holds them{names}"
    return _coded(path, table.values, "NL", config, path.name, said=said, columns=table.columns)


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _of_scan(path: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    scan, (file, _) = scans.read_scan(path, data.axes), scans.parted(path)
    own = "" if file.is_dir() and file.suffix != ".zarr" else suffix_of(file)
    name = file.name[: -len(own) or None] + scan.suffix
    same = "in the format in which it came" if own == scan.suffix else f"as {name}"
    geometry = " and geometry" if scan.header else ""
    is_scaled = scan.suffix == ".npy" and (scan.scale, scan.offset) != (1.0, 0.0)
    scaling = f"; their scale {scan.scale:g} and offset {scan.offset:g} are left out" if is_scaled else ""
    return _coded(
        file, scan.values, scan.axes, config, name,
        said=f"1 scan returns {same}: equal values, type{geometry}, not equal bytes{scaling}",
        axes=scan.axes, scale=scan.scale, offset=scan.offset,
        header=b64encode(scan.header).decode(),
    )  # fmt: skip


def _of_examples(source: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    """Return what `load` makes of any other source, which returns as arrays in an .npz file."""
    examples = load(source, replace(data, size=None, cut="exact", offsets="fixed", skip_bad=0), "all")
    if examples.range.grid is not None:
        raise ValueError(f"{source} holds floats, which archives keep only from arrays and scans: save them as .npy")
    stored = [] if examples.labels is None else [("labels.npy", _npy(examples.labels))]
    name, axes = f"{source.stem}.npz", "N" + "?" * (examples.values.ndim - 2) + "C"
    said = f"as arrays, in {name}, return {counted(len(examples), 'example')}"
    return _coded(source, _ByExample(examples.values), axes, config, name, stored=stored, said=said)


class _ByExample:
    """Values [N, *A, C] that may be read one after the other only, by slices of the first axis or by an index."""

    def __init__(self, values: NDArray[np.integer]) -> None:
        self._values, self.shape = values, values.shape

    def __getitem__(self, box: Any) -> NDArray[np.integer]:
        if isinstance(box, slice) or not box:
            return self._values[box or slice(None)]
        return self._values[[*box]][0]


def _coded(
    path: Path,
    array: Sliced,
    letters: str | None,
    config: AxialTransformerConfig,
    name: str,
    member: str = "values",
    stored: Sequence[tuple[str, bytes]] = (),
    said: str = "",
    **about: Any,
) -> Contents:
    """Return the examples of an array whose axes have these letters; `about` are other fields of `HeldArray`."""
    shape, inner = tuple(map(int, array.shape)), len(config.shape)
    if letters is None:
        last = config.channels > 1 or (len(shape) > inner + 1 and shape[-1] == 1) or shape[inner:] == (1,)
        channels = len(shape) - 1 if last else None
    elif len(letters) == len(shape):
        channels = letters.index("C") if "C" in letters else None
    else:
        raise ValueError(f"{path} has shape {list(shape)}, not the {len(letters)} axes of data.axes={letters}")
    count = 1 if channels is None else shape[channels]
    if len(shape) - (channels is not None) < inner or count != config.channels:
        blocks = [*config.shape, config.channels]
        raise ValueError(f"{path} is of shape {list(shape)}: the model is of blocks {blocks}, channels last")
    held = HeldArray(name, member, np.asarray(array[:1]).dtype.str, shape, channels, **about)
    found = range_of_array(str(path), array, config.grid)
    if found.grid and not config.grid:
        raise ValueError(f"{path} holds {found.grid}, but the model knows integers: give a model of such data")
    outer, _ = held.sizes(config)
    axes = "".join("C" if axis == channels else "?" for axis in range(len(shape)))
    values = array if axes.endswith("C") else channels_last(array, axes)

    def read(number: int) -> NDArray[np.integer]:
        return _within(integers(np.asarray(values[np.unravel_index(number, outer)]), found), config, path)

    names, packed = _packed(stored)
    description = Description(array=held, stored=names)
    tiles = Tiles(description.example_sizes(config), read, (*config.shape, config.channels))
    size = sum(each.stat().st_size for each in scans.files_of(path))
    return Contents(tiles, description, packed, size, [said] if said else [])
