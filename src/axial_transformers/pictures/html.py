"""Elements of one self-contained HTML page, which fetches nothing."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from PIL import Image

from axial_transformers.data.picture_files import PictureError, opened, upright

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf7; --text: #1d2026; --soft: #666c78; --line: #e2dfd7; --accent: #b5590c; --bar: #c9c5ba;
}
@media (prefers-color-scheme: dark) {
  :root { --page: #0d0f14; --text: #e9e6df; --soft: #98a0ae; --line: #262b35; --accent: #f0a04b; --bar: #3f4756; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 46rem; padding: 3.5rem 1.25rem 5rem; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.02em; text-wrap: balance; }
h2 { font-size: 1.2rem; margin: 3.25rem 0 .35rem; letter-spacing: -.01em; }
p { margin: 0 0 1rem; max-width: 40rem; }
figure { margin: 1rem 0 0; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .7rem; max-width: 40rem; }
img { display: block; width: 100%; image-rendering: pixelated; }
code { font: .875em ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
pre {
  background: color-mix(in srgb, var(--text) 5%, transparent); padding: .9rem 1.1rem; border-radius: .5rem;
  overflow-x: auto; margin: 1rem 0 0;
}
.soft { color: var(--soft); }
.bars { display: grid; grid-template-columns: max-content 1fr; gap: .55rem 1rem; align-items: center; }
.track { display: flex; align-items: center; gap: .6rem; font-variant-numeric: tabular-nums; }
.bar { height: 1.5rem; border-radius: 0 .25rem .25rem 0; background: var(--bar); }
.best { background: var(--accent); }
.scale { display: flex; align-items: center; gap: .6rem; font-size: .8125rem; color: var(--soft); margin-top: .8rem; }
.scale i { flex: 0 0 10rem; height: .7rem; border-radius: .2rem; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.25rem; font-size: .9375rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 12px; }
svg line { stroke: var(--line); }
svg path { fill: none; stroke: var(--soft); stroke-width: 1.75; stroke-linejoin: round; }
svg circle { fill: var(--soft); }
svg path.best { stroke: var(--accent); background: none; }
svg text.best { fill: var(--accent); background: none; }
svg circle.best { fill: var(--accent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); gap: 1.5rem; }
.half { max-width: 32rem; }
.tiles figure { margin: 1rem 0 0; min-width: 0; }
details { margin-top: 1rem; }
summary { cursor: pointer; color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td, th button { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; }
th { padding: 0; }
td:nth-child(2) { overflow-wrap: anywhere; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; cursor: pointer; }
th[aria-sort="ascending"] button::after { content: " ↑"; }
th[aria-sort="descending"] button::after { content: " ↓"; }
td { border-top: 1px solid var(--line); }
td[colspan] { border: 0; padding-bottom: 1.5rem; }
td img { width: auto; max-width: 100%; max-height: 28rem; image-rendering: auto; }
@media (max-width: 34rem) {
  table { font-size: .875rem; }
  svg.wide text { font-size: 22px; }
}
"""

SORT = """<script>
for (const button of document.querySelectorAll("th button")) button.onclick = () => {
  const head = button.parentElement, table = head.closest("table"), bodies = [...table.tBodies];
  const text = body => body.rows[0].cells[head.cellIndex].textContent;
  const before = head.getAttribute("aria-sort"), up = before ? before === "descending" : isNaN(text(bodies[0]));
  bodies.sort((a, b) => text(a) - text(b) || text(a).localeCompare(text(b), "en", {numeric: true}));
  table.querySelectorAll("th").forEach(each => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.append(...(up ? bodies : bodies.reverse()));
};
</script>"""
MAX_BYTES = 1 << 18
"""A larger image file is shrunk and stored as JPEG."""


def document(title: str, body: Sequence[str], refresh: int | None = None) -> str:
    """Return the page; `refresh` in seconds."""
    again = [] if refresh is None else [f'<meta http-equiv="refresh" content="{refresh}">']
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            *again,
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>",
            *body,
            "</html>\n",
        ]
    )


def section(title: str, text: str, *parts: str) -> str:
    """Return a heading, a paragraph and parts."""
    return "\n".join([f"<section><h2>{escape(title)}</h2>" + f"\n<p>{text}</p>" * bool(text), *parts, "</section>"])


def details(summary: str, content: str) -> str:
    """Return content that a click shows."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def tiles(contents: Sequence[str]) -> str:
    """Return parts side by side."""
    return f'<div class="tiles">{"".join(contents)}</div>'


def figure(content: str, caption: str = "") -> str:
    """Return content with a caption."""
    return f"<figure>{content}{caption and f'<figcaption>{caption}</figcaption>'}</figure>"


def image(picture: Image.Image, description: str) -> str:
    """Return an image."""
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return image_file(stream.getvalue(), "png", description)


def image_file(content: bytes, kind: str, description: str) -> str:
    """Return an image from the bytes of a file."""
    data = base64.b64encode(content).decode()
    return f'<img src="data:image/{kind};base64,{data}" alt="{escape(description)}">'


def stored_image(path: Path, side: int = 1024) -> str:
    """Return a file's image, or why it cannot be read; large ones with at most `side` pixels a side."""
    try:
        with opened(path) as picture:
            if picture.format == "PNG" and path.stat().st_size <= MAX_BYTES:
                return image_file(path.read_bytes(), "png", path.stem)
            shown = upright(path, picture).convert("RGB")
    except PictureError as error:
        return f"<p>{escape(str(error))}</p>"
    shown.thumbnail((side, side), Image.Resampling.BOX)
    stream = io.BytesIO()
    shown.save(stream, format="JPEG", quality=85)
    return image_file(stream.getvalue(), "jpeg", path.stem)


def sortable(rows: Sequence[tuple[Mapping[str, object], str]]) -> str:
    """Return a table of rows, ascending by their first column, and the content below each; a click sorts it."""
    first, *others = names = [*rows[0][0]]
    heads = [f'<th scope="col" aria-sort="ascending"><button>{escape(first)}</button></th>']
    heads += [f'<th scope="col"><button>{escape(name)}</button></th>' for name in others]
    bodies = list[str]()
    for row, content in rows:
        texts = (f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row.values())
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        bodies.append(f'<tbody><tr>{cells}</tr><tr><td colspan="{len(names)}">{content}</td></tr></tbody>')
    return f"<table><thead><tr>{''.join(heads)}</tr></thead>{''.join(bodies)}</table>{SORT}"


def bars(lengths: Mapping[str, float], best: str) -> str:
    """Return a bar chart that highlights the bar `best`."""
    cells = []
    for name, length in lengths.items():
        percent = 80 * length / max(lengths.values())
        bar = f'<div class="bar{" best" * (name == best)}" style="width:{percent:.1f}%"></div>'
        cells.append(f'<span>{escape(name)}</span><div class="track">{bar}{length:.2f}</div>')
    return f'<div class="bars">{"".join(cells)}</div>'


def colour_scale(stops: Sequence[str], low: str, high: str) -> str:
    """Return the legend of a heat map."""
    gradient = f'<i style="background:linear-gradient(90deg,{",".join(stops)})"></i>'
    return f'<div class="scale"><span>{escape(low)}</span>{gradient}<span>{escape(high)}</span></div>'


def facts(rows: Mapping[str, str]) -> str:
    """Return a list of names and values; `...` marks code."""
    coded = {name: re.sub("`([^`]*)`", r"<code>\1</code>", escape(value)) for name, value in rows.items()}
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in coded.items())
    return f'<dl class="facts">{cells}</dl>'
