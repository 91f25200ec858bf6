"""A hook of the site's build: formulas between $$ become drawings, so that a page needs no fonts and no scripts."""

import re
from html import escape
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

FORMULA = re.compile(r"^\$\$\n(.+?)\n\$\$$", flags=re.MULTILINE | re.DOTALL)
SIZE, MARGIN = 16.0, 2.0
"""Height of the letters, and the empty border of a drawing, in its own units."""
OF_CODES = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
"""SVG's letters for matplotlib's kinds of segments."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draw each line of each formula."""
    return FORMULA.sub(lambda found: "\n\n".join(map(_drawn, found[1].split("\n"))), markdown)


def _drawn(tex: str) -> str:
    path = TextPath((0, 0), f"${tex}$", size=SIZE, prop=FontProperties(math_fontfamily="cm"))
    box = path.get_extents()
    width, height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    parts = []
    for vertices, code in path.iter_segments(curves=True, simplify=False):
        points = [f"{value:.2f}" for value in vertices] if code != path.CLOSEPOLY else []
        parts.append(OF_CODES[int(code)] + " ".join(points))
    return (
        f'<div class="formula"><svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(tex)}" '
        f'style="width: {1.15 * width / SIZE:.2f}em; max-width: 100%" fill="currentColor" '
        f'viewBox="{box.x0 - MARGIN:.2f} {-box.y1 - MARGIN:.2f} {width:.2f} {height:.2f}">'
        f'<path transform="scale(1 -1)" d="{"".join(parts)}"/></svg></div>'
    )
