"""Studio in a headless browser: `make studio-test`."""

import http.client
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("gradio", reason="Gradio has an environment of its own: make studio-test")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make studio-test")

from axial_transformers.cli.messages import one_line
from axial_transformers.studio import MAX_MEGABYTES, served
from axial_transformers.training.trained_model import open_model
from tests.small_models import random_model, random_values, small_config

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120_000  # milliseconds that a step may take, on a busy machine

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs chromium")]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser.new_context(viewport={"width": 1280, "height": 900})
        browser.close()


@contextmanager
def opened(browser, folder: Path, *shape: int) -> Iterator[object]:
    """Studio's page of a model; what it asks of other hosts and the errors that it logs fail the test."""
    model, complaints = random_model(small_config(shape, num_values=256), torch.float32), []
    model.save_pretrained(folder / "model")
    np.save(folder / "example.npy", random_values(model, 1).numpy().astype(np.uint8))
    with served(open_model(folder / "model"), explain=one_line) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        here = (address, "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(here) else complaints.append(request.url))
        page.goto(address)
        yield page
        page.close()
    assert complaints == []


def tab(page, name: str):
    page.get_by_role("tab", name=name).click()
    page.wait_for_selector(f"[role=tab][aria-selected=true]:has-text('{name}')")
    return page.get_by_role("tabpanel")


def upload(panel, file: Path) -> None:
    panel.locator("input[type=file]").set_input_files(file)
    panel.get_by_label(file.name).first.wait_for()


def click(panel, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).click()


def image(panel, after: str = "none") -> str:
    """The address of the image that is shown, when it is another than `after`."""
    shown = panel.locator(f".image-frame img:not([src='{after}'])")
    assert shown.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")
    return shown.get_attribute("src")


def test_images_are_sampled_completed_and_scored(browser, tmp_path):
    with opened(browser, tmp_path, 6, 4) as page:
        panel = tab(page, "Sample")
        click(panel, "Sample")
        first = image(panel)
        panel.get_by_label("seed").fill("7")
        click(panel, "Sample")
        image(panel, after=first)
        panel = tab(page, "Complete")
        upload(panel, tmp_path / "example.npy")
        click(panel, "Complete")
        image(panel)
        assert panel.get_by_label("completions").input_value().startswith("exact")
        panel = tab(page, "Bits")
        upload(panel, tmp_path / "example.npy")
        click(panel, "Show bits")
        image(panel)
        assert float(panel.get_by_label("bits/dim").input_value()) > 0


def test_clips_play(browser, tmp_path):
    with opened(browser, tmp_path, 3, 6, 4) as page:
        click(tab(page, "Sample"), "Sample")
        page.wait_for_function("[...document.querySelectorAll('video')].some(each => each.currentTime > 0)")


def test_what_is_refused_is_one_line(browser, tmp_path):
    """A file that is missing, damaged or too large; a name that leads here (DNS rebinding); another address."""
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (tmp_path / "heavy.png").write_bytes(bytes(MAX_MEGABYTES * 10**6 + 1))
    with opened(browser, tmp_path, 6, 4) as page:
        panel, errors = tab(page, "Bits"), page.get_by_test_id("toast-text")
        click(panel, "Show bits")
        errors.get_by_text("there is no file").wait_for()
        upload(panel, tmp_path / "bad.png")
        click(panel, "Show bits")
        errors.get_by_text("bad.png is not a whole image").wait_for()
        panel = tab(page, "Complete")
        panel.locator("input[type=file]").set_input_files(tmp_path / "heavy.png")
        errors.get_by_text("exceed the maximum allowed size").wait_for()
        assert not any("\n" in said or "/" in said for said in errors.all_inner_texts()[:2])
        assert "Traceback" not in page.inner_text("body")
        host, _, port = page.url.removeprefix("http://").rstrip("/").partition(":")
        assert host == "127.0.0.1"
        connection = http.client.HTTPConnection(host, int(port))
        connection.request("GET", "/", headers={"Host": f"evil.example:{port}"})
        assert connection.getresponse().status == 400
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", int(port)), timeout=2):
            pass


UPLOAD = """async address => {
    const form = new FormData();
    form.append("files", new Blob(["sent by another page"]), "foreign.npy");
    await fetch(address + "gradio_api/upload", {method: "POST", mode: "no-cors", body: form});
}"""


def test_a_page_of_another_site_can_send_no_file(browser, tmp_path):
    """To a browser, localhost and 127.0.0.1 are two sites."""
    with opened(browser, tmp_path, 6, 4) as page:
        address, other = page.url, browser.new_page()
        uploads = Path(os.environ["GRADIO_TEMP_DIR"])
        other.goto(address.replace("127.0.0.1", "localhost"))
        other.evaluate(UPLOAD, address)
        assert list(uploads.rglob("foreign.npy")) == []
        page.evaluate(UPLOAD, address)
        assert len(list(uploads.rglob("foreign.npy"))) == 1
        other.close()
