"""Numbers as pixels: shades, colours and line plots."""

import colorsys
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Palette = Literal["auto", "gray", "categories"]
"""Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."""
Pixels = NDArray[np.uint8]

HEAT = ("#14171f", "#3b1f6b", "#a3306f", "#ef6a3a", "#fce58a")
UNSEEN = "#8b93a340"

MAX_CATEGORIES = 12
_CATEGORIES = (
    "#efe3c8", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#222222", "#ee7733", "#44bb99", "#882255", "#7f5539",
)  # fmt: skip

PLOT_HEIGHT, PLOT_WIDTH, WIDEST_PLOT = 96, 256, 512
_FINER = 3
"""Lines are drawn larger and shrunk, which smooths them."""
_LINES = ("#1f5fa8", "#d9622b", "#2b8a4b", "#8a3b8f")
_PAPER, _EDGE, _TEXT = "#f7f7f5", "#c9c9c4", "#77777a"
_MAX_DOTS = 64


def can_be_shown(axes: int) -> bool:
    """Return True if images can show these axes."""
    return 1 <= axes <= 3


def for_display(
    values: NDArray[np.integer],
    num_values: int = 256,
    lowest: int = 0,
    palette: Palette = "auto",
) -> NDArray[np.uint8]:
    """Return integers [N, *A, C] of one to three axes as images uint8 [N, H, W] or [N, H, W, 3].

    Values lowest ... lowest + num_values - 1 are stretched to 0 ... 255. Of two channels the first is shown, of four
    or more the first three. A clip is a strip of frames; a sequence is a line plot, or cells.

    Raises:
        ValueError: another number of axes.
    """
    if not can_be_shown(values.ndim - 2):
        raise ValueError(f"values [N, *A, C] with one to three axes can be shown, not {list(values.shape)}")
    low, high = lowest, lowest + num_values - 1
    categories = _are_categories(values, num_values, palette)
    if values.ndim == 3 and not categories:
        return line_plots((values.astype(float) - low) / (high - low), str(low), str(high))
    if values.ndim == 3:
        values = np.stack([as_row(each) for each in values])
    if values.ndim == 5:
        count, frames, height, width, channels = values.shape
        values = values.swapaxes(1, 2).reshape(count, height, frames * width, channels)
    if categories:
        return _colours_of(num_values)[values[..., 0].astype(np.int64) - low]
    if (low, high) != (0, 255):
        stretched = (np.asarray(values, np.float32) - low) * (255 / (high - low))
        values = np.rint(np.clip(stretched, 0, 255))
    shown = values.astype(np.uint8)
    return shown[..., :3] if shown.shape[-1] >= 3 else shown[..., 0]


def marks_for_display(marks: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Return marks of positions [*A] at the pixels of `for_display`."""
    if marks.ndim == 3:
        return np.concatenate(list(marks), axis=1)
    return marks if marks.ndim == 2 else marks[None, np.arange(width) * len(marks) // width]


def as_row(positions: NDArray[Any]) -> NDArray[Any]:
    """Return a sequence [L, ...] as cells [H, L, ...]."""
    return positions[None].repeat(max(1, len(positions) // 16), axis=0)


def with_alpha(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images as RGBA [N, H, W, 4]."""
    if pictures.ndim == 3:
        pictures = np.repeat(pictures[..., None], 3, axis=-1)
    return np.concatenate([pictures, np.full_like(pictures[..., :1], 255)], axis=-1)


def colour(levels: NDArray[np.floating], stops: tuple[str, ...]) -> Pixels:
    """Return levels 0..1 [...] as colours uint8 [..., 4]."""
    knots = np.linspace(0, 1, len(stops))
    anchors = np.array([_rgba(stop) for stop in stops], dtype=float)
    channels = [np.interp(np.clip(levels, 0, 1), knots, anchors[:, c]) for c in range(4)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def unseen(pixels: Pixels, where: NDArray[np.bool_], cover: str = UNSEEN) -> Pixels:
    """Cover pixels [..., H, W, 4] where a mask [H, W] is true."""
    return np.where(where[..., None], np.array(_rgba(cover), np.uint8), pixels)


def _are_categories(values: NDArray[np.integer], num_values: int, palette: Palette) -> bool:
    if palette == "auto":
        return values.shape[-1] == 1 and 3 <= num_values <= MAX_CATEGORIES
    return palette == "categories"


def _colours_of(count: int) -> NDArray[np.uint8]:
    first = [tuple(bytes.fromhex(colour[1:])) for colour in _CATEGORIES[:count]]
    hues = ((i * 0.618034 % 1, 0.65, 0.5 + 0.2 * (i % 3)) for i in range(len(first), count))
    others = [tuple(round(255 * level) for level in colorsys.hsv_to_rgb(*hue)) for hue in hues]
    return np.array(first + others, np.uint8)


def line_plots(levels: NDArray[np.floating], low: str, high: str) -> NDArray[np.uint8]:
    """Return sequences [N, L, C], levels 0..1, as plots."""
    length = levels.shape[1]
    width = length * max(1, round(PLOT_WIDTH / length)) if length <= WIDEST_PLOT else WIDEST_PLOT
    plots = [_plot(each[:, : len(_LINES)], width, low, high) for each in np.clip(levels, 0, 1)]
    return np.stack(plots) if plots else np.zeros((0, PLOT_HEIGHT, width, 3), np.uint8)


def _plot(levels: NDArray[np.floating], width: int, low: str, high: str) -> NDArray[np.uint8]:
    size, margin = (width * _FINER, PLOT_HEIGHT * _FINER), 6 * _FINER
    paper = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(paper)
    draw.rectangle((0, 0, size[0] - 1, size[1] - 1), outline=_EDGE, width=_FINER)
    font = ImageFont.load_default(10 * _FINER)
    draw.text((2 * _FINER, _FINER), high, fill=_TEXT, font=font, anchor="lt")
    draw.text((2 * _FINER, size[1] - 2 * _FINER), low, fill=_TEXT, font=font, anchor="ls")
    across = (np.arange(len(levels)) + 0.5) * (size[0] / len(levels))
    for line, colour in zip(levels.T, _LINES):
        down = margin + (1 - line) * (size[1] - 2 * margin)
        points = list(zip(across.tolist(), down.tolist()))
        draw.line(points, fill=colour, width=2 * _FINER - 1, joint="curve")
        for x, y in points if len(points) <= _MAX_DOTS else []:
            draw.circle((x, y), 2 * _FINER, fill=colour)
    return np.asarray(paper.reduce(_FINER))


def _rgba(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(f"{text[1:]}ff"[:8]))
