"""One self-contained HTML page of texts, curves, tables and images; `page.html.j2` lays it out."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader
from PIL import Image

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


class Figure(NamedTuple):
    """An image and its caption."""

    address: str
    """A data URL."""
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


def write_page(
    path: Path,
    title: str,
    sections: Sequence[Section],
) -> None:
    """Write a page."""
    text = TEMPLATES.get_template("page.html.j2").render(title=title, sections=sections)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files are not always UTF-8


def figure(picture: Image.Image, caption: str = "") -> Figure:
    """Return an image with a caption."""
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return Figure(f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}", caption)
