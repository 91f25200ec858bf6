"""Text on figures: titles, captions, scales of colours."""

import textwrap
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from axial_transformers.data.colours import colour

LETTER = (7, 14)
"""Width and height of a letter, at most, in pixels."""
NARROWEST = 96
"""Pixels of a page at least, for its text."""
_SIZE, _INK = 12, "#14171f"


def below(picture: Image.Image, text: str) -> Image.Image:
    """The picture, transparent or not, on white paper, with a caption under it."""
    lines = textwrap.wrap(text, max(10, picture.width // LETTER[0]))
    page = _on_paper(picture, bottom=LETTER[1] * len(lines))
    for i, line in enumerate(lines):
        _write(page, (2, picture.height + LETTER[1] * (2 * i + 1) // 2), line, "lm")
    return page


def above(picture: Image.Image, titles: Sequence[tuple[str, float]]) -> Image.Image:
    """The picture on white paper, with titles centred above it, each with its place across the picture, 0..1."""
    page = _on_paper(picture, top=LETTER[1] + 4)
    for title, place in titles:
        _write(page, (place * picture.width, LETTER[1] / 2 + 2), title, "mm")
    return page


def beside(picture: Image.Image, titles: Sequence[str]) -> Image.Image:
    """The picture, of as many rows as titles, on white paper, with a title on the left of each."""
    left = LETTER[0] * max(map(len, titles)) + 8
    page = _on_paper(picture, left=left)
    for row, title in enumerate(titles):
        _write(page, (left - 6, (row + 0.5) * picture.height / len(titles)), title, "rm")
    return page


def with_scale(picture: Image.Image, stops: tuple[str, ...], highest: float, unit: str) -> Image.Image:
    """The picture on white paper, and under it the colours of 0 (left) to `highest` or more (right), with numbers."""
    bar, text = 10, LETTER[1] + 2
    page = _on_paper(picture, bottom=6 + bar + text)
    ramp = colour(np.linspace(0, 1, picture.width)[None].repeat(bar, 0), stops)
    page.paste(Image.fromarray(ramp).convert("RGB"), (0, picture.height + 6))
    middle = picture.height + 6 + bar + text / 2
    _write(page, (0, middle), "0", "lm")
    _write(page, (picture.width / 2, middle), f"{highest / 2:.3g}", "mm")
    _write(page, (picture.width, middle), f"{highest:.3g}+ {unit}", "rm")
    return page


def _on_paper(picture: Image.Image, left: int = 0, top: int = 0, bottom: int = 0) -> Image.Image:
    page = Image.new("RGB", (max(NARROWEST, left + picture.width), top + picture.height + bottom), "white")
    page.paste(picture, (left, top), picture if picture.mode == "RGBA" else None)
    return page


def _write(page: Image.Image, place: tuple[float, float], text: str, anchor: str) -> None:
    ImageDraw.Draw(page).text(place, text, fill=_INK, font=ImageFont.load_default(_SIZE), anchor=anchor)
