"""Options of reading a source."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Literal

from axial_transformers.storage.settings import COUNT, SHARE, Bounds, check_settings

MAX_VALUES = 1 << 16
MIN_STEP = 1e-250
"""Smallest step of a grid: the reciprocal of a smaller one might be infinite."""
_LETTERS = "CTDHWL"
HUB = re.compile(r"hf:(?P<path>[^/@]+/[^/@]+)(/(?P<name>[^/@]+))?(@(?P<revision>.+))?")
"""A data set of the hub, hf:OWNER/NAME[/SUBSET][@REVISION]."""
Split = Literal["train", "validation", "test", "all"]
Palette = Literal["colours", "indices"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of reading examples from a source; ValueError if one is out of its range."""

    size: Annotated[tuple[int, ...] | int | None, COUNT] = None
    """Side in pixels of square images and frames, for folders and video arrays. Other arrays are cut into tiles of it
    (cut: tiles), or must have it. Several numbers cut arrays and scans into blocks of their last axes: what lies on
    axes before these are arrays of their own. None: an example as it is."""

    cut: Literal["exact", "crop", "stretch", "tiles"] = "exact"
    """How examples get the size. exact: refuse other sizes. crop: resize the shorter side, cut out the centre. stretch:
    resize both sides. tiles: cut without overlap, drop remainders. Filters: Lanczos for images, box for frames."""

    frames: Annotated[int | None, COUNT] = None
    """Frames of a clip; videos are cut without overlap. None: videos in arrays and TFRecord files are one clip each,
    and folders are read as images."""

    stride: Annotated[int, COUNT] = 1
    """Take every stride-th frame of a video, from the first, and leave out the others."""

    offsets: Literal["fixed", "random"] = "fixed"
    """Positions of clips in a folder's videos, and of tiles in its images (cut: tiles). fixed: one after the other.
    random: new ones for each training batch, one clip a video; validation and test stay fixed."""

    mode: Literal["auto", "rgb", "rgba", "gray"] = "auto"
    """Channels of a folder's images and videos; auto: gray if all images are gray, rgba if one is transparent in
    places, rgb of video files. Arrays must have these channels."""

    background: Literal["white", "black"] | None = None
    """Colour behind transparent images, which then have no alpha. None: of rgba, opaque ones have an alpha of 255."""

    palette: Palette = "colours"
    """What images with a palette are read as. colours: its colours. indices: the stored numbers, such as those of
    classes, as one gray channel; they are resized without mixing."""

    validation_fraction: Annotated[float, SHARE] = 0.1
    """Share of the examples for validation where the source has no such part: the end of arrays; of folders, by a hash
    of seed and file name."""

    test_fraction: Annotated[float | None, SHARE] = None
    """Share for the test, chosen likewise. None: 0.1 for a folder of images or videos without splits, otherwise 0."""

    seed: int = 0
    """Chooses the split of a folder of images or videos."""

    num_values: Annotated[int | None, Bounds(least=2, most=MAX_VALUES)] = None
    """Number of values that arrays can take, from 0 on or, if some are negative, from the smallest on. None: 256 for
    images in uint8; otherwise what the training part holds."""

    grid: tuple[float, float] | None = None
    """Step and offset to which the floats of arrays are rounded: offset + step * v is modelled as the integer v. None:
    found in the data, of which all values must lie at such steps."""

    axes: str | None = None
    """Axes of an array, one letter each: N (examples), C (channels), T (frames), D, H, W (depth, height, width), L
    (length), such as NCHW; for blocks (`size`) also without N, such as DHW. Of a scan: all of its axes, in place of
    those that its file states, such as NHW for slices that are examples. None: the last axis is channels if there are 5
    axes or more, or 4 and it is at most 4 long; a scan has the axes of its file."""

    decimal: Literal[",", "."] | None = None
    """What stands before the decimals of a table. None: a point; or a comma in whole columns, if the separator is
    another one."""

    key: str | None = None
    """Name of the array within an .npz file. None: images, values, videos or arr_0, or the only one."""

    column: str | None = None
    """Column of a data set that holds the examples: images, or arrays of numbers. None: the only one that can."""

    label_column: str | None = None
    """Column of a data set or a table that holds classes. None: the only one of named classes, or else label or cls; of
    a table, none."""

    skip_bad: Annotated[int | None, Bounds(least=0)] = None
    """Most files of a folder's part to leave out, with a warning, if they cannot be read or are smaller than a tile.
    None: 5, or a fifth if that is more, but less than half."""

    def __post_init__(self) -> None:
        check_settings(self, "data.")
        check_axes(self.axes)
        check_grid(self.grid, "data.")
        if self.validation_fraction + (self.test_fraction or 0.0) >= 1:
            raise ValueError(
                f"data.validation_fraction={self.validation_fraction} and data.test_fraction={self.test_fraction} must"
                " be less than 1 together"
            )
        if isinstance(self.size, tuple) and len(self.size) == 1:
            object.__setattr__(self, "size", self.size[0])
        if self.size is None and self.cut != "exact":
            raise ValueError(f"data.cut={self.cut} needs a size, for example data.size=32")
        if self.size == ():
            raise ValueError("data.size must be one number or several, not none")
        if isinstance(self.size, tuple) and (self.cut in ("crop", "stretch") or self.frames):
            raise ValueError(f"data.size={self.size} cuts blocks: leave out data.frames and data.cut, or give one size")
        if self.offsets == "random" and not self.divides:
            raise ValueError(
                "data.offsets=random needs the frames of a clip, for example data.frames=16, data.cut=tiles for"
                " pictures, or blocks: data.size=(16, 16, 16)"
            )

    @property
    def divides(self) -> bool:
        """Return True if examples are parts of larger arrays: clips, tiles or blocks."""
        return self.frames is not None or self.cut == "tiles" or isinstance(self.size, tuple)


def is_hub_dataset(source: object) -> bool:
    """Return True for the name of a data set of the hub."""
    return HUB.fullmatch(str(source)) is not None


def check_grid(grid: tuple[float, float] | None, part: str) -> None:
    """Raise ValueError unless a grid is None, or a step above 0 and an offset."""
    if grid is not None and not (grid[0] >= MIN_STEP and all(map(isfinite, grid))):
        raise ValueError(f"{part}grid must be a step above 0 and an offset, not {grid}")


def check_axes(axes: str | None) -> None:
    """Raise ValueError unless `axes` names axes of an array, such as NCHW, or DHW."""
    if axes is None:
        return
    others = axes.removeprefix("N")
    letters = set(others)
    if len(letters) < len(others) or letters - set(_LETTERS) or letters <= {"C"}:
        raise ValueError(
            f"data.axes={axes} is not N (examples), or nothing, followed by different letters of C (channels), T"
            " (frames), D, H, W (depth, height, width) and L (length), such as NHWC, NCHW, NTHWC, NL or DHW"
        )
