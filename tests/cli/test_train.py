"""Training on any data from the command line, and what a run is good for: nothing is lost, all is said at the start."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import recipes
from axial_transformers.cli.train import requested
from axial_transformers.data import DataConfig, load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.outliers import Scores
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import silent
from axial_transformers.recipes import prepare, watching
from axial_transformers.training import RunState, costs, read_run
from tests.conftest import TINY, Axial

pytestmark = pytest.mark.usefixtures("home")

ONE_STEP = ["--training.steps", "1", "--training.batch-size", "2"]


def test_a_run_leaves_a_model_and_sample_grids(trained: Path):
    model = AxialTransformer.from_pretrained(trained)
    assert (model.config.dim, model.config.shape, model.config.num_classes) == (8, (8, 8), 10)
    assert [path.name for path in (trained / "samples").iterdir()] == ["step-00000004.png"]


def last_line_of_a_run_on_plain_images(axial: Axial, *options: str) -> str:
    Path("plain").mkdir()
    for level in range(30):
        Image.new("L", (48, 48), 5 * level).save(f"plain/{level}.png")
    schedule = ["--training.batch-size", "4", "--training.schedule", "constant", "--samples", "0"]
    status, out, err = axial("train", "plain", *TINY, *schedule, *options)
    assert status == 0, err
    return out.splitlines()[-1]


def test_a_run_says_that_png_takes_fewer_bits(axial: Axial):
    assert last_line_of_a_run_on_plain_images(axial, "--training.steps", "2").startswith("PNG")


def test_a_run_says_that_its_ema_weights_lag_behind_its_raw_ones(axial: Axial):
    lagging = ["--training.as-released", "--training.ema-decay", "0.9999", "--training.warmup-steps", "1"]
    assert "raw" in last_line_of_a_run_on_plain_images(axial, "--training.steps", "30", *lagging)


def test_a_run_better_than_png_has_no_fault(monkeypatch):
    scores = Scores(bits=np.array([2.0, 3.0]), corrected=np.array([-1.0, -0.4]))
    monkeypatch.setattr(watching, "open_model", lambda *_: SimpleNamespace(model=None))
    monkeypatch.setattr(watching, "score", lambda *_, **__: scores)
    run, validation = recipes.custom(load("digits")), load("digits", split="validation")
    assert watching.find_fault(run, validation, 2.5, silent) is None
    assert "raw" in str(watching.find_fault(run, validation, 2.6, silent))


@pytest.mark.parametrize("name", recipes.NAMED)
def test_one_override_keeps_every_other_setting_of_a_recipe(name):
    wanted = recipes.NAMED[name]()
    wanted = replace(wanted, source="data", training=replace(wanted.training, log_every=7))
    assert requested([name, "data", "--training.log-every", "7"]) == (wanted, None)


def test_evaluation_reports_all_that_a_number_needs(axial: Axial, trained: Path):
    status, out, _ = axial("evaluate", trained, "--json", "--batch-size", "100")
    metrics, test = json.loads(out), load("digits", split="test")
    bits = bits_per_dim(AxialTransformer.from_pretrained(trained), torch.from_numpy(test.values))
    assert status == 0
    assert metrics["bits_per_dim"] == pytest.approx(bits.mean().item(), abs=1e-6)
    assert metrics["standard_error"] == pytest.approx((bits.std() / 297**0.5).item(), rel=1e-4)
    assert (metrics["images"], metrics["weights"], metrics["data"]) == (297, "EMA", "digits, test")
    assert metrics["fingerprint"] == test.fingerprint


def test_raw_weights_are_other_weights_and_called_so(axial: Axial, trained: Path):
    ema, raw = (json.loads(axial("evaluate", trained, "--json", "--weights", w).out) for w in ("ema", "raw"))
    assert raw["weights"] == "raw, step-00000004"
    assert raw["bits_per_dim"] != ema["bits_per_dim"]


def test_an_interrupted_run_says_how_to_go_on(axial: Axial, monkeypatch):
    stopped = RunState(ending="interrupted", step=3, seconds=1.0, best_step=None, best_bits_per_dim=None)
    monkeypatch.setattr(prepare, "train", lambda *_, **__: stopped)
    status, out, _ = axial("train", "digits", "--out", "somewhere")
    assert status == 130
    assert "go on with: axial train somewhere" in out


GIGABYTE = 10**9


QUICK = ["--training.steps", "1", "--training.batch-size", "2", "--training.log-every", "1"]


def arrays(path: Path, shape: tuple[int, ...] = (12, 6, 4, 3)) -> Path:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(path, images=values, labels=np.arange(shape[0]) % 2)
    return path


def test_a_run_follows_from_its_settings_and_data_on_every_machine(axial: Axial, tmp_path, monkeypatch):
    few = ["--samples", 0, "--validate-on", 1, "--training.batch-size", 2]
    source, found, threads = arrays(tmp_path / "data.npz", (600, 6, 4, 1)), [], torch.get_num_threads()
    for out, gigabytes, count, more in (("one", 2, 1, []), ("two", 20, 2, ["--training.minutes", 60])):
        monkeypatch.setattr(costs, "free_memory", lambda device, room=gigabytes: room * GIGABYTE)
        torch.set_num_threads(count)
        done = axial("train", source, "--training.steps", 1, "--out", out, *few, *more)
        torch.set_num_threads(threads)
        assert done.status == 0, done.err
        record, config = (json.loads(Path(out, name).read_text()) for name in ("train.json", "config.json"))
        del record["facts"]["command"], record["facts"]["machine"], record["run"]["training"]["minutes"]
        found.append((record, config))
    assert found[0] == found[1]


def test_a_users_own_choice_that_does_not_fit_is_refused_with_what_would(axial: Axial, refused, tmp_path, monkeypatch):
    arrays(tmp_path / "photos.npz")
    monkeypatch.setattr(costs, "free_memory", lambda device: 5_000_000)
    choice = "--training.accumulate 1 --training.no-checkpoint-blocks --model.dim 128 --training.steps 1"
    err = refused("train", "photos.npz", *choice.split())
    assert "MB are free here: try --training.accumulate" in err
    monkeypatch.setattr(costs, "free_memory", lambda device: 40 * GIGABYTE)
    refused("train", "imagenet64", "photos.npz", "--data.size", "64")  # of another shape: said before sizes are
    assert not (tmp_path / "runs").exists()
    assert axial("train", "photos.npz", *TINY, *QUICK).status == 0
    before = (tmp_path / "runs/photos/train.json").read_bytes()
    monkeypatch.setattr(costs, "free_memory", lambda device: 1_000)
    status, _, err = axial("train", "runs/photos", "--training.steps", 2)
    assert (status, "are free here" in err) == (2, True)
    assert (tmp_path / "runs/photos/train.json").read_bytes() == before


def test_a_run_goes_on_with_its_data_moved_and_with_no_other(axial: Axial, refused, tmp_path):
    arrays(tmp_path / "a.npz")
    run = tmp_path / "runs/a"
    own = ["--samples", "1", "--validate-on", "1"]
    assert axial("train", "a.npz", *TINY, *QUICK, *own).status == 0
    shutil.move(tmp_path / "a.npz", tmp_path / "moved.npz")
    assert "a.npz, is gone: name its new path after the folder" in refused("train", run)
    arrays(tmp_path / "other.npz", (14, 6, 4, 3))
    before = (run / "train.json").read_bytes()
    assert "other.npz holds other training examples" in refused("train", run, "other.npz", "--training.steps", "2")
    status, _, err = axial("train", run, "moved.npz", "--no-resume")
    assert (status, "--resume" in err) == (2, True)
    assert (run / "train.json").read_bytes() == before
    assert axial("train", run, "moved.npz", "--training.steps", "2").status == 0
    record = read_run(run)
    assert record is not None
    assert record.run.source == str(tmp_path / "moved.npz")
    assert (record.run.samples, record.run.validate_on, record.run.training.steps) == (1, 1, 2)
    assert record.facts.validation is not None


def test_a_run_below_its_pictures_is_no_part_of_the_data(axial: Axial, tmp_path, monkeypatch):
    for i in range(8):
        picture(f"mine/{i}.png", i)
    monkeypatch.chdir(tmp_path / "mine")
    assert axial("train", ".", *TINY, *QUICK, "--validate-on", 2, "--samples", 1).status == 0
    assert list((tmp_path / "mine/runs/mine").glob("**/*.png"))
    with pytest.warns(UserWarning, match="mine"):
        assert len(load(tmp_path / "mine", DataConfig(), "all")) == 8
    status, _, err = axial("train", "runs/mine", "--training.steps", 2)
    assert status == 0, err


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_that_are_not_utf8_are_read_and_no_run_is_begun_that_could_not_be(axial: Axial, tmp_path, trained: Path):
    folder = tmp_path / os.fsdecode(b"pictures\xff")
    folder.mkdir()
    for i in range(10):
        Image.fromarray(np.full((8, 8), i, np.uint8)).save(folder / os.fsdecode(b"%d\xff.png" % i))
    options = [*TINY, "--training.steps", 1, "--training.batch-size", 2, "--out"]
    refused = axial("train", folder, *options, tmp_path / os.fsdecode(b"run\xff"))
    assert (refused.status, "run\\udcff is no name in UTF-8" in refused.err) == (2, True), refused.err
    assert not (tmp_path / os.fsdecode(b"run\xff")).exists()
    assert axial("train", folder, *options, tmp_path / "run").status == 0
    done = axial("score", tmp_path / "run", folder, "--split", "all", "--out", tmp_path / "scores.csv")
    assert done.status == 0, done.err
    assert r"3\udcff.png" in (tmp_path / "scores.csv").read_text(encoding="utf-8")


def test_a_damaged_test_part_is_named_and_never_replaced_by_validation(axial: Axial, refused):
    for part in ("train", "validation", "test"):
        for i in range(3):
            picture(f"photos/{part}/{i}.png", i)
    train = ["train", "photos", *TINY, *ONE_STEP, "--samples", 1, "--out", "run"]
    for i in range(2):
        Path(f"photos/test/{i}.png").write_text("damaged")
    assert "photos/test/1.png is not a whole" in refused(*train, "--data.skip-bad", 1)
    assert not Path("run").exists()
    picture("photos/test/0.png", 0)
    done = axial(*train)
    assert done.status == 0, done.err
    assert done.err.count("warning: left out, 1 of 3 files: photos/test/1.png") == 1
    Path("photos/test/0.png").write_text("damaged")
    damaged = axial("evaluate", "run")
    assert damaged.status == 2
    assert "photos/test/0.png is not a whole image" in damaged.err


def picture(path: str, seed: int, mode: str = "RGB", **options: object) -> Path:
    """A smooth picture of 8x8 pixels, saved."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 2, 3)).astype(np.uint8)
    Image.fromarray(pixels).resize((8, 8)).convert(mode).save(path, **options)
    return Path(path)


