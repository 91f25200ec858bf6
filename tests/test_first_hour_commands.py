"""A stranger's first hour: mistakes on the command line, its words, its progress, and the options that it offers."""

import csv
import json
import os
import shlex
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.cli.completion import parser_of
from axial_transformers.cli.parsing import in_options
from axial_transformers.progress import Bar, bar
from axial_transformers.storage.files import folder_written_whole, require_place, written_whole
from conftest import Axial
from small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def gray(home: Path) -> str:
    """A pretrained model of 4x4 gray pictures, without data of its own, and pictures of another size."""
    random_model(small_config((4, 4), num_values=256)).float().save_pretrained("model")
    Path("large photos").mkdir()
    for i, width in enumerate((8, 12)):
        pixels = np.random.default_rng(i).integers(0, 256, (8, width), dtype=np.uint8)
        Image.fromarray(pixels).save(f"large photos/{i}.png")
    return "model"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("train digits --training.stpes 5", "Unknown option: --training.stpes. Did you mean --training.steps?"),
        ("train digits --steps 5", "Unknown option: --steps. Did you mean --training.steps?"),
        ("train digits --model.dim x", 'Invalid value for --model.dim: unable to convert "x" into int.'),
        ("train digits --model.dim", "Parameter --model.dim requires an argument."),
        (
            "train digits --training.time-limit=x",
            'Invalid value for --training.time-limit: unable to convert "x" into float.',
        ),
        (
            "train digits --data.fit z",
            'Invalid value "z" for --data.fit. Choose from: "exact", "crop", "stretch", "tiles".',
        ),
        ("train digits --model.heads 7", "dim 64 must be a multiple of heads 7"),
        ("train digits --data.fit crop", "--data.fit crop needs a size, for example --data.size 32"),
        ("train digits --data.stride 0", "--data.stride must be at least 1, not 0"),
        (
            f"train digits --training.steps {'9' * 400}",
            f"--training.steps must be at most 1,000,000,000, not {'9' * 18}...{'9' * 19}",
        ),
        ("train digits --training.time-limit 1e300", "--training.time-limit must be at most 1,000,000,000, not 1e+300"),
        ("train digits --samples 1000000000", "--samples must be at most 10,000, not 1,000,000,000"),
        ("evaluate", "missing: MODEL"),
        ("evaluate a b c", "unexpected word 'c': quote what holds blanks, and begin options with --"),
        ("sample --cuont 5", "Unknown option: --cuont. Did you mean --count?"),
        ("sample runs/x --count many", 'Invalid value for --count: unable to convert "many" into int.'),
        ("score runs/x --qwertz", "Unknown option: --qwertz."),
        ("inspect digits --model.dimm 3", "Unknown option: --model.dimm. Did you mean --model.dim?"),
        ("demo --stpes 3", "Unknown option: --stpes. Did you mean --steps?"),
        (
            "compress a b c --other-sizes cut",
            'Invalid value "cut" for --other-sizes. Choose from: "auto", "refuse", "tile".',
        ),
        ("decompress a b c --salvge", "Unknown option: --salvge. Did you mean --salvage?"),
        ("import-official x", "Parameter --output requires an argument."),
        ("complete x --rows 1 --onyl 3", "Unknown option: --onyl. Did you mean --only?"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(axial: Axial, argv, says):
    words = argv.split()
    assert axial(*words) == (2, "", f"axial {words[0]}: {says}\n")


def test_names_of_arguments_are_written_as_options_of_the_command():
    train, sample, decompress = (
        parser_of(name).assemble_argument_collection() for name in ("train", "sample", "decompress")
    )
    assert in_options("use fit=crop, fit=stretch or fit=tiles", train) == (
        "use --data.fit crop, --data.fit stretch or --data.fit tiles"
    )
    assert in_options("choose one with key=", train) == "choose one with --data.key"
    assert in_options("tensorboard=True needs an extra", train) == "--training.tensorboard needs an extra"
    assert in_options("top_p and compile=False", sample) == "--top-p and --no-compile"
    assert in_options("use fit=crop", decompress) == "use fit=crop"
    for text in ("my/fit=crop/x.png", "/a/top_p/b", "top_p.png", "what rows must be said"):
        assert in_options(text, sample) == text


def test_a_pretrained_model_scores_pictures_of_other_sizes(axial: Axial, gray):
    refused = axial("score", gray, "large photos")
    assert refused.status == 2
    assert "--data.fit tiles" in refused.err
    for size in ([], ["--data.size", 4]):
        done = axial("score", gray, "large photos", "--data.fit", "tiles", *size)
        assert done.status == 0, done.err
    rows = list(csv.DictReader(done.out.splitlines()))
    assert len(rows) == 4 + 6
    for picture in ("0.png", "1.png"):
        tiles = [row for row in rows if row["name"].startswith(picture)]
        mean = np.mean([float(row["bits_per_dim"]) for row in tiles])
        assert all(float(row["picture_bits_per_dim"]) == pytest.approx(mean, abs=1e-5) for row in tiles)
    done = axial("evaluate", gray, "large photos", "--data.fit", "crop", "--json")
    assert json.loads(done.out)["images"] == 2
    out = ["--output", "c.npz", "--count", 1]
    done = axial("complete", gray, "large photos", "--data.fit", "stretch", "--rows", 2, *out)
    assert done.status == 0, done.err


def test_a_limit_takes_examples_from_all_over_the_data(axial: Axial, gray):
    values = np.arange(10, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    np.save("data.npy", values)
    rows = list(csv.DictReader(axial("score", gray, "data.npy", "--limit", 3).out.splitlines()))
    assert {row["name"] for row in rows} == {"0", "3", "6"}
    assert json.loads(axial("evaluate", gray, "data.npy", "--limit", 3, "--json").out)["of_images"] == 10
    assert "3 of 10" in axial("evaluate", gray, "data.npy", "--limit", 3).out
    assert axial("score", gray, "data.npy", "--limit", 0).err == "axial score: --limit must be at least 1, not 0\n"


def test_chosen_examples_are_completed(axial: Axial, gray):
    values = np.arange(10, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    np.save("data.npy", values)
    done = axial("complete", gray, "data.npy", "--rows", 4, "--count", 1, "--output", "c.npz", "--only", 7, 3)
    assert done.status == 0, done.err
    assert np.load("c.npz")["images"][:, 0, 0].ravel().tolist() == [7, 3]
    assert "positions 0 to 9" in axial("complete", gray, "data.npy", "--rows", 4, "--only", 10).err


def test_classes_are_named(axial: Axial, gray):
    random_model(small_config((8, 8), num_values=17, num_classes=10)).float().save_pretrained("classes")
    for verb in (["sample", "--count", 1], ["complete", "digits", "--rows", 4, "--examples", 1, "--count", 1]):
        argv = [verb[0], "classes", *verb[1:], "--output", "x.png"]
        assert axial(*argv, "--label", 7).status == 0, axial(*argv, "--label", 7).err
        assert "--label cat: the classes are 0 to 9" in axial(*argv, "--label", "cat").err
        assert "trained without classes" in axial(verb[0], gray, *verb[1:], "--label", 1).err


def test_a_completion_that_is_not_exact_offers_a_command_that_works(axial: Axial):
    random_model(small_config((4, 4), channels=3, encoder_layers=2)).float().save_pretrained("my model")
    np.save("data.npy", np.zeros((1, 4, 4, 3), np.uint8))
    argv = ["complete", "my model", "data.npy", "--rows", 2, "--count", 1, "--output", "c.npz"]
    status, _, err = axial(*argv)
    assert (status, err.count("\n"), Path("c.npz").exists()) == (2, 1, False)
    words = shlex.split(err[err.rindex("axial complete") :])
    assert words == ["axial", *map(str, argv), "--approximate"]
    assert axial(*words[1:]).status == 0


@pytest.mark.parametrize("name", ["taken", "file/below.csv"])
def test_an_output_is_checked_before_the_work(axial: Axial, home, name):
    Path("file").write_text("")
    Path("taken/x").mkdir(parents=True)
    before = sorted(home.rglob("*"))
    heat_maps = ["score", "nowhere", "--heat-maps", "taken"]
    for argv in (["import-official", "nowhere", "--output", name], ["decompress", "m", "nowhere", name], heat_maps):
        status, _, err = axial(*argv)
        assert status == 2
        assert "taken exists already" in err or "Not a directory" in err
    assert sorted(home.rglob("*")) == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_an_output_that_may_not_be_written_is_named(home):
    home.chmod(0o500)
    with pytest.raises(PermissionError, match="no permission to write into"):
        require_place("x/y.csv")
    for writing in (written_whole, folder_written_whole):
        with pytest.raises(PermissionError) as caught, writing("name.png"):
            pass
        assert caught.value.filename == "name.png"


@pytest.mark.parametrize("verb", ["sample", "complete"])
def test_data_that_another_process_has_written_meanwhile_is_not_replaced(axial: Axial, gray, monkeypatch, verb):
    np.save("data.npy", np.zeros((2, 4, 4), np.uint8))

    def meanwhile(*_: object):
        Path("drawn.npz").write_text("another's")
        return iter

    monkeypatch.setattr(f"axial_transformers.cli.{verb}.bar", meanwhile)
    words = {"sample": [], "complete": ["data.npy", "--rows", 2]}[verb]
    done = axial(verb, gray, *words, "--count", 1, "--output", "drawn.npz")
    assert done == (2, "", f"axial {verb}: drawn.npz exists already: give another path, or remove it first\n")
    assert Path("drawn.npz").read_text() == "another's"


def test_errors_name_the_target_and_no_temporary_file(home):
    for writing in (written_whole, folder_written_whole):
        for make in (
            lambda aside: FileNotFoundError(2, "No such file", str(aside)),
            lambda aside: ValueError(f"cannot write {aside}"),
            lambda aside: OSError(28, "No space left"),
        ):
            with pytest.raises((OSError, ValueError)) as caught, writing("name.png") as aside:
                raise make(aside)
            assert "name.png" in str(caught.value)
            assert ".part" not in str(caught.value)
            assert "None" not in str(caught.value)


def test_progress_keeps_steps_and_time_left_on_narrow_terminals(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    figures = f"1:02:03 left  3.210 bits/dim  12.3 steps/s{'  more figures' * 9}"
    with Bar("training") as display:
        display.start(1_000_000)
        display.update(123_456, figures)
        for _ in bar("validation pictures")(range(2)):
            time.sleep(0.2)  # the screen is drawn ten times a second
    shown = capsys.readouterr().err
    assert "123456/1000000" in shown
    assert "1:02:03 left" in shown
    assert "0/2" in shown
    assert "more figures  more figures" not in shown


def test_a_part_without_examples_is_told_in_options_that_the_verb_has(axial: Axial):
    random_model(small_config((3, 4), num_values=256)).float().save_pretrained("model")
    np.save("data.npy", np.zeros((9, 3, 4), np.uint8))
    for verb in ("evaluate", "score"):
        refused = axial(verb, "model", "data.npy", "--split", "test")
        assert refused.status == 2
        assert refused.err.endswith(
            "data.npy has no test examples (it states train): take --split all, or other data\n"
        )
