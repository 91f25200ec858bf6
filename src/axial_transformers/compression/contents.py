"""What of a source goes into an archive: its examples in tiles, their description, and files to store beside them."""

import io
import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from axial_transformers.data import DataConfig, Source, scans, tables
from axial_transformers.data.arrays import chosen_array, is_batch
from axial_transformers.data.blocks import Blocks, Sliced, View, channels_last, range_of_array
from axial_transformers.data.errors import ParsingError, say
from axial_transformers.data.images import SUFFIXES, has_own_maxval, is_gray16, opened, upright
from axial_transformers.data.npy import array_names, read_array
from axial_transformers.data.scans import suffix_of
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
MAX_KEPT = 1 << 28
"""Values of images that stay in memory between the check and the coding. Those of others are decoded twice."""


@dataclass(frozen=True)
class Contents:
    """What goes into an archive."""

    tiles: Blocks
    """[N, *A, C], cut from examples of any lengths, whose edges they repeat."""
    description: Description
    stored: bytes
    """The chunk of stored files, if there are any."""
    input_size: int
    """Bytes of all files of the source that the archive holds."""
    said: Sequence[str]
    """Lines about what is left out, and how files return."""

    @property
    def values(self) -> int:
        """Values of all examples, without repeated edges."""
        return sum(prod(example.shape) for example in self.tiles.arrays)

    def examples(self) -> Iterator[NDArray[np.integer]]:
        """Yield the examples [*size, C]."""
        for array in self.tiles.arrays:
            yield integers(np.asarray(array[()]), self.tiles.range)


def _packed(files: Iterable[tuple[str, bytes]]) -> tuple[tuple[tuple[str, int], ...], bytes]:
    """Return names and sizes of files, and their contents one after the other, by zlib; nothing without any."""
    packer = zlib.compressobj(9)
    sizes: list[tuple[str, int]] = []
    parts: list[bytes] = []
    for name, content in files:
        sizes.append((name, len(content)))
        parts.append(packer.compress(content))
    return tuple(sizes), b"".join([*parts, packer.flush()]) if sizes else b""


def read_contents(source: Source, config: AxialTransformerConfig, only_data: bool = False) -> Contents:
    """Read a source for an archive by a model of this configuration.

    Args:
        source: opened with the options by which the model's own data are read.
        only_data: leave out files that are no data.

    Raises:
        ValueError: no data of this model in it.
    """
    kind = source.listing.kind
    if kind == "scan" and source.listing.is_one_file:
        return _scan_contents(source, config)
    if kind == "array" and source.listing.is_one_file:
        suffix = source.path.suffix.lower()
        if suffix in tables.SUFFIXES:
            return _table_contents(source.path, config, source.config)
        if not is_batch(source.path, array_names(source.path)):
            return _array_contents(source.path, config, source.config)
    if kind == "image" and len(config.shape) == 2:
        return _image_contents(source, config, only_data)
    return _other_contents(source, config)


def _image_contents(source: Source, config: AxialTransformerConfig, only_data: bool) -> Contents:
    """Return the images of a folder, or one image; other files are stored."""
    files, said = _listed_files(source)
    pictures = _pictures_in(files, config)
    if not pictures:
        modes = ", ".join(MODES.get(config.channels, ())) or "any mode"
        raise ValueError(f"{source.name} holds no image of {modes}, which a model of {config.channels} channels codes")
    held = _held_images(pictures, {*files})
    renamed = sum(image[0] not in files for image in held)
    as_png = f", {renamed:,} of them re-encoded as PNG" if renamed else ""
    said.append(f"{counted(len(pictures), 'image')} will come back with the same pixels{as_png}")
    others = {name: file for name, file in files.items() if name not in pictures}
    if others:
        done = "left out, since they are no data of the model" if only_data else "stored, not coded by the model"
        shown = ", ".join([*others][:_NAMED]) + ", ..." * (len(others) > _NAMED)
        said.append(f"{done}: {counted(len(others), 'file')}, {shown}")
    stored_files = {} if only_data else others
    names, stored = _packed((name, file.read_bytes()) for name, file in stored_files.items())
    return Contents(
        tiles=_tiles([*pictures.values()], config),
        description=Description(held, stored=names),
        stored=stored,
        input_size=_total_size(files[name] for name in (*pictures, *stored_files)),
        said=said,
    )


