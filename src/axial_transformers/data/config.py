"""Options of reading a source."""

from dataclasses import dataclass
from typing import Literal

_LETTERS = "CTDHWL"
Split = Literal["train", "validation", "test", "all"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of reading examples from a source.

    Raises:
        ValueError: an option is out of its range, or `fit` needs a `size`.
    """

    size: int | None = None
    """Side in pixels of the square images and frames that a folder is fitted to, and arrays of videos. Other arrays are
    only cut into tiles of it (fit=tiles), or checked against it."""

    fit: Literal["exact", "crop", "stretch", "tiles"] = "exact"
    """Fitting of an image or a frame to the size. exact: it must have the size already. crop: the shorter side is
    resized, the centre cut out. stretch: both sides are resized. tiles: height and width are cut without overlap into
    size x size examples, remainders dropped. Images are resized by a Lanczos filter, frames of videos by averaging over
    boxes."""

    frames: int | None = None
    """Frames of a clip. Videos are cut along time into clips without overlap; what does not fill a clip is dropped.
    None: videos in arrays and TFRecord files are one clip each; folders are taken as images, not as videos."""

    stride: int = 1
    """Every stride-th frame of a video is taken, from the first."""

    offsets: Literal["fixed", "random"] = "fixed"
    """Position of the clips in videos of a folder, and of the tiles in pictures of a folder (fit=tiles). fixed: one
    after the other from the first frame, or from the upper left corner. random: training takes one clip of each video,
    and as many tiles of each picture as it holds, at offsets drawn anew each time; validation and test are fixed."""

    mode: Literal["auto", "rgb", "gray"] = "auto"
    """Channels of a folder's images and videos; auto: gray if each of them is; arrays are only checked against it."""

    validation_fraction: float = 0.1
    """Share of the examples that validates where the source has no validation part: the end of arrays; of a folder of
    images or videos, those that a hash of seed and file name selects."""

    test_fraction: float | None = None
    """Share that tests where the source has no test part, chosen like validation_fraction. None: 0.1 for a folder of
    images or videos without splits of its own, otherwise 0 (the test part of an array is usually a file of its own)."""

    seed: int = 0
    """Chooses one of the possible splits of a folder of images or videos; nothing else depends on it."""

    num_values: int | None = None
    """Number of values that arrays can take, 2 to 256. None: 2 for bool, 17 for digits, otherwise 256."""

    axes: str | None = None
    """The axes of an array, one letter each: N (examples), C (channels, anywhere), T (frames), D, H, W (depth, height,
    width), L (length), such as NCHW, NTHWC or NL. None: the last axis is channels of 5 axes or more, [N,T,H,W,C], and
    of 4 axes if it is at most 4 long, [N,H,W,C]; where the shape has two readings, such as [N,3,64,64] and
    [N,64,64,6], an error asks for this."""

    key: str | None = None
    """Name of the array within an .npz file. None: images, values, videos or arr_0, or the only one."""

    skip_bad: int | None = None
    """Largest number of records of shards, or of files of a folder's part, that are left out since they are damaged or
    of another kind than the others, each with a warning. One more is an error. None: no records and no TFRecord files;
    of other files 5, or a fifth if that is more, but less than half."""

    def __post_init__(self) -> None:
        check_axes(self.axes)
        if self.size is not None and self.size < 1:
            raise ValueError(f"size must be at least 1, not {self.size}")
        self._check_clips()
        if self.skip_bad is not None and self.skip_bad < 0:
            raise ValueError(f"skip_bad must be at least 0, not {self.skip_bad}")
        if self.fit != "exact" and self.size is None:
            raise ValueError(f"fit={self.fit} needs a size, for example size=32")
        if self.num_values is not None and not 2 <= self.num_values <= 256:
            raise ValueError(f"num_values must be within 2..256, not {self.num_values}")
        shares = self.validation_fraction, self.test_fraction or 0.0
        if not (min(shares) >= 0 and sum(shares) < 1):
            raise ValueError(f"validation_fraction and test_fraction {shares} must be at least 0, and below 1 together")

    def _check_clips(self) -> None:
        if self.frames is not None and self.frames < 1:
            raise ValueError(f"frames must be at least 1, not {self.frames}")
        if self.stride < 1:
            raise ValueError(f"stride must be at least 1, not {self.stride}")
        if self.offsets == "random" and self.frames is None and self.fit != "tiles":
            raise ValueError(
                "offsets=random needs the frames of a clip, for example frames=16, or fit=tiles for pictures"
            )


def check_axes(axes: str | None) -> None:
    """Raises ValueError unless `axes` names axes of an array, such as NCHW."""
    if axes is None:
        return
    others = axes[1:]
    if axes[:1] != "N" or len(set(others)) < len(others) or set(others) - set(_LETTERS) or not set(others) - {"C"}:
        raise ValueError(
            f"axes={axes} is not N followed by different letters of C (channels), T (frames), D, H, W (depth, height,"
            " width) and L (length), such as NHWC, NCHW, NTHWC or NL"
        )
