"""Options of reading a source."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from axial_transformers.messages import Message

MAX_VALUES = 1 << 16
MIN_STEP = 1e-250
"""Of a grid: the reciprocal of a smaller one might be infinite."""
_LETTERS = "CTDHWL"
Split = Literal["train", "validation", "test", "all"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of reading examples from a source; ValueError if one is out of its range."""

    size: tuple[int, ...] | int | None = None
    """Side in pixels of square images and frames, for folders and video arrays. Other arrays are cut into tiles of it
    (fit=tiles), or must have it. Several numbers cut arrays and scans into blocks of their last axes: what lies on
    axes before these are arrays of their own. None: an example as it is."""

    fit: Literal["exact", "crop", "stretch", "tiles"] = "exact"
    """Fitting to the size. exact: refuse other sizes. crop: resize the shorter side, cut out the centre. stretch:
    resize both sides. tiles: cut without overlap, drop remainders. Filters: Lanczos for images, box for frames."""

    frames: int | None = None
    """Frames of a clip; videos are cut without overlap. None: videos in arrays and TFRecord files are one clip each,
    and folders are read as images."""

    stride: int = 1
    """Take every stride-th frame of a video, from the first."""

    offsets: Literal["fixed", "random"] = "fixed"
    """Positions of clips in a folder's videos, and of tiles in its images (fit=tiles). fixed: one after the other.
    random: new ones for each training batch, one clip a video; validation and test stay fixed."""

    mode: Literal["auto", "rgb", "rgba", "gray"] = "auto"
    """Channels of a folder's images and videos; auto: gray if all are gray, rgba if an image is transparent in places.
    Arrays must have these channels."""

    background: Literal["white", "black"] | None = None
    """Colour behind transparent images, which then have no alpha. None: of rgba, opaque ones have an alpha of 255."""

    validation_fraction: float = 0.1
    """Share of the examples for validation where the source has no such part: the end of arrays; of folders, by a hash
    of seed and file name."""

    test_fraction: float | None = None
    """Share for the test, chosen likewise. None: 0.1 for a folder of images or videos without splits, otherwise 0."""

    seed: int = 0
    """Chooses the split of a folder of images or videos."""

    num_values: int | None = None
    """Number of values that arrays can take, from 0 on or, if some are negative, from the smallest on. None: 256 for
    images in uint8; otherwise what the training part holds."""

    grid: tuple[float, float] | None = None
    """Step and offset of the floats of arrays: offset + step * v is modelled as the integer v. None: found in the
    data, of which all values must lie at such steps."""

    axes: str | None = None
    """Axes of an array, one letter each: N (examples), C (channels), T (frames), D, H, W (depth, height, width), L
    (length), such as NCHW; for blocks (`size`) also without N, such as DHW. None: the last axis is channels if there
    are 5 axes or more, or 4 and it is at most 4 long."""

    key: str | None = None
    """Name of the array within an .npz file. None: images, values, videos or arr_0, or the only one."""

    skip_bad: int | None = None
    """Most damaged or unfit records of shards, or files of a folder's part, to leave out with a warning. None: no
    records; of files 5, or a fifth if that is more, but less than half."""

    def __post_init__(self) -> None:
        check_axes(self.axes)
        self._check_size()
        self._check_clips()
        if self.skip_bad is not None and self.skip_bad < 0:
            raise ValueError(Message("{skip_bad} must be at least 0, not {}", self.skip_bad))
        if self.grid is not None and not (self.grid[0] >= MIN_STEP and all(map(isfinite, self.grid))):
            raise ValueError(Message("{data.grid} must be a step above 0 and an offset, not {}", self.grid))
        if self.num_values is not None and not 2 <= self.num_values <= MAX_VALUES:
            raise ValueError(Message("{data.num_values} must be within 2..{}, not {}", MAX_VALUES, self.num_values))
        shares = self.validation_fraction, self.test_fraction or 0.0
        if not (min(shares) >= 0 and sum(shares) < 1):
            text = "{validation_fraction} and {test_fraction} {} must be at least 0, and below 1 together"
            raise ValueError(Message(text, shares))

    def require_one_size(self) -> None:
        """Raise ValueError for the sizes of a block, which pictures and videos do not have."""
        if isinstance(self.size, tuple):
            raise ValueError(
                Message("{size=} cuts arrays and scans: give pictures and videos one size", size=self.size)
            )

    def _check_size(self) -> None:
        sizes = (self.size,) if isinstance(self.size, int) else self.size
        if sizes is None:
            if self.fit != "exact":
                raise ValueError(Message("{fit=} needs a size, for example {size=32}", fit=self.fit))
            return
        if not sizes or min(sizes) < 1:
            raise ValueError(Message("{size} must be at least 1, not {}", self.size))
        if len(sizes) == 1:
            object.__setattr__(self, "size", sizes[0])
        elif self.fit in ("crop", "stretch"):
            raise ValueError(
                Message("{size=} cuts blocks, which {fit=} does not: leave that out", size=sizes, fit=self.fit)
            )

    def _check_clips(self) -> None:
        if self.frames is not None and self.frames < 1:
            raise ValueError(Message("{data.frames} must be at least 1, not {}", self.frames))
        if self.stride < 1:
            raise ValueError(Message("{stride} must be at least 1, not {}", self.stride))
        if (
            self.offsets == "random"
            and self.frames is None
            and self.fit != "tiles"
            and not isinstance(self.size, tuple)
        ):
            blocks = Message("{size=}", size=(16, 16, 16))
            ways = Message("for example {data.frames=16}, {fit=tiles} for pictures, or blocks: {}", blocks)
            raise ValueError(Message("{offsets=random} needs the frames of a clip, {}", ways))


def check_axes(axes: str | None) -> None:
    """Raise ValueError unless `axes` names axes of an array, such as NCHW, or DHW."""
    if axes is None:
        return
    others = axes.removeprefix("N")
    if len(set(others)) < len(others) or set(others) - set(_LETTERS) or not set(others) - {"C"}:
        raise ValueError(
            Message(
                "{axes=} is not N (examples), or nothing, followed by different letters of C (channels), T (frames),"
                " D, H, W (depth, height, width) and L (length), such as NHWC, NCHW, NTHWC, NL or DHW",
                axes=axes,
            )
        )
