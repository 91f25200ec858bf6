"""Sequences as lines."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

HEIGHT, WIDTH, WIDEST = 96, 256, 512
"""Pixels: short sequences have about the width, long ones are drawn in the widest."""
_FINER = 3
"""Lines are drawn so many times larger and shrunk, which smooths them."""
_LINES = ("#1f5fa8", "#d9622b", "#2b8a4b", "#8a3b8f")
_PAPER, _EDGE, _TEXT = "#f7f7f5", "#c9c9c4", "#77777a"
_MOST_DOTS = 64


def line_plots(levels: NDArray[np.floating], low: str, high: str) -> NDArray[np.uint8]:
    """Sequences [N, L, C], levels 0..1, as plots [N, HEIGHT, width, 3]: a line for each of at most four channels.

    Site i is at the pixels from i width / L to (i + 1) width / L. The texts `low` and `high` stand at levels 0 and 1.
    """
    length = levels.shape[1]
    width = length * max(1, round(WIDTH / length)) if length <= WIDEST else WIDEST
    plots = [_plot(each[:, : len(_LINES)], width, low, high) for each in np.clip(levels, 0, 1)]
    return np.stack(plots) if plots else np.zeros((0, HEIGHT, width, 3), np.uint8)


def _plot(levels: NDArray[np.floating], width: int, low: str, high: str) -> NDArray[np.uint8]:
    size, margin = (width * _FINER, HEIGHT * _FINER), 6 * _FINER
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
        for x, y in points if len(points) <= _MOST_DOTS else []:
            draw.circle((x, y), 2 * _FINER, fill=colour)
    return np.asarray(paper.reduce(_FINER))
