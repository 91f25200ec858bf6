"""The image of docs/how-to/studio.md: Studio in a headless chromium, with a test image completed.

.venv-studio/bin/python tools/studio_picture.py fashion_mnist fashion_mnist_test.npz
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from axial_transformers.studio import served
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
    parser.add_argument("--example", type=int, default=0)
    words = parser.parse_args()
    trained = open_model(words.model)
    with tempfile.TemporaryDirectory() as folder, served(trained) as address, sync_playwright() as playwright:
        file = Path(folder) / "example.npy"
        np.save(file, trained.examples(words.source, "all")[0][[words.example]].values)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 720})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_role("tab", name="Complete").click()
        page.wait_for_selector("[role=tab][aria-selected=true]:has-text('Complete')")
        page.get_by_role("tabpanel").locator("input[type=file]").set_input_files(file)
        page.get_by_label(file.name).first.wait_for()
        page.get_by_role("button", name="Complete", exact=True).click()
        page.wait_for_selector(".image-frame img:visible")
        page.wait_for_timeout(1000)
        taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        browser.close()
    taken.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(PICTURE, PICTURE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