def _pictures_in(files: Mapping[str, Path], config: AxialTransformerConfig) -> dict[str, "_Picture"]:
    """Return the images that a model codes, by the names of their files; each has been decoded once."""
    pictures: dict[str, _Picture] = {}
    values_of_all = 0

    @lru_cache(1)
    def decode(picture: _Picture) -> NDArray[np.integer]:
        image = _image_in(picture.file)
        if image is None or (image.mode, image.height, image.width) != (picture.mode, *picture.shape[:2]):
            raise ValueError(f"{picture.file} has changed since it was first read: compress it again")
        return _image_values(image, config, picture.file)

    for name, file in files.items():
        image = _image_in(file)
        if image is None or image.mode not in MODES.get(config.channels, ()):
            continue
        values = _image_values(image, config, file)
        values_of_all += values.size
        kept = values if values_of_all <= MAX_KEPT else None
        pictures[name] = _Picture(file, image.mode, values.shape, kept, decode)
    return pictures


def _held_images(pictures: Mapping[str, "_Picture"], taken: set[str]) -> tuple[HeldImage, ...]:
    """Return the names under which images return, none of which is taken, with their modes and sizes."""
    held: list[HeldImage] = []
    for name, picture in pictures.items():
        returned = _returned(name, picture, taken)
        taken.add(returned)
        height, width, _ = picture.shape
        held.append((returned, picture.mode, height, width))
    return tuple(held)


def _total_size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _tiles(examples: Sequence[Sliced], config: AxialTransformerConfig) -> Blocks:
    return Blocks(examples, config.shape, config.range, repeats_edges=True)


@dataclass(frozen=True, eq=False)
class _Picture:
    """The values [H, W, C] of an image file."""

    file: Path
    mode: str
    shape: tuple[int, ...]
    values: NDArray[np.integer] | None
    """None: not kept, but decoded again."""
    decode: Callable[["_Picture"], NDArray[np.integer]]

    def __getitem__(self, box: Any) -> NDArray[np.integer]:
        values = self.decode(self) if self.values is None else self.values
        return values[box]