def test_several_numbers_may_be_followed_by_another_option():
    sizes = ["--data.cut", "exact", "--data.size", "2", "4", "4"]
    layers = ["--model.outer-layers", "3", "2"]
    for words in ([*sizes, *layers], [*layers, *sizes], [*sizes, *layers, "--training.steps", "7"]):
        run, _ = requested(["clips32", *words])
        assert (run.data.size, run.model.outer_layers) == ((2, 4, 4), (3, 2))
    run, _ = requested(["photos32", "--data.size", "16", "--model.outer-layers", "4", "--training.steps", "7"])
    assert (run.data.size, run.model.outer_layers) == (16, 4)


@pytest.mark.parametrize("moment", ["score", "sample", "bits_map"])
def test_a_run_that_is_moved_while_it_is_looked_at_leaves_nothing_behind(axial: Axial, monkeypatch, moment):
    """The command ends with one line and status 2, and goes on at the new place."""
    usual = getattr(watching, moment)

    def moving(*given, **more):
        if Path("run").exists():
            Path("run").rename("moved")
        return usual(*given, **more)

    monkeypatch.setattr(watching, moment, moving)
    settings = ["--training.evaluate-every", 1, "--training.sample-every", 1, "--validate-on", 1, "--samples", 1]
    status, _, err = axial("train", "digits", *TINY, *ONE_STEP, *settings, "--out", "run")
    assert status == 2
    assert err.splitlines()[-1].startswith("axial train: run was moved or removed while its run trained")
    assert not Path("run").exists()
    assert axial("train", "moved").status == 0


def test_a_record_has_the_command_that_began_a_run_and_the_one_that_last_resumed_it(axial: Axial):
    few = ["--samples", 0, "--validate-on", 1, "--training.batch-size", 2]
    assert axial("train", "digits", *TINY, *few, "--training.steps", 1, "--out", "run").status == 0
    assert "last resumed by" not in axial("inspect", "run").out
    for steps in (2, 3):
        assert axial("train", "run", "--training.steps", steps).status == 0
    begun, resumed = f"axial train digits {' '.join(TINY)}", "axial train run --training.steps 3"
    rows = axial("inspect", "run").out
    assert re.search(rf"command +{re.escape(begun)}", rows, re.MULTILINE)
    assert re.search(rf"last resumed by +{re.escape(resumed)}$", rows, re.MULTILINE)
    page = Path("run/index.html").read_text()
    assert begun in page
    assert resumed in page
    facts = json.loads(axial("inspect", "run", "--json").out)["facts"]
    assert (facts["command"][:2], " ".join(facts["resumed_by"])) == (
        ["train", "digits"],
        resumed.removeprefix("axial "),
    )
