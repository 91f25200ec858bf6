"""The page of a run: what it shows, that it stays small and fetches nothing, and that it stops no run."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage.locks import folder_held
from axial_transformers.training import TrainConfig, callbacks, read_run, run_page, train
from axial_transformers.training.callbacks import RunPage
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.run_page import write_page
from tests.pictures.test_html import fetched

MODEL = AxialTransformerConfig(shape=(3, 2), num_values=4, dim=8, heads=2, outer_layers=2, inner_layers=1)
CONFIG = TrainConfig(steps=2, batch_size=2, device="cpu", log_every=1, evaluate_every=1)
VALUES = np.random.default_rng(1).integers(0, 4, (9, 3, 2, 1), dtype=np.uint8)
EXAMPLES = Examples(VALUES, [str(i) for i in range(9)], num_values=4)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_page_shows_the_run_and_fetches_nothing(run):
    page = write_page(run).read_text()
    assert fetched(page) == []
    assert "http-equiv" not in page
    assert "<title>run</title>" in page
    assert len(re.findall("<img", page)) == 3  # samples, bits, data
    best = min(value for _, value in read_curves(run)["validation_bits_per_dim"])
    assert f"{best:.4f} bits/dim" in page
    for text in (
        "axial train digits --model.dim 8", f"axial train {run}", "1,350 train, 150 validation, 297 test",
        "training.batch_size", read_run(run).facts.fingerprint, read_run(run).facts.machine["torch"],
    ):  # fmt: skip
        assert text in page


def test_a_run_from_python_has_a_page_with_its_curves(tmp_path):
    score = {"bits_per_dim": 1.25}
    train(AxialTransformer(MODEL), EXAMPLES, CONFIG, tmp_path / "run", evaluate=lambda model, step, fill: score)
    page = (tmp_path / "run/index.html").read_text()
    assert re.findall('<path class="(.*?)"', page) == ["curve1", "curve2"]
    assert "1.2500 bits/dim" in page
    assert "Next steps" not in page
    assert f"9, SHA-256 <code>{EXAMPLES.fingerprint}" in page


def test_a_page_that_cannot_be_written_is_one_warning(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_page, "PAGE", "train.json/no")
        with pytest.warns(UserWarning, match="the run goes on") as warned:
            result = train(AxialTransformer(MODEL), EXAMPLES, CONFIG, tmp_path / "run")
    assert (result.ending, len([each for each in warned if "page" in str(each.message)])) == ("finished", 1)


def test_a_run_that_fails_says_so_on_its_page(run):
    with pytest.raises(ValueError, match="diverged"), RunPage(run, EXAMPLES, None):
        raise ValueError("diverged <at> step 3")
    assert "ended by an error: diverged &lt;at&gt; step 3" in (run / "index.html").read_text()


def test_a_page_is_written_once_a_minute_and_at_the_end(run, monkeypatch):
    clock, written = [0.0], []
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(callbacks, "write_page", lambda folder, status, refresh: written.append((status, refresh)))
    page = RunPage(run, EXAMPLES, None)
    for second in range(90):
        clock[0] += 1
        page.write(f"step {second}")
    page.write("finished", last=True)
    assert written == [("step 0", 60), ("step 60", 60), ("finished", None)]


def test_a_page_is_made_of_a_run_that_lacks_images_and_curves(run):
    for name in ("index.html", "data.png", "bits.png"):
        (run / name).unlink()
    shutil.rmtree(run / "samples")
    (run / "metrics.jsonl").write_text('[]\n{"step": 1}\n{"bits_per_dim": 2}\n{"step": 3, "bits_per_dim": NaN}\nx')
    page = write_page(run).read_text()
    assert "axial evaluate" in page
    assert "Curves" not in page


def test_a_page_tells_whether_its_run_is_running(run):
    holder = run / ".holder"
    with folder_held(run):
        assert f"training, by process {os.getpid()} on " in write_page(run).read_text()
        left_behind = holder.read_text()
    assert "not running" in write_page(run).read_text()
    holder.write_text(left_behind)  # as a killed process leaves it, whose number another one has now
    assert "not running" in write_page(run).read_text()
    assert 'http-equiv="refresh" content="60"' in write_page(run, "training", refresh=60).read_text()


def test_text_of_a_run_is_text_on_its_page(run):
    record = read_run(run)
    facts = replace(record.facts, command=("<script>",))
    replace(record, run=replace(record.run, source="<script>\udcff"), facts=facts).write(run)
    page = write_page(run).read_text()
    assert "<script" not in page
    assert "&lt;script&gt;\\udcff" in page


def test_a_page_stays_small_however_long_the_run(run):
    lines = [json.dumps({"step": step, "bits_per_dim": 3 + 1 / step}) for step in range(1, 12_001)]
    lines += [json.dumps({"step": step, "validation_bits_per_dim": abs(step - 4000)}) for step in range(0, 12_000, 10)]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    for step in range(9):
        Image.fromarray(noise).save(run / f"samples/step-{step:08d}.png", compress_level=0)
    page = write_page(run).read_text()
    assert "0.0000 bits/dim at step 4,000" in page
    assert 5 < len(re.findall("<img", page)) <= run_page.GRIDS + 2
    assert len(page) < 4_000_000


def test_nothing_from_outside_the_folder_is_shown(run, tmp_path):
    (run / "samples").rename(tmp_path / "elsewhere")
    (run / "samples").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link out of"):
        write_page(run)