def _listed_files(source: Source) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a folder, or one file, by their names in it, and lines about what is left out."""
    if source.listing.is_one_file:
        return {source.path.name: source.path}, []
    by_name = {
        file.relative_to(source.path).as_posix(): file for file in (*source.listing.files, *source.listing.others)
    }
    files = {name: by_name[name] for name in sorted(by_name) if not by_name[name].is_symlink()}
    links = len(by_name) - len(files)
    return files, [f"left out: {counted(links, 'link')}"] if links else []


def _image_in(file: Path) -> Image.Image | None:
    """Return the upright image in a file in one of the modes of `MODES`; None without one, or with several."""
    if file.suffix.lower() not in SUFFIXES:
        return None
    with suppress(ParsingError), opened(file) as header:
        if header.format == "MPO":  # of which `opened` shows the first image
            return None
        deep = is_gray16(header)
        image = upright(header)
        if deep:
            return None if image.has_transparency_data else Image.fromarray(np.asarray(image).astype(np.uint16))
        if image.mode in ("P", "PA") or "transparency" in image.info:
            return image.convert("RGBA" if image.has_transparency_data else "RGB")
        return image if image.mode in MODES[4] else None
    return None


def _image_values(image: Image.Image, config: AxialTransformerConfig, file: Path) -> NDArray[np.integer]:
    """Return the values [H, W, C] of an image."""
    mode = {1: image.mode if image.mode == "I;16" else "L", 3: "RGB", 4: "RGBA"}[config.channels]
    values = np.atleast_3d(np.asarray(image.convert(mode)))
    ValueRange.of(values)._replace(grid=config.floats).require_within(config.range, file)
    return values.astype(config.range.type)


def _returned(name: str, picture: _Picture, taken: set[str]) -> str:
    """Return the name under which an image returns: its own if its format keeps all of it, else one of a .png."""
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    kind, modes = FORMATS.get(suffix, ("", ()))
    if picture.mode in modes and not (kind == "PPM" and has_own_maxval(picture.file)):
        return name
    for returned in (path.with_suffix(".png").as_posix(), f"{name}.png"):
        if returned not in taken and len(os.fsencode(PurePosixPath(returned).name)) < 256:
            return returned
    raise ValueError(f"{name} would return as a .png file whose name is taken or too long: rename it")


def _array_contents(path: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    """Return one array of an .npy or .npz file; the others of an .npz file are stored."""
    names = array_names(path)
    name = chosen_array(path, names, data if data.key in names else replace(data, key=None))
    stored = [(f"{other}.npy", _npy(read_array(path, other))) for other in names if other != name]
    return _coded(path, read_array(path, name), data.axes, config, path.name, name, stored)


def _table_contents(path: Path, config: AxialTransformerConfig, data: DataConfig) -> Contents:
    """Return the columns of numbers of a table; a warning says what is left out."""
    table = tables.read_table(path, data.label_column, data.decimal)
    if table.classes is not None:
        say(f"{path}: left out, since it holds the classes: {data.label_column}")
    said = f"1 table will come back with its {counted(len(table.columns), 'column')} of numbers, as float64 holds them"
    if table.titles:
        said += f": {', '.join(table.titles)}"
    return _coded(path, table.values, "NL", config, path.name, said=said, columns=table.columns)


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _scan_contents(source: Source, config: AxialTransformerConfig) -> Contents:
    scan = source.scan(source.path)
    file, _ = scans.parted(source.path)
    own = "" if file.is_dir() and file.suffix != ".zarr" else suffix_of(file)
    name = file.name[: -len(own) or None] + scan.suffix
    same = "in the format in which it came" if own == scan.suffix else f"as {name}"
    geometry = " and geometry" if scan.header else ""
    return _coded(
        file,
        scan.values,
        scan.axes,
        config,
        name,
        said=f"1 scan will come back {same}, with the same values, type{geometry}",
        axes=source.file_axes(source.path),
        scale=scan.scale,
        offset=scan.offset,
        header=b64encode(scan.header).decode(),
    )


def _other_contents(source: Source, config: AxialTransformerConfig) -> Contents:
    """Return the examples of any other source, which return as arrays in an .npz file."""
    whole = source.with_config(replace(source.config, size=None, cut="exact", offsets="fixed", skip_bad=0))
    examples = whole.part("all")
    if examples.range.grid:
        raise ValueError(
            f"{source.name} holds floats, which archives keep only from arrays and scans: save them as .npy"
        )
    stored = [] if examples.labels is None else [("labels.npy", _npy(examples.labels))]
    name = f"{source.path.stem}.npz"
    axes = "N" + "?" * (examples.values.ndim - 2) + "C"
    said = f"{counted(len(examples), 'example')} will come back as arrays, in {name}"
    return _coded(source.path, examples.values, axes, config, name, stored=stored, said=said)


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
    shape = tuple(map(int, array.shape))
    channels = _channel_axis(path, shape, letters, config)
    held = HeldArray(name, member, np.asarray(array[:1]).dtype.str, shape, channels, **about)
    values_range = range_of_array(path, array, config.grid)
    if values_range.grid and not config.grid:
        raise ValueError(f"{path} holds {values_range.grid}, but the model knows integers: give a model of such data")
    values_range.require_within(config.range, path)
    outer, _ = held.sizes(config)
    axes = "".join("C" if axis == channels else "?" for axis in range(len(shape)))
    last = channels_last(array, axes)
    names, packed = _packed(stored)
    return Contents(
        tiles=_tiles([View(last, index) for index in np.ndindex(outer)], config),
        description=Description(array=held, stored=names),
        stored=packed,
        input_size=_total_size(scans.files_of(path)),
        said=[said] if said else [],
    )


def _channel_axis(
    path: Path, shape: tuple[int, ...], letters: str | None, config: AxialTransformerConfig
) -> int | None:
    """Return the axis of channels of an array, by its letters or else by what the model needs; None: there is none.

    Raises:
        ValueError: such an array holds no examples of the model.
    """
    inner = len(config.shape)
    if letters is None:
        has_channels = config.channels > 1 or (len(shape) > inner and shape[-1] == 1)
        channels = len(shape) - 1 if has_channels else None
    elif len(letters) == len(shape):
        channels = letters.index("C") if "C" in letters else None
    else:
        raise ValueError(f"{path} has shape {list(shape)}, not the {len(letters)} axes of data.axes={letters}")
    count = 1 if channels is None else shape[channels]
    positions = len(shape) - (channels is not None)
    if positions < inner or count != config.channels:
        blocks = [*config.shape, config.channels]
        raise ValueError(f"{path} is of shape {list(shape)}: the model is of blocks {blocks}, channels last")
    return channels
