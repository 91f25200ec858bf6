"""The image of docs/how-to/studio.md: Studio in a headless chromium, with a part of an example completed.

.venv-studio/bin/python tools/studio_picture.py fashion_mnist fashion_mnist_test.npz
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from axial_transformers.cli import studio
from axial_transformers.cli.commands import Studio
from axial_transformers.studio.page import served
from axial_transformers.training.trained_model import open_model

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "studio.png"
PATIENCE = 300_000
"""Milliseconds that a step may take, on a busy machine."""
COLOURS = 128


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("--example", default="3")
    words = parser.parse_args()
    options = Studio(model=words.model, source=words.source)
    shown = studio.studio_model(open_model(options.model), options)
    with served(shown) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_role("tab", name="Complete").click()
        page.wait_for_selector("#editor canvas")
        page.locator(".thumbnails .grid-container button:visible").nth(int(words.example)).click()
        page.wait_for_timeout(3000)  # the example is fitted into the editor
        box = page.locator("#editor canvas").first.bounding_box()
        assert box is not None
        for height in (0.5, 0.6, 0.7):
            across = [(box["x"] + part * box["width"], box["y"] + height * box["height"]) for part in (0.3, 0.7)]
            page.mouse.move(*across[0])
            page.mouse.down()
            page.mouse.move(*across[1], steps=20)
            page.mouse.up()
        page.wait_for_timeout(1000)  # what is painted is sent
        page.get_by_role("button", name="Complete", exact=True).and_(page.locator(":visible")).click()
        page.wait_for_selector("#completions img")
        page.wait_for_timeout(1000)
        taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        browser.close()
    taken.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(PICTURE, PICTURE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
