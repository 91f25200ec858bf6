"""The page of a run: what it shows, that it fetches nothing, and that it stops no run."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, fit, read_run, train
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.run_page import write_page
from tests.pictures.test_html import fetched

MODEL = AxialTransformerConfig(shape=(3, 2), num_values=4, dim=8, heads=2, outer_layers=2, inner_layers=1)
CONFIG = TrainConfig(steps=2, batch_size=2, device="cpu", log_every=1, evaluate_every=1)
VALUES = np.random.default_rng(1).integers(0, 4, (9, 3, 2, 1), dtype=np.uint8)
EXAMPLES = Examples(VALUES, [str(i) for i in range(9)], range=ValueRange(0, 3))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_page_shows_the_run_and_fetches_nothing(run):
    page = write_page(run).read_text()
    assert fetched(page) == []
    assert "<title>run</title>" in page
    assert len(re.findall("<img", page)) == 2  # samples, bits
    best = min(value for _, value in read_curves(run)["validation_bits_per_dim"])
    assert f"{best:.4f} bits/dim" in page
    for text in (
        "axial train digits --model.dim 8", "1,350 train, 150 validation, 297 test",
        "training.batch_size", read_run(run).facts.fingerprint, read_run(run).facts.machine["torch"],
    ):  # fmt: skip
        assert text in page


def test_a_run_from_python_has_a_page_with_its_curves(tmp_path):
    score = {"bits_per_dim": 1.25}
    train(AxialTransformer(MODEL), EXAMPLES, CONFIG, tmp_path / "run", evaluate=lambda model, step, fill: score)
    page = (tmp_path / "run/index.html").read_text()
    assert re.findall('<path class="(.*?)"', page) == ["curve1", "curve2"]
    assert "1.2500 bits/dim" in page
    assert f"9, SHA-256 <code>{EXAMPLES.fingerprint}" in page


def test_a_page_that_cannot_be_written_is_one_warning(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "write_page", lambda *given: 1 / 0)
        with pytest.warns(UserWarning, match="goes on") as warned:
            result = train(AxialTransformer(MODEL), EXAMPLES, CONFIG, tmp_path / "run")
    assert (result.ending, {"its page, index.html" in str(each.message) for each in warned}) == ("finished", {True})


def test_a_page_is_made_of_a_run_that_lacks_images_and_curves(run):
    for name in ("index.html", "bits.png"):
        (run / name).unlink()
    shutil.rmtree(run / "samples")
    (run / "metrics.jsonl").write_text('[]\n{"step": 1}\n{"bits_per_dim": 2}\n{"step": 3, "bits_per')
    page = write_page(run).read_text()
    assert "training.batch_size" in page
    assert "Curves" not in page


def test_nothing_from_outside_the_folder_is_shown(run, tmp_path):
    (run / "samples").rename(tmp_path / "elsewhere")
    (run / "samples").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="link"):
        write_page(run)
