"""Studio in a headless browser: `make studio-test`."""

import http.client
import http.server
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("gradio", reason="Gradio has an environment of its own: make studio-test")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make studio-test")

from axial_transformers.cli import studio as verb
from axial_transformers.cli.commands import Studio
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.studio import actions
from axial_transformers.studio.page import served
from axial_transformers.studio.studio_model import MAX_MEGABYTES
from tests.small_models import random_model

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120_000
"""Milliseconds that a step may take, on a busy machine."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium"),
]

CANVAS = "#editor canvas"

CONNECTED: list[object] = []
"""Addresses that this process connected to."""
sys.addaudithook(lambda event, given: CONNECTED.append(given[1]) if event == "socket.connect" else None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of small pictures, one of clips, and data of both."""
    folder, generator = tmp_path_factory.mktemp("studio"), np.random.default_rng(0)
    sizes = {"dim": 8, "heads": 2, "inner_layers": 1}
    pictures = AxialTransformerConfig(shape=(6, 4), num_classes=2, outer_layers=2, **sizes)
    clips = AxialTransformerConfig(shape=(3, 6, 4), outer_layers=(3, 2), **sizes)
    for name, config in {"pictures": pictures, "clips": clips}.items():
        random_model(config, torch.float32).save_pretrained(folder / name)
        values = generator.integers(0, 256, (9, *config.shape), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", images=values[..., None])
    for i, values in enumerate(generator.integers(0, 256, (3, 6, 4), dtype=np.uint8)):
        Image.fromarray(values).save(folder / f"{i}.png")
    Image.new("L", (40, 30)).save(folder / "large.png")
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "heavy.png").write_bytes(bytes(MAX_MEGABYTES * 10**6 + 1))
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with _served(folder, "pictures") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A window of the browser, whose pages share what they have loaded."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser.new_context(viewport={"width": 1280, "height": 900})
        browser.close()


@pytest.fixture
def stored() -> Callable[[], int]:
    """The number of files that are uploaded, to all pages that are served."""
    below = Path(tempfile.gettempdir())
    return lambda: sum(path.is_file() for each in below.glob("axial-studio-*") for path in each.rglob("*"))


@pytest.fixture
def page(browser, address) -> Iterator[object]:
    """Studio's page; what it asks of other hosts and the errors that it logs fail the test."""
    page, complaints = _opened(browser, address)
    yield page
    page.close()
    assert complaints == []


def _served(folder: Path, name: str, source: str | None = None):
    options = Studio(model=str(folder / name), source=str(folder / (source or f"{name}.npz")))
    if source == "":
        options = replace(options, source=None)
    return served(verb.studio_model(verb.open_model(options.model), options))


def _opened(browser, address: str):
    page, complaints = browser.new_page(), []
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if _is_here(request.url, address) else complaints.append(request.url))
    page.goto(address)
    page.get_by_role("tab", name="Sample").wait_for()
    return page, complaints


