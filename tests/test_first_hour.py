"""The first hour of a newcomer with data of their own: everything is said at the start, and nothing is lost."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from axial_transformers import recipes
from axial_transformers.cli import INTERRUPTED
from axial_transformers.data import DataConfig, Examples, load
from axial_transformers.models import AxialTransformer
from axial_transformers.planning import machine
from axial_transformers.planning.machine import Machine
from axial_transformers.planning.plan import CHANGEABLE, Plan, plan
from axial_transformers.training import TrainResult, read_run
from axial_transformers.training.metrics import read_curves
from conftest import TINY, Axial
from small_models import random_model, small_config

GIGABYTE = 10**9
QUICK = ["--training.steps", "1", "--training.batch-size", "2", "--training.log-every", "1"]


pytestmark = pytest.mark.usefixtures("home")


def arrays(path: Path, shape: tuple[int, ...] = (12, 6, 4, 3)) -> Path:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(path, images=values, labels=np.arange(shape[0]) % 2)
    return path


def lines_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def large(gigabytes: float) -> Plan:
    """Of the model that photographs of 256x256 pixels get: about 53 GB."""
    examples = Examples(np.broadcast_to(np.uint8(0), (9, 256, 256, 3)), [""] * 9)
    recipe = recipes.custom(examples)
    return plan(recipe.model, recipe.training, examples, Machine(device="cpu", memory=gigabytes))


def test_what_is_made_up_for_the_data_fits_into_the_memory_and_says_so(axial: Axial, tmp_path, monkeypatch):
    wanted = large(20)
    by_parts = wanted.fitted(CHANGEABLE)
    assert by_parts.training.accumulate > 1
    assert (by_parts.model, by_parts.training.batch_size) == (wanted.model, wanted.training.batch_size)
    smaller = large(2).fitted(CHANGEABLE)
    assert smaller.training.checkpoint_blocks
    assert smaller.model.dim < wanted.model.dim

    arrays(tmp_path / "photos.npz")
    monkeypatch.setattr(machine, "free_memory", lambda device, whole: 208_000_000)
    trained = []

    def train(model, examples, config, *folder, **options):
        trained.append(config)
        return TrainResult(ending="interrupted", step=0, seconds=0.0, best_step=None, best_bits_per_dim=None)

    monkeypatch.setattr("axial_transformers.cli.train.train", train)
    status, _, err = axial("train", "photos.npz")
    assert status == INTERRUPTED, err
    assert "a training step would need about" in err
    assert "set --training.accumulate" in err
    assert trained[0].accumulate > 1


def test_a_users_own_choice_that_does_not_fit_is_refused_with_what_would(axial: Axial, tmp_path, monkeypatch):
    arrays(tmp_path / "photos.npz")
    monkeypatch.setattr(machine, "free_memory", lambda device, whole: 208_000_000)
    status, _, err = axial("train", "photos.npz", "--training.accumulate", "1", "--training.no-checkpoint-blocks",
                           "--model.dim", "128", "--training.steps", "1")  # fmt: skip
    assert (status, err.count("\n")) == (2, 1)
    assert "GB are free for it here: --training.accumulate" in err
    assert "would fit" in err
    monkeypatch.setattr(machine, "free_memory", lambda device, whole: 40 * GIGABYTE)
    status, _, err = axial("train", "imagenet64", "photos.npz", "--data.size", "64")
    assert status == 2  # of another shape, which is said before sizes are
    assert not (tmp_path / "runs").exists()


def test_the_plan_is_on_the_screen_and_in_the_record(axial: Axial, tmp_path):
    arrays(tmp_path / "photos.npz", (40, 6, 4, 3))
    status, _, err = axial("train", "photos.npz", *TINY, *QUICK, "--samples", "1", "--validate-on", "3")
    assert status == 0
    assert max(len(line) for line in err.splitlines() if "compiling kernels" not in line) <= 80
    words = " ".join(err.split())
    for said in (
        "36 train, 4 validation (3 are evaluated), no test part",
        "height 6 x width 4, 3 channels (red, green, blue), values 0..255",
        "classes 2: 0, 1",
        "layout columns",
        "completion exact with --rows; with --channels, add --approximate",
        "memory about",
        "steps 1, ",
        "--data.size",
    ):
        assert said in words
    record = json.loads((tmp_path / "runs/photos/train.json").read_text())
    found = record["about"]["summary"]
    assert (found["train"], found["validation"], found["test"]) == (36, 4, None)
    assert found["parameters"] > 0
    assert found["memory_bytes"] > 0


def test_every_source_that_is_given_counts_or_is_refused(axial: Axial, tmp_path):
    for name in ("a.npz", "b.npz"):
        arrays(tmp_path / name)
    for words in (["a.npz", "b.npz"], ["photos32", "a.npz", "b.npz"]):
        status, _, err = axial("train", *words)
        assert (status, err.count("\n")) == (2, 1)
        assert "takes one source, and b.npz is one more" in err
    assert not (tmp_path / "runs").exists()


def test_a_run_goes_on_with_its_data_moved_and_with_no_other(axial: Axial, tmp_path):
    arrays(tmp_path / "a.npz")
    run = tmp_path / "runs/a"
    own = ["--samples", "1", "--validate-on", "1"]
    assert axial("train", "a.npz", *TINY, *QUICK, *own).status == 0
    shutil.move(tmp_path / "a.npz", tmp_path / "moved.npz")
    status, _, err = axial("train", run)
    assert (status, err.count("\n")) == (2, 1)
    assert "a.npz, is gone: name its new place after the folder" in err
    arrays(tmp_path / "other.npz", (14, 6, 4, 3))
    before = (run / "train.json").read_bytes()
    status, _, err = axial("train", run, "other.npz", "--training.steps", "2")
    assert (status, err.count("\n")) == (2, 1)
    assert "other.npz holds other training examples" in err
    assert (run / "train.json").read_bytes() == before
    assert axial("train", run, "moved.npz", "--training.steps", "2").status == 0
    record = read_run(run)
    assert record is not None
    assert record.about is not None
    assert record.about.source == str(tmp_path / "moved.npz")
    assert (record.about.samples, record.about.validate_on, record.training.steps) == (1, 1, 2)
    assert record.about.summary is not None


@pytest.mark.usefixtures("home")
def test_known_channels_are_refused_by_a_model_that_has_none(axial: Axial, trained: Path):
    status, _, err = axial("sample", trained, "--known", "digits", "--count", 1)
    assert (status, err.count("\n")) == (2, 1)
    assert "has no known channels" in err


def test_a_short_run_warms_up_for_a_share_of_it_unless_told_otherwise(axial: Axial, tmp_path):
    arrays(tmp_path / "a.npz")
    short = ["--training.steps", "16", "--training.batch-size", "1", "--training.log-every", "1", "--samples", "1"]
    assert axial("train", "a.npz", *TINY, *short).status == 0
    rates = [line["learning_rate"] for line in lines_of(tmp_path / "runs/a") if "learning_rate" in line]
    peak = recipes.custom(Examples(np.zeros((1, 6, 4, 3), np.uint8), [""])).training.learning_rate
    assert rates[1] == peak
    assert rates[-1] < 0.1 * peak
    assert axial("train", "a.npz", *TINY, *QUICK, "--training.warmup-steps", "4", "--out", "b").status == 0
    assert lines_of(tmp_path / "b")[0]["learning_rate"] == peak / 4


def test_of_several_processes_on_a_machine_the_first_one_speaks(axial: Axial, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert axial("train", "nothing-here") == (2, "", "")
    monkeypatch.setenv("LOCAL_RANK", "0")
    status, _, err = axial("train", "nothing-here")
    assert (status, err.count("\n")) == (2, 1)


def test_data_of_more_axes_than_pictures_show_is_trained_without_pictures(axial: Axial, tmp_path):
    values = np.random.default_rng(0).integers(0, 3, (12, 2, 3, 2, 2, 1), dtype=np.uint8)
    np.save(tmp_path / "grids.npy", values)
    status, _, err = axial("train", "grids.npy", *TINY[:4], *QUICK, "--validate-on", 2)
    assert (status, "none: samples of one to three axes are drawn" in err) == (0, True), err
    assert not list((tmp_path / "runs/grids").glob("**/*.png"))
    assert axial("sample", "runs/grids", "--count", 2, "--output", "more.npz").status == 0


def test_a_run_below_its_pictures_is_no_part_of_the_data(axial: Axial, tmp_path, monkeypatch):
    pictures(tmp_path / "mine", [(8, 8)] * 8)
    monkeypatch.chdir(tmp_path / "mine")
    assert axial("train", ".", *TINY, *QUICK, "--validate-on", 2, "--samples", 1).status == 0
    assert list((tmp_path / "mine/runs/mine").glob("**/*.png"))
    with pytest.warns(UserWarning, match="mine is a run of axial train"):
        assert len(load(tmp_path / "mine", DataConfig(), "all")) == 8
    status, _, err = axial("train", "runs/mine", "--training.steps", 2)
    assert status == 0, err


def test_pictures_of_one_size_but_turned_are_cut_into_tiles(axial: Axial, tmp_path):
    """As pictures of different sizes are: cameras note a turn in place of making it."""
    pictures(tmp_path / "turned", [(48, 64)] * 8, turned=True)
    status, _, err = axial("train", "turned", *TINY, *QUICK, "--validate-on", 2, "--samples", 1)
    assert (status, "tiles" in err) == (0, True), err


def test_output_replaces_no_file_of_the_data(axial: Axial, tmp_path):
    arrays(tmp_path / "mine.npz")
    assert axial("train", "mine.npz", *TINY[:4], *QUICK, "--validate-on", 2, "--samples", 1).status == 0
    before = (tmp_path / "mine.npz").read_bytes()
    status, _, err = axial("complete", "runs/mine", "mine.npz", "--rows", 2, "--output", "mine.npz")
    assert (status, "--output mine.npz is a file of the data" in err) == (2, True)
    assert (tmp_path / "mine.npz").read_bytes() == before


def test_a_run_of_more_steps_than_are_asked_for_keeps_its_record(axial: Axial, tmp_path):
    arrays(tmp_path / "mine.npz")
    two = [*QUICK[2:], "--training.steps", "2", "--samples", "1"]
    assert axial("train", "mine.npz", *TINY[:4], *two).status == 0
    before = (tmp_path / "runs/mine/train.json").read_bytes()
    status, _, err = axial("train", "runs/mine", "--training.steps", 1)
    assert (status, "has made 2 steps already, more than --training.steps 1" in err) == (2, True), err
    assert (tmp_path / "runs/mine/train.json").read_bytes() == before


def test_json_of_one_image_is_json(axial: Axial, tmp_path):
    arrays(tmp_path / "mine.npz")
    assert axial("train", "mine.npz", *TINY[:4], *QUICK, "--validate-on", 2, "--samples", 1).status == 0
    np.save(tmp_path / "one.npy", np.zeros((1, 6, 4, 3), np.uint8))
    _, out, _ = axial("evaluate", "runs/mine", "one.npy", "--split", "all", "--json")
    assert json.loads(out, parse_constant=pytest.fail)["standard_error"] is None


def test_output_replaces_no_data_whatever_it_is_of(axial: Axial, tmp_path):
    """Arrays and lossless movies, as archives and folders; a grid, which is only looked at, is drawn anew."""
    arrays(tmp_path / "other.npz")
    random_model(small_config((4, 4))).float().save_pretrained("model")
    before = (tmp_path / "other.npz").read_bytes()
    np.save(tmp_path / "data.npy", np.zeros((1, 4, 4), np.uint8))
    for words in (["sample", "model"], ["complete", "model", "data.npy", "--rows", 2]):
        status, _, err = axial(*words, "--count", 1, "--output", "other.npz")
        assert (status, err.count("\n"), "--output other.npz exists already" in err) == (2, 1, True)
        assert (tmp_path / "other.npz").read_bytes() == before
        for _ in range(2):
            assert axial(*words, "--count", 1, "--output", "grid.png").status == 0
    random_model(small_config((2, 4, 4), num_values=256)).float().save_pretrained("clips")
    (tmp_path / "holiday.mkv").write_bytes(b"mine")
    assert axial("sample", "clips", "--count", 1, "--output", "holiday.mkv").status == 2
    assert (tmp_path / "holiday.mkv").read_bytes() == b"mine"


def test_figures_of_one_validation_example_are_json(axial: Axial, tmp_path):
    arrays(tmp_path / "mine.npz")
    assert axial("train", "mine.npz", *TINY[:4], *QUICK, "--validate-on", 1, "--samples", 1).status == 0
    lines = (tmp_path / "runs/mine/metrics.jsonl").read_text().splitlines()
    figures = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [line["validation_standard_error"] for line in figures if "validation_bits_per_dim" in line] == [None]
    assert len(read_curves(tmp_path / "runs/mine")["validation_bits_per_dim"]) == 1


def test_out_that_is_a_file_is_told_so(axial: Axial, tmp_path):
    arrays(tmp_path / "mine.npz")
    before = (tmp_path / "mine.npz").read_bytes()
    status, _, err = axial("train", "mine.npz", *TINY[:4], *QUICK, "--out", "mine.npz")
    assert (status, err.splitlines()[-1]) == (
        2,
        "axial train: mine.npz exists already, and is no folder: give another one",
    )
    assert (tmp_path / "mine.npz").read_bytes() == before


def test_pictures_of_other_colours_are_to_be_read_in_the_models(axial: Axial, tmp_path):
    """Fitting them to its size would not help; where both differ, both are named."""
    random_model(small_config((8, 8), num_values=256)).float().save_pretrained("gray")
    random_model(small_config((8, 8), 3, num_values=256)).float().save_pretrained("colour")
    pictures(tmp_path / "mixed", [(8, 8)] * 4)
    for name in ("0.jpg", "2.jpg"):
        Image.open(tmp_path / "mixed" / name).convert("L").save(tmp_path / "mixed" / name)
    status, _, err = axial("evaluate", "gray", "mixed")
    assert (status, err.count("\n"), "--data.fit" in err) == (2, 1, False)
    assert err.endswith("the model is of [8, 8, 1]; pictures are fitted to it with --data.mode gray\n")
    assert axial("evaluate", "gray", "mixed", "--data.mode", "gray").status == 0
    assert "fitted to it with --data.mode rgb\n" in axial("evaluate", "colour", "mixed", "--data.mode", "gray").err
    pictures(tmp_path / "large", [(9, 9)] * 4)
    err = axial("evaluate", "gray", "large").err
    assert "with --data.fit crop, --data.fit stretch or --data.fit tiles and --data.mode gray\n" in err
    err = axial("train", "fashion_mnist", "mixed", "--data.size", 28, "--data.fit", "stretch").err
    assert "fit pictures with --data.mode gray, or let the model follow the data" in err


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [
        (0, 1, "(x * 255)"),
        (0, 255, "x"),
        (3, 7.5, "x"),
        (-1, 1, "np.interp(x, (-1, 1), (0, 255))"),
        (-0.5, 4000, "np.interp(x, (-0.5, 4000), (0, 255))"),
    ],
)
def test_advice_about_floats_makes_bytes_of_the_range_that_they_have(tmp_path, low, high, advice):
    x = np.linspace(low, high, 4 * 6 * 5).reshape(4, 6, 5).astype(np.float32)
    np.save(tmp_path / "floats.npy", x)
    with pytest.raises(ValueError, match="integers are modelled") as refused:
        load(tmp_path / "floats.npy")
    said, expression = str(refused.value).split("as by ")
    assert f"holds float32 values {low}..{high}: " in said
    assert expression == f"{advice}.round().astype(np.uint8)"
    found = eval(expression, {"np": np, "x": x})
    assert (found.dtype, found.shape) == (np.uint8, x.shape)
    assert (np.diff(found.ravel().astype(int)) >= 0).all()


def test_many_floats_are_refused_before_they_are_read(tmp_path, monkeypatch):
    np.save(tmp_path / "floats.npy", np.zeros((4, 6, 5), np.float32))
    monkeypatch.setattr("axial_transformers.data.arrays._SOON_READ", 119)
    monkeypatch.setattr("axial_transformers.data.arrays.read_array", lambda *_: pytest.fail("the array was read"))
    with pytest.raises(ValueError, match=r"holds float32 values: quantise them"):
        load(tmp_path / "floats.npy")


def test_floats_that_are_not_finite_are_to_be_replaced(tmp_path):
    for wrong in (np.nan, np.inf):
        np.save(tmp_path / "floats.npy", np.full((4, 6, 5), wrong, np.float32))
        with pytest.raises(ValueError, match="put finite numbers in place of NaN and infinity"):
            load(tmp_path / "floats.npy")


def test_what_a_single_example_lacks_is_another_one(axial: Axial, tmp_path):
    for name in ("a", "b"):
        pictures(tmp_path / name, [(8, 8)])
    pictures(tmp_path / "tiles", [(64, 64)])
    np.save(tmp_path / "one.npy", np.zeros((1, 4, 4), np.uint8))
    for seed in range(8):  # by which a single picture trains, validates or tests
        for name in ("a", "b", "tiles"):
            status, _, err = axial("train", name, *QUICK, "--data.seed", seed)
            assert (status, err.count("\n")) == (2, 1), err
            assert "one file cannot both train and validate, give two or more" in err
    status, _, err = axial("train", "one.npy", *QUICK)
    assert (status, err.count("\n")) == (2, 1)
    assert err.endswith("one example cannot both train and validate, give two or more\n")


@pytest.mark.filterwarnings("always:the validation part of:UserWarning")
def test_a_part_that_is_small_is_to_be_enlarged_by_an_option_of_train(axial: Axial, tmp_path):
    """Whichever verb says so: evaluate has no such option."""
    random_model(small_config((6, 6), 3, num_values=256)).float().save_pretrained("model")
    arrays(tmp_path / "mine.npz", (12, 6, 6, 3))
    status, _, err = axial("evaluate", "model", "mine.npz", "--split", "validation")
    assert (status, err.count("train with a larger --data.validation-fraction, or with more data")) == (0, 1)
    pictures(tmp_path / "train", [(6, 6)] * 12)
    status, _, err = axial("evaluate", "model", "train", "--split", "validation")
    assert (status, err.count("or train with --data.validation-fraction and --data.test-fraction")) == (0, 1)


def pictures(folder: Path, sizes: list[tuple[int, int]], turned: bool = False) -> None:
    """Random pictures of given widths and heights; `turned`: every second one is to be shown by a quarter turn."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for i, (width, height) in enumerate(sizes):
        picture = Image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8))
        exif = picture.getexif()
        exif[ExifTags.Base.Orientation] = 6 if turned and i % 2 else 1
        picture.save(folder / f"{i}.jpg", exif=exif)


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
    with pytest.raises(ValueError, match="is no name in UTF-8"):
        AxialTransformer.from_pretrained(trained).save_pretrained(tmp_path / os.fsdecode(b"model\xff"))
    assert axial("train", folder, *options, tmp_path / "run").status == 0
    for name in ("scores.csv", "scores.json"):
        done = axial("score", tmp_path / "run", folder, "--output", tmp_path / name)
        assert done.status == 0, done.err
        assert r"3\udcff.png" in (tmp_path / name).read_text(encoding="utf-8")
