"""One self-contained HTML page of texts, curves, tables and images; `page.html.j2` lays it out."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader
from PIL import Image

from axial_transformers.data.picture_files import PictureError, opened, upright

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
MAX_BYTES, MAX_SIDE = 1 << 18, 800
"""An image that takes more bytes as PNG becomes a JPEG with at most this many pixels a side."""


class Figure(NamedTuple):
    """An image and its caption."""

    address: str
    """A data URL; empty without an image."""
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page, with its content in this order; without any below its text, it is left out.

    `...` in texts and cells marks code.
    """

    title: str = ""
    text: str = ""
    curves: Mapping[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Steps and values of at most two curves, by their names."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Names and values."""
    rows: Sequence[Mapping[str, object]] = ()
    """A table: rows by the names of their columns."""
    images: Sequence[Figure] = ()
    code: str = ""


def write_page(path: Path, title: str, sections: Sequence[Section], refresh: int | None = None) -> None:
    """Write a page, which a browser loads again after `refresh` seconds."""
    text = TEMPLATES.get_template("page.html.j2").render(title=title, sections=sections, refresh=refresh)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files are not always UTF-8


def figure(picture: Image.Image, caption: str = "") -> Figure:
    """Return an image with a caption."""
    kind, stream = "png", io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    if stream.tell() > MAX_BYTES:
        kind, stream, picture = "jpeg", io.BytesIO(), picture.convert("RGB")
        picture.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.BOX)
        picture.save(stream, format="JPEG", quality=85)
    return Figure(f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}", caption)


def stored_figure(path: Path, caption: str = "") -> Figure:
    """Return the image in a file or, where it cannot be read, only the reason."""
    try:
        with opened(path) as picture:
            return figure(upright(path, picture), caption)
    except PictureError as error:
        return Figure("", str(error))
