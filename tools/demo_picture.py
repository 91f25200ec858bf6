"""The image of the demo's page in README, from the top of the page in a headless chromium.

axial demo
.venv-docs/bin/python tools/demo_picture.py demo/index.html
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "demo.png"
WIDTH, HEIGHT, THUMBNAIL, COLOURS = 1100, 800, 660, 128
"""Pixels of the window, the width of the image, and the number of its colours."""


def main() -> None:
    """Write the image."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(Path(sys.argv[1]).absolute().as_uri())
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        browser.close()
    size = (THUMBNAIL, THUMBNAIL * HEIGHT // WIDTH)
    taken.resize(size, Image.Resampling.LANCZOS).quantize(COLOURS).save(IMAGE, optimize=True)
    print(IMAGE, size, IMAGE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
