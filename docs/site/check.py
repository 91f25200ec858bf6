"""A look at every page of the built site in a headless browser, on a phone in the dark and on a desk.

It fails where a page scrolls sideways, logs an error, misses a file, asks another host, or where the search finds
nothing, from a server or from the disk. Without chromium it says so and checks nothing. `--pictures FOLDER` keeps a
picture of each page.
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

SITE = Path(__file__).parents[2] / "build" / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOOKS = ((390, "dark"), (1280, "light"))
PATIENCE = 300_000
"""Milliseconds that a page may take to load, on a busy machine."""
SETTLED = 5_000
"""Milliseconds after which a page has the width of its window, or scrolls."""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main() -> int:
    """Prints what is wrong; the exit status is 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is installed")
        return 0
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
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("outlier")
    try:
        page.wait_for_selector(".md-search-result__item")
    except Exception as error:
        yield f"the search of {address} finds nothing: {error}"


if __name__ == "__main__":
    sys.exit(main())
