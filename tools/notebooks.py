"""The notebooks as pages of the site: their text, code, printed lines and images."""

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def page(name: str) -> tuple[str, dict[str, bytes]]:
    """Return the Markdown of a notebook, and its images by the names of their files."""
    parts, images = [], {}
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else _fenced("python", text))
        outputs = cell.get("outputs", [])
        if printed := "".join(_printed(output) for output in outputs):
            parts.append(_fenced("text", printed))
        for output in outputs:
            if image := output.get("data", {}).get("image/png"):
                file = f"{name}-{len(images)}.png"
                images[file] = base64.b64decode("".join(image))
                parts.append(f"![output of the cell]({file})")
    return "\n\n".join(parts) + "\n", images


def _printed(output: dict[str, Any]) -> str:
    """Return the text of an output that is no image."""
    data = output.get("data", {})
    return "" if "image/png" in data else "".join(output.get("text", data.get("text/plain", "")))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
