"""Numbers as pixels: shades, colours and line plots."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from axial_transformers.data.grid import Grid
from axial_transformers.data.kinds import is_clip, kind_of

Palette = Literal["auto", "gray", "categories"]
"""Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."""

HEAT = ("#14171f", "#3b1f6b", "#a3306f", "#ef6a3a", "#fce58a")
UNSEEN = "#8b93a340"

MAX_CATEGORIES = 12
BYTE = 256
PERCENTILES = 0.5, 99.5
BETWEEN = 160  # the shade between slices
_CATEGORIES = (
    "#efe3c8", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#222222", "#ee7733", "#44bb99", "#882255", "#7f5539",
)  # fmt: skip

PLOT_HEIGHT, PLOT_WIDTH, WIDEST_PLOT = 96, 256, 512
_FINER = 3
"""Lines are drawn larger and shrunk, which smooths them."""
_LINES = ("#1f5fa8", "#d9622b", "#2b8a4b", "#8a3b8f", "#a88600", "#1d8f98", "#c0375b", "#6b6b70")
_PAPER, _EDGE, _TEXT = "#f7f7f5", "#c9c9c4", "#77777a"


@dataclass(frozen=True)
class Look:
    """How values lowest .. lowest + num_values - 1 are shown.

    Three axes are a clip if one is T (time) or, where `axes` is None, if there are at most 256 values. Otherwise they
    are a volume, as are more axes: the last three are shown as slices, those before are cut in the middle.
    """

    num_values: int = BYTE
    lowest: int = 0
    palette: Palette = "auto"
    window: tuple[float, float] | None = None
    """The values shown as black and white. None: of more than 256 values, the percentiles 0.5 and 99.5 of those shown;
    of fewer, and in line plots, the lowest and the highest possible, or those shown if these are within a quarter."""
    axes: str | None = None
    """The letters of the data's axes, such as those of `DataConfig.axes`."""
    at: tuple[int, ...] | None = None
    """The position that slices go through. None: the middle."""
    grid: Grid | None = None
    """The floats that values are of, for the axes of line plots."""
    modelled: int | None = None
    """Values that the model knows, if these are not all of them."""
    series: bool = False
    """Examples of two axes are measurements over time, which is the longer axis: a line for each."""

    def __post_init__(self) -> None:
        low, high = self.window or (0, 1)
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"window needs a lower and a higher number, not {low:g} {high:g}")

    @property
    def possible(self) -> tuple[int, int]:
        """The lowest and the highest possible value."""
        return self.lowest, self.lowest + self.num_values - 1

    @classmethod
    def of(cls, config: Any, axes: str | None) -> Self:
        """Return the look of the values of a model's configuration."""
        return cls(
            num_values=config.highest - config.lowest + 1,
            lowest=config.lowest,
            axes=axes,
            grid=config.floats,
            modelled=config.num_values,
            series=kind_of(config, axes) == "series",
        )

    def over_time(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Return a series [N, *A, 1] of two axes as sequences [N, L, channels]; other positions as they are."""
        if not self.series or positions.ndim != 4:
            return positions
        if positions.shape[1] <= positions.shape[2]:
            positions = positions.swapaxes(1, 2)
        return positions[..., 0]

    def is_clip(self, axes: int) -> bool:
        """Return True if examples with this number of axes are clips."""
        return is_clip(axes, self.num_values, self.axes)

    def is_volume(self, axes: int) -> bool:
        """Return True if examples with this number of axes are shown as slices."""
        return axes >= 3 and not self.is_clip(axes)

    def parts(self, positions: NDArray[Any], axes: int) -> list[NDArray[Any]]:
        """Return the slices [N, H, W, ...], [N, H, D, ...] and [N, D, W, ...] of positions [N, *A, ...]; or all."""
        if not self.is_volume(axes):
            return [positions]
        *before, depth, row, column = self.at or [side // 2 for side in positions.shape[1 : axes + 1]]
        volumes = positions[(slice(None), *before)]
        return [volumes[:, depth], volumes[:, :, :, column].swapaxes(1, 2), volumes[:, :, row]]

    def exact(self, values: NDArray[np.integer]) -> Self:
        """Return the look that shows bytes as they are, however few of them these values hold."""
        if self.window or self.num_values > BYTE or _are_categories(values, self):
            return self
        return replace(self, window=self.possible)

    def over(self, values: NDArray[np.integer]) -> Self:
        """Return the look with the window of these values [N, *A, C], to show others alike."""
        values = self.over_time(values)
        if self.window or not values.size or _are_categories(values, self):
            return self
        if self.num_values <= BYTE or values.ndim == 3:
            low = int(values.min())
            high = int(values.max())
            return replace(self, window=(low, high)) if 0 < 4 * (high - low) < self.num_values else self
        shown = np.concatenate([_colours(images).ravel() for images in self.parts(values, values.ndim - 2)])
        low, high = np.percentile(shown, PERCENTILES).tolist()
        return replace(self, window=(low, high) if low < high else self.possible)


def for_display(values: NDArray[np.integer], look: Look = Look()) -> NDArray[np.uint8]:
    """Return integers [N, *A, C] as images uint8 [N, H, W] or [N, H, W, 3].

    Values within the window are stretched to 0 ... 255. Of two channels the first is shown, of four or more the first
    three. A clip is a strip of frames, a volume three slices; a sequence is a line plot of eight channels, or cells.
    """
    values = look.over_time(values)
    look = look.over(values)
    axes = values.ndim - 2
    if look.is_volume(axes):
        return joined([for_display(images, look) for images in look.parts(values, axes)])
    low, high = look.window or look.possible
    if axes == 3:
        values = in_a_strip(values)
    if _are_categories(values, look):
        if axes == 1:
            values = as_rows(values)
        return _category_colours(look.num_values)[values[..., 0].astype(np.int64) - look.lowest]
    if axes == 1:
        ends = look.grid.floats(np.array([low, high])).tolist() if look.grid else (low, high)
        return line_plots((values.astype(float) - low) / (high - low), *(f"{end:.6g}" for end in ends))
    stretched = (_colours(values).astype(np.float32) - low) * (255 / (high - low))
    shown = np.rint(np.clip(stretched, 0, 255)).astype(np.uint8)
    return shown if shown.shape[-1] == 3 else shown[..., 0]


def marks_for_display(marks: NDArray[np.bool_], width: int, look: Look = Look()) -> NDArray[np.bool_]:
    """Return marks of positions [*A] at the pixels of `for_display`."""
    if look.series and marks.ndim == 2:
        marks = look.over_time(marks[None, ..., None])[0].all(axis=-1)
    if look.is_volume(marks.ndim):
        return joined(look.parts(marks[None], marks.ndim), False)[0]
    if marks.ndim == 3:
        return in_a_strip(marks[None])[0]
    if marks.ndim == 1:
        return marks[None, np.arange(width) * len(marks) // width]
    return marks


def in_a_strip(clips: NDArray[Any]) -> NDArray[Any]:
    """Return clips [N, T, H, W, ...] as images of their frames side by side: [N, H, T W, ...]."""
    return np.concatenate([*clips.swapaxes(0, 1)], axis=2)


def joined(slices: list[NDArray[Any]], fill: int = BETWEEN) -> NDArray[Any]:
    """Return the `parts` of volumes as one image each: the first, the second beside it, the third below."""
    first, beside, below = slices
    count, height, width, *channels = first.shape
    depth = below.shape[1]
    page = np.full((count, height + 1 + depth, width + 1 + depth, *channels), fill, first.dtype)
    page[:, :height, :width] = first
    page[:, :height, width + 1 :] = beside
    page[:, height + 1 :, :width] = below
    return page


def as_rows(positions: NDArray[Any]) -> NDArray[Any]:
    """Return sequences [N, L, ...] as cells [N, H, L, ...]."""
    height = max(1, positions.shape[1] // 16)
    return positions[:, None].repeat(height, axis=1)


def with_alpha(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images as RGBA [N, H, W, 4]."""
    if pictures.ndim == 3:
        pictures = np.repeat(pictures[..., None], 3, axis=-1)
    return np.concatenate([pictures, np.full_like(pictures[..., :1], 255)], axis=-1)


def heat(levels: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return levels 0..1 [...] as colours uint8 [..., 4], from dark to bright."""
    knots = np.linspace(0, 1, len(HEAT))
    anchors = zip(*(ImageColor.getcolor(stop, "RGBA") for stop in HEAT))
    channels = [np.interp(levels, knots, channel) for channel in anchors]  # which clips
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def unseen(pixels: NDArray[np.uint8], where: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Cover pixels [..., H, W, 4] where a mask [H, W] is true."""
    return np.where(where[..., None], np.array(ImageColor.getcolor(UNSEEN, "RGBA"), np.uint8), pixels)


def _colours(values: NDArray[np.integer]) -> NDArray[np.integer]:
    return values[..., : 3 if values.shape[-1] >= 3 else 1]


def _are_categories(values: NDArray[np.integer], look: Look) -> bool:
    if look.palette == "auto":
        return values.shape[-1] == 1 and 3 <= look.num_values <= MAX_CATEGORIES and not look.window
    return look.palette == "categories"


def _category_colours(count: int) -> NDArray[np.uint8]:
    names = [*_CATEGORIES]
    for i in range(len(names), count):
        names.append(f"hsv({360 * (i * 0.618034 % 1)}, 65%, {50 + 20 * (i % 3)}%)")
    return np.array([*map(ImageColor.getrgb, names[:count])], np.uint8)


def line_plots(
    levels: NDArray[np.floating],
    low: str,
    high: str,
) -> NDArray[np.uint8]:
    """Return sequences [N, L, C], levels 0..1, as plots."""
    length = levels.shape[1]
    width = min(WIDEST_PLOT, length * (round(PLOT_WIDTH / length) or 1))
    plots = [_plot(example, width, low, high) for example in np.clip(levels, 0, 1)]
    return np.array(plots, np.uint8).reshape(-1, PLOT_HEIGHT, width, 3)


def _plot(
    levels: NDArray[np.floating],
    width: int,
    low: str,
    high: str,
) -> NDArray[np.uint8]:
    width *= _FINER
    height = PLOT_HEIGHT * _FINER
    margin = 6 * _FINER
    paper = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(paper)
    draw.rectangle((0, 0, width - 1, height - 1), outline=_EDGE, width=_FINER)
    font = ImageFont.load_default(10 * _FINER)
    draw.text((2 * _FINER, _FINER), high, fill=_TEXT, font=font, anchor="lt")
    draw.text((2 * _FINER, height - 2 * _FINER), low, fill=_TEXT, font=font, anchor="ls")
    across = (np.arange(len(levels)) + 0.5) * (width / len(levels))
    down = margin + (1 - levels) * (height - 2 * margin)
    for line, colour in zip(down.T, _LINES):
        points = np.stack([across, line], axis=1).ravel()
        draw.line(points.tolist(), fill=colour, width=2 * _FINER - 1, joint="curve")
    return np.asarray(paper.reduce(_FINER))
