"""The demo's page, of a model that has hardly learned anything."""

import json
from pathlib import Path

import pytest

from axial_transformers import cli
from axial_transformers.data import load
from tests.conftest import Axial
from tests.pictures.test_html import fetched


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "demo"
    assert cli.main(["demo", "--out", str(folder), "--steps", "2"]) == 0
    return folder


def test_the_page_fetches_nothing_and_says_what_was_measured(demo):
    page, test = (demo / "index.html").read_text(), load("digits", split="test")
    assert fetched(page) == []
    for text in (
        "<h1>demo</h1>", "Likelihood", "Samples by class", "Completions", "Curves", "Samples",
        "Bits of each position", "Settings", test.fingerprint, "last 297 images",
        "<td>2.796</td>",
    ):  # fmt: skip
        assert text in page


def test_a_second_call_only_draws_the_page_anew(demo, axial: Axial):
    weights = (demo / "run" / "model.safetensors").stat().st_mtime_ns
    (demo / "index.html").unlink()
    status, out, _ = axial("demo", "--out", demo, "--steps", 2)
    assert status == 0
    assert (demo / "index.html").as_uri() in out
    assert (demo / "run" / "model.safetensors").stat().st_mtime_ns == weights


@pytest.mark.slow
def test_the_demo_reaches_1_90_bits(tmp_path, axial: Axial):
    assert axial("demo", "--out", tmp_path / "demo").status == 0
    metrics = json.loads(axial("evaluate", tmp_path / "demo" / "run", "--json").out)
    assert metrics["images"] == 297
    assert metrics["bits_per_dim"] <= 1.90
