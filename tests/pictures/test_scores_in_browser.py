"""The page of scores in a headless browser: `make studio-test`."""

import shutil

import numpy as np
import pytest

from axial_transformers.pictures import Look
from axial_transformers.pictures.heat_maps import BitsOfExample, save_scores

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make studio-test")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs chromium")]


def test_the_page_of_scores_sorts_by_every_column_and_fits_a_phone(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    names, bits, corrected = ["a_file_with_a_long_name.png", "b10.png", "b9.png"], [9.5, 10.25, 0.5], [-1.0, 2.0, 0.5]
    rows = [
        {"rank": i + 1, "name": name, "bits_per_dim": bits[i], "corrected": corrected[i], "picture_bits_per_dim": 1.0}
        for i, name in enumerate(names)
    ]
    maps = [BitsOfExample(i, name, values[i], values[i] / 32) for i, name in enumerate(names)]
    save_scores(None, rows, tmp_path / "maps", maps, Look())
    expected = {
        "name": ("ascending", [0, 2, 1]), "bits/dim": ("descending", [1, 0, 2]), "corrected": ("descending", [1, 2, 0])
    }  # fmt: skip
    asked = list[str]()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url.split(":")[0]))
        page.goto((tmp_path / "maps/scores.html").as_uri())
        for title, (direction, order) in expected.items():
            for again in (False, True):
                page.get_by_role("button", name=title).click()
                shown = page.locator("tbody tr:first-child td:nth-child(2)").all_inner_texts()
                assert shown == [names[i] for i in (order[::-1] if again else order)]
                (head,) = page.locator("th[aria-sort]").all()
                assert head.inner_text() == title
                assert (head.get_attribute("aria-sort") == direction) is not again
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert set(asked) <= {"file", "data"}