def _is_here(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:"))


def _tab(page, name: str):
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel", name=name)


def _upload(page, field: str, *files: Path) -> None:
    page.locator(f"{field}:visible input[type=file]").set_input_files(files)
    page.locator(f"[aria-label='{files[-1].name}']:visible").wait_for()


def _click(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).and_(page.locator(":visible")).click()


def _error(page) -> str:
    toast = page.get_by_test_id("toast-text")
    toast.wait_for()
    return toast.inner_text()


def _is_whole(page, selector: str) -> bool:
    return page.eval_on_selector(selector, "picture => picture.decode().then(() => picture.naturalWidth > 0)")


def test_a_thumbnail_chooses_an_example(page):
    _tab(page, "Bits")
    shown = []
    for number in (0, 1):
        page.locator(".thumbnails .grid-container button:visible").nth(number).click()
        page.wait_for_timeout(1000)  # the choice is sent
        _click(page, "Show bits")
        page.wait_for_function(
            "last => (document.querySelector('#bits img')?.src ?? '') != last", arg="".join(shown[-1:])
        )
        shown.append(page.get_attribute("#bits img", "src"))


def test_samples_appear_when_the_page_opens_and_anew_with_every_seed(page):
    page.wait_for_selector("#samples img")
    assert _is_whole(page, "#samples img")
    first = page.get_attribute("#samples img", "src")
    page.get_by_label("seed").first.fill("7")
    _click(page, "New samples")
    page.wait_for_function("first => document.querySelector('#samples img')?.src != first", arg=first)


def test_what_is_painted_over_is_completed_and_marked(page):
    _tab(page, "Complete")
    page.wait_for_selector(CANVAS)
    zoom = page.locator("#editor").get_by_text("%").inner_text
    page.wait_for_timeout(3000)  # the picture is fitted into the editor
    box, pixel = page.locator(CANVAS).first.bounding_box(), 128 * int(zoom().strip("%")) / 100
    row, column = box["y"] + box["height"] / 2 - 1.5 * pixel, box["x"] + box["width"] / 2 - pixel / 2
    page.mouse.move(column, row)
    page.mouse.down()
    page.mouse.move(column + pixel, row, steps=5)
    page.mouse.up()
    page.wait_for_timeout(1000)  # what is painted is sent
    _click(page, "Complete")
    page.wait_for_selector("#completions img")
    assert "2 of 2 erased positions" in page.inner_text("#completions")
    assert _is_whole(page, "#completions img")


def test_the_end_is_completed_exactly(page):
    _tab(page, "Complete")
    page.wait_for_selector(CANVAS)
    page.get_by_label("number input for or erase the last rows").fill("2")
    _click(page, "Complete")
    page.wait_for_selector("#completions img")
    assert "Exact samples" in page.inner_text("#completions")


def test_nothing_erased_is_one_line(page):
    _tab(page, "Complete")
    page.wait_for_selector(CANVAS)
    _click(page, "Complete")
    assert "nothing is erased" in _error(page)


def test_bits_are_shown_of_a_file(page, folder):
    _tab(page, "Bits")
    _click(page, "Show bits")
    page.wait_for_selector("#bits img")
    first = page.get_attribute("#bits img", "src")
    with page.expect_response("**/queue/join*"):
        _upload(page, ".file", folder / "0.png")
    page.wait_for_timeout(1000)  # the example is read
    _click(page, "Show bits")
    page.wait_for_function("first => document.querySelector('#bits img')?.src != first", arg=first)
    assert "bits/dim" in page.inner_text("#bits")


def test_files_are_ranked_against_the_data(page, folder):
    _tab(page, "Rank")
    _upload(page, "#files", *(folder / f"{i}.png" for i in range(3)))
    _click(page, "Rank")
    page.wait_for_selector("#ranking table")
    assert "Ranked by bits: fewer than 20 examples" in page.inner_text("#ranking")
    rows = page.locator("#ranking tr").all_inner_texts()
    assert sorted(row.split()[1] for row in rows[1:]) == ["0.png", "1.png", "2.png"]
    bits = [float(row.split()[2]) for row in rows[1:]]
    assert bits == sorted(bits, reverse=True)
    assert all("of the data" in row for row in rows[1:])


@pytest.mark.parametrize(
    ("name", "says"),
    [("bad.png", "bad.png is not a whole image"), ("large.png", "large.png holds [30, 40, 1] values an example")],
)
def test_a_bad_upload_is_one_line(page, folder, name, says):
    _tab(page, "Rank")
    _upload(page, "#files", folder / name)
    _click(page, "Rank")
    said = _error(page)
    assert said.startswith(says)
    assert "\n" not in said
    assert "Traceback" not in page.inner_text("body")


def test_a_file_that_is_too_large_is_refused(browser, address, folder):
    page, complaints = _opened(browser, address)
    _tab(page, "Rank")
    page.set_input_files("#files input[type=file]", folder / "heavy.png")
    assert _error(page).startswith("File(s) exceed the maximum allowed size")
    assert not any(each.startswith("http") for each in complaints)
    page.close()


@pytest.mark.parametrize("leave", [False, True], ids=["told", "left"])
def test_long_work_stops_when_it_is_told_to_and_when_the_page_is_left(browser, address, monkeypatch, leave):
    made, ended = [], Event()

    def long(studio, options, progress):
        try:
            for step in progress(range(900)):
                made.append(step)
                time.sleep(0.2)
        finally:
            ended.set()

    monkeypatch.setattr(actions, "new_samples", long)
    page, complaints = _opened(browser, address)
    _click(page, "New samples")
    page.get_by_text("/900").first.wait_for()
    if not leave:
        _click(page, "Stop")
        page.get_by_text("Stopped.").first.wait_for()
    page.close()
    assert ended.wait(PATIENCE / 1000)
    assert 0 < len(made) < 900
    assert complaints == []


def test_clips_play(browser, folder):
    with _served(folder, "clips") as address:
        page, complaints = _opened(browser, address)
        _click(page, "New samples")
        page.wait_for_selector("#samples video")
        page.wait_for_function("document.querySelector('#samples video').currentTime > 0")
        assert complaints == []
        page.close()


@pytest.mark.parametrize(("source", "marked"), [("", False), ("0.png", True)], ids=["no data", "one example"])
def test_there_may_be_one_example_or_none(browser, folder, source, marked):
    with _served(folder, "pictures", source) as address:
        page, complaints = _opened(browser, address)
        page.wait_for_selector("#samples img")
        _tab(page, "Complete")
        page.locator(".file:visible").wait_for()
        assert page.locator(".thumbnails").count() == marked
        if not marked:
            _click(page, "Complete")
            assert "there is no picture" in _error(page)
            with page.expect_response("**/queue/join*"):
                _upload(page, ".file", folder / "1.png")
        page.wait_for_selector(CANVAS)
        page.get_by_label("number input for or erase the last rows").fill("2")
        _click(page, "Complete")
        page.wait_for_selector("#completions img")
        assert complaints == []
        page.close()


def test_pages_of_other_sites_get_nothing_and_store_nothing(browser, address, stored):
    """A page of another name that leads here (DNS rebinding), and one that sends its requests here."""
    host = address.removeprefix("http://").rstrip("/")
    port = host.partition(":")[2]
    before = stored()
    upload = """place => {
        const form = new FormData();
        form.append('files', new Blob(['x'.repeat(99)]), 'x.png');
        return fetch(place, {method: 'POST', mode: 'no-cors', body: form}).then(() => 1, () => 0);
    }"""
    elsewhere = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = Thread(target=elsewhere.serve_forever)
    thread.start()
    try:
        page = browser.new_page()
        answer = page.goto(f"http://localhost:{elsewhere.server_port}/")
        assert answer.status == 501  # a page, of another origin
        assert page.evaluate(upload, f"{address}gradio_api/upload") == 1
        page.close()
    finally:
        elsewhere.shutdown()
        thread.join()
    for headers in ({"Host": f"evil.example:{port}"}, {"Host": host, "Origin": "http://evil.example"}):
        connection = http.client.HTTPConnection(host)
        connection.request("POST", "/gradio_api/upload", body="--x--", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, b"Studio" in answer.read()) == (403, True)
    assert stored() == before


def test_uploads_together_are_bounded(browser, folder, monkeypatch, stored):
    monkeypatch.setattr("axial_transformers.studio.page.MAX_STORED", 0.1)
    with _served(folder, "pictures") as address:
        page, complaints = _opened(browser, address)
        before = stored()
        _tab(page, "Rank")
        _upload(page, "#files", folder / "0.png")
        assert stored() > before
        before = stored()
        (folder / "noise.png").write_bytes(bytes(100_000))
        page.set_input_files("#files input[type=file]", folder / "noise.png")
        assert "uploads together are at most" in _error(page)
        assert stored() == before
        assert not any(each.startswith("http") for each in complaints)
        page.close()


def test_the_server_is_on_the_loopback_and_asks_no_other_host(address):
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    assert host == "127.0.0.1"
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", int(port)), timeout=2):
        pass
    assert {each[0] for each in CONNECTED if isinstance(each, tuple)} <= {"127.0.0.1", "127.0.0.2", "::1"}
