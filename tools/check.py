"""A look at every page of the built site in a headless browser, on a phone in the dark and on a desk.

It fails if a page scrolls sideways, if code is wider than its column, if a page logs an error, misses a file
or asks another host, or if the search does not find the right page first, from a server and from the disk. It fails
without a browser, too. `--pictures FOLDER` keeps an image of each page.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

SITE = Path(__file__).parents[1] / "build" / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOOKS = ((390, "dark"), (1280, "light"))
PATIENCE = 300_000
"""Milliseconds that a page may take to load, on a busy machine."""
SETTLED = 5_000
"""Milliseconds after which a page has the width of its window, or scrolls."""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
HIDDEN = """[...document.querySelectorAll('.md-typeset pre > code')]
    .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.trim().slice(0, 40))"""
"""The beginnings of code whose right side is hidden."""
FOUND_BY = {
    "anomaly": {"tutorials/outliers"},
    "out-of-distribution": {"tutorials/outliers"},
    "inpainting": {"tutorials/own_data"},
    "bpd": {"explanation/how_the_model_works", "results", "glossary"},
    "NLL": {"explanation/how_the_model_works", "results", "glossary"},
    "throughput": {"benchmarks"},
    "window size": {"layers/line_attention", "tutorials/attention"},
    "EMA": {"how-to/train_and_resume"},
    "KV cache": {"explanation/how_the_model_works"},
    **{words: {"how-to/troubleshooting"} for words in ("time limit", "out of memory", "torch.compile")},
    **{words: {"how-to/prepare_data", "tutorials/own_data"} for words in ("float32 measurements", "16-bit", "DICOM")},
    **{words: {"layers/in_torch"} for words in ("ONNX", "FSDP2", "LoRA")},
}
"""Words of the search, and the pages of which one has to come first."""
RESULT = ".md-search-result__link"
RESTS = 1_000
"""Milliseconds after which the results are those of the last letter."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main() -> int:
    """Print what is wrong. The exit status is 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium")
        return 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    pages = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    wrong = 0
    for complaint in _looked_at(browser, f"http://127.0.0.1:{server.server_port}/", pages, options.pictures):
        print(complaint, flush=True)
        wrong += 1
    looks = " and ".join(f"{width} pixels {scheme}" for width, scheme in LOOKS)
    print(f"{len(pages)} pages, {looks}: {wrong or 'nothing is'} wrong")
    return bool(wrong)


def _looked_at(executable: str, home: str, pages: list[str], pictures: Path | None) -> Iterator[str]:
    from playwright.sync_api import TimeoutError, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        said = _complaints(page, home)
        for name in pages:
            said.clear()
            page.goto(home + name, wait_until="load")
            for width, scheme in LOOKS:
                page.set_viewport_size({"width": width, "height": 844})
                page.emulate_media(color_scheme=scheme)
                with suppress(TimeoutError):  # from one width to the other the page moves its parts
                    page.wait_for_function(f"{OVERFLOW} <= 0", timeout=SETTLED)
                if (over := page.evaluate(OVERFLOW)) > 0:
                    said.append(f"scrolls sideways by {over} pixels at {width} pixels")
                said.extend(f"hides the right side of {text!r} at {width} pixels" for text in page.evaluate(HIDDEN))
                if pictures is not None:
                    page.screenshot(path=pictures / f"{name.replace('/', '-')[:-5]}-{width}-{scheme}.png")
            yield from (f"{name}: {line}" for line in said)
        for opened in (home + "index.html", (SITE / "index.html").as_uri()):
            yield from _searched(page, opened)
        browser.close()


def _complaints(page: Any, home: str) -> list[str]:
    """A list to which errors of a browser's page, and requests to other hosts, are added as they come."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("response", lambda answer: said.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("request", lambda request: None if _is_here(request.url, home) else said.append(f"asks {request.url}"))
    return said


def _is_here(address: str, home: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob") or parts.netloc == urlsplit(home).netloc


def _searched(page: Any, address: str) -> Iterator[str]:
    """Yield the words whose search does not lead to the right page first."""
    from playwright.sync_api import TimeoutError

    page.goto(address)
    page.keyboard.press("/")
    for words, right in FOUND_BY.items():
        page.locator("input.md-search__input").fill("")
        page.keyboard.type(words)
        try:
            page.wait_for_selector(RESULT, timeout=PATIENCE / 10)
        except TimeoutError:
            yield f"the search of {address} finds nothing for {words!r}"
            continue
        page.wait_for_timeout(RESTS)
        if not page.locator(RESULT).count():
            yield f"the search of {address} finds nothing for {words!r}"
            continue
        first = page.locator(RESULT).first.get_attribute("href") or ""
        if not any(urlsplit(first).path.endswith(f"/{name}.html") for name in right):
            yield f"the search of {address} for {words!r} finds {first} first"


if __name__ == "__main__":
    sys.exit(main())
