"""Bad input of all commands, in one process: one clear line, status 2, nothing written, little memory."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cyclopts import Argument
from PIL import Image

from axial_transformers.cli.parsing import COMMANDS, app
from tests.conftest import Axial, Refused
from tests.paths import DATA
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("at_most_a_gigabyte_more")

OFFICIAL = DATA / "official_c"
AWKWARD = "[/x] [old]\x1b[31m\nö"

READING = {
    "data.size": "0", "data.fit": "oval", "data.frames": "0", "data.stride": "0", "data.mode": "cmyk",
    "data.background": "red",
    "data.axes": "HH", "data.key": "train pair.npz --data.key none", "data.skip-bad": "-1",
}  # fmt: skip
OPENING = {"weights": "new", "device": "tpu"}
SHADES = {"palette": "blue", "window": "2 1"}
SAMPLING = SHADES | {"scale": "0", "fps": "0", "seed": "x", "temperature": "-1", "label": "2", "precision": "half"}

WRONG: dict[str, dict[str, str]] = {
    "train": READING | {
        "samples": "-1", "validate-on": "0",
        "data.offsets": "some", "data.palette": "blue",
        "data.validation-fraction": "1", "data.test-fraction": "-1", "data.seed": "x",
        "data.num-values": "1", "data.grid": "0 0", "model.grid": "0 0",
        "model.shape": "0", "model.channels": "0", "model.num-values": "1", "model.num-classes": "0",
        "model.known-channels": "-1", "model.layout": "none",
        "model.lowest": "-3000000000", "model.values": "some", "model.mixtures": "0", "model.centred": "",
        "model.max-log-precision": "6",
        "model.dim": "0", "model.heads": "7", "model.mlp-ratio": "0",
        "model.encoder-layers": "-1", "model.outer-layers": "1", "model.inner-layers": "0", "model.inner": "none",
        "model.channel-planes": "none", "model.input-divisor": "0", "model.convolution": "9", "model.dropout": "1",
        "model.rotary": "1",
        "training.steps": "9" * 400, "training.batch-size": "0", "training.accumulate": "7",
        "training.optimizer": "sgd", "training.head-learning-rate": "0",
        "training.learning-rate": "0", "training.muon-learning-rate": "0", "training.muon-weight-decay": "1",
        "training.warmup-steps": "-1", "training.longest-warmup": "-1", "training.schedule": "none",
        "training.betas": "1 1", "training.clip-norm": "0", "training.ema-decay": "1",
        "training.precision": "float16", "training.compile": "gpu", "training.distribution-augmentation": "1",
        "training.shift-augmentation": "1", "training.label-dropout": "1", "training.seed": "-1",
        "training.device": "tpu", "training.workers": "-1", "training.log-every": "0",
        "training.evaluate-every": "0", "training.sample-every": "0", "training.save-every": "0",
        "training.minutes": "1e300", "training.shard": "",
    },
    "demo": {"steps": "0"},
    "evaluate": READING | OPENING | {
        "split": "some", "limit": "0", "given-frames": "4", "batch-size": "0", "precision": "half",
    },
    "sample": READING | OPENING | SAMPLING | {
        "output": "a_b=c.txt", "count": "0", "top-k": "0", "top-p": "2", "known": "digits",
    },
    "complete": READING | OPENING | SAMPLING | {
        "split": "some", "rows": "9", "channels": "complete model photos.npz --channels 9",
        "frames": "complete model photos.npz --frames 9", "mask": "complete model photos.npz --mask mask.npy",
        "examples": "0", "count": "0", "output": "a.txt",
    },
    "score": READING | OPENING | SHADES | {
        "split": "some", "rank-by": "png", "output": "a.txt", "top": "0", "limit": "0", "batch-size": str(10**100),
        "precision": "half", "flag": "2",
    },
    "studio": READING | OPENING | {"port": "0"},
    "compress": {"other-sizes": "none", "weights": "new", "data.size": "large"},
    "decompress": {"most-values": "x", "weights": "new"},
    "import-official": {"heads": "x", "channels": "x"},
}  # fmt: skip
"""A wrong value of each option; or the whole call, where it is wrong with other words only."""

COLUMNS = " data.column data.label-column"
RIGHT = {
    "train": (
        "data.column data.label-column out resume from training.deterministic training.horizontal-flip "
        "training.as-released training.checkpoint-blocks training.tensorboard training.wandb"
    ),
    "demo": "out", "evaluate": "labels json" + COLUMNS, "sample": "compile" + COLUMNS,
    "complete": "approximate only compile" + COLUMNS, "score": "heat-maps against typical" + COLUMNS,
    "studio": "host" + COLUMNS,
    "compress": "embed fit force from drop-header verify compare json",
    "decompress": "salvage only", "import-official": "output raw verify", "inspect": "dependencies json",
    "push": "private revision licence dry-run", "recipes": "", "doctor": "",
}  # fmt: skip
"""Options of which no value is wrong by itself: flags, files, names."""

WORDS = {
    "train": "digits", "demo": "", "evaluate": "model photos.npz", "sample": "model",
    "complete": "model photos.npz --rows 1", "score": "model photos.npz", "studio": "model",
    "compress": "photos.npz a.axl", "decompress": "model a.axl restored",
    "import-official": "checkpoint --output converted",
}  # fmt: skip

CALLS = {
    # words of the command line
    "evaluate": "parameter --model requires an argument",
    "evaluate a b c": "Unused Tokens: ['c']",
    "evalute runs/digits": 'Unknown command "evalute". Did you mean "evaluate"?',
    "train digits --training.stpes 5": "Unknown option: --training.stpes. Did you mean --training.steps?",
    "train digits --model.dim x": 'Invalid value for --model.dim: unable to convert "x" into int.',
    "train digits --data {}": "--data takes no value: give each setting by its name",
    "train --training.steps 3": "a recipe or a source comes first",
    "inspect --json": "Parameter --name requires an argument",
    "decompress a.axl": "parameter --archive requires an argument",
    "import-official x": "--output requires an argument",
    # recipes, sources, runs
    "train imagnet32": "no recipe, folder or file 'imagnet32'; the recipes are digits, ",
    "train imagenet32": "axial train imagenet32 FOLDER_OR_FILE",
    "train digits photos.npz": "[4, 4, 1]",
    "train a.npz photos.npz": "takes one source, and photos.npz is one more",
    "train photos32 photos.npz clips.npz": "takes one source, and clips.npz is one more",
    "sample runs/none": "runs/none: no such run, and no other yet: axial train digits makes one",
    "inspect model photos.npz": "model has its settings already: leave out photos.npz",
    "inspect nowhere.axl": "nowhere.axl",
    # data and settings
    "train clips.npz --data.offsets random --data.frames 2": "offsets",
    "train digits --data.fit tiles": "fit=tiles needs a size",
    "train pair.npz": "key",
    "train photos.npz --data.num-values 3": "num_values",
    "train photos.npz --data.mode rgb": "mode",
    "train digits --model.convolution 8 --model.shape 4 4 4 4": "convolution",
    "train digits --model.layout frames --model.shape 8": "frames",
    "train digits --model.dim 12 --model.rotary 9": "rotary",
    "train digits --training.device meta": "device",
    "train one.npy": "one example cannot both train and validate, give two or more",
    "train photos": "one file cannot both train and validate, give two or more",
    "train digits --out photos.npz": "photos.npz exists already, and is no folder",
    "train photos.npz --from model --training.steps x": "--training.steps",
    # models and what they read
    "evaluate cut digits": "model.safetensors: damaged or cut off",
    "sample cut": "model.safetensors: damaged or cut off",
    "evaluate broken digits": "config.json: not a model configuration",
    "sample frames": "needs frames and at least one more axis",
    "evaluate model clips.npz": "fit=crop",
    "evaluate model wide.npz": "values 900..900 of wide.npz, but the model knows 0..255",
    "evaluate model photos.npz --split test": "has no test examples",
    "evaluate model photos.npz --labels": "has no labels",
    "evaluate model photos.npz --given-frames 1": "not of clips",
    "evaluate clips clips.npz --given-frames 3": "0..1",
    "score model large --data.size 4": "large/1.png is 12x8 pixels, not 4x4",
    "score model photos.npz --flag 0.5": "--typical SOURCE",
    # sampling and completing
    f"sample model --label {1 << 99}": "label",
    "sample model --count 1000000000000": "would fit",
    "sample model --device cuda:99": "cuda:99",
    "sample model --device meta": "computes nothing",
    "sample model --weights raw": "no raw weights",
    "sample model --output samples.gif": "not of clips",
    "sample model --output samples.wmv": "samples.wmv",
    "sample model --output photos.npz": "photos.npz exists already",
    "complete model photos.npz": "exactly one of --mask, --rows, --channels and --frames",
    "complete model photos.npz --rows 1 --frames 1": "exactly one of --mask, --rows, --channels and --frames",
    "complete model photos.npz --rows 1 --count 1000000000000": "would fit",
    "complete model photos.npz --rows 1 --only 10": "positions 0 to 2",
    "complete model photos.npz --mask nowhere.npy": "nowhere.npy",
    # archives and checkpoints
    "compress photos.npz a.axl": "name MODEL, SOURCE and ARCHIVE; or SOURCE and ARCHIVE with --fit MINUTES",
    "compress photos.npz a.axl --fit 0": "minutes must be",
    "compress run photos.npz a.axl --fit 1": "leave out run, or begin with it: --from run",
    "compress model photos.npz a.axl --from run": "that --fit MINUTES trains: give that, too",
    "compress none.npz a.axl --fit 1": "none.npz",
    "compress model photos.npz photos.npz": "force",
    "compress model photos.npz new.axl --drop-header": "drop",
    "decompress model photos": "is a folder, and no archive: name archive and output",
    "decompress model photos.npz file/below.csv": "Not a directory",
    f"import-official {OFFICIAL} --output converted": "raw",
    f"import-official {OFFICIAL} --output converted --raw --heads 3": "dim 16 must be a multiple of",
    "import-official nowhere --output photos": "photos exists already",
    "score nowhere --heat-maps photos": "photos exists already",
}
"""Calls, and what their one line says."""


@pytest.fixture
def files(gray, monkeypatch) -> None:
    """Data and models, good and bad, in the working folder."""
    monkeypatch.setattr("axial_transformers.cli.studio.find_spec", bool)
    np.savez("photos.npz", np.full((3, 4, 4), 9, np.uint8))
    np.savez("clips.npz", np.zeros((3, 2, 8, 8, 1), np.uint8))
    np.savez("pair.npz", one=np.zeros((2, 4, 4), np.uint8), other=np.zeros((2, 4, 4), np.uint8))
    np.savez("wide.npz", np.full((3, 4, 4), 900, np.uint16))
    np.save("one.npy", np.zeros((1, 4, 4), np.uint8))
    np.save("mask.npy", np.ones((3, 3), bool))
    for name in ("a.npz", "file"):
        Path(name).write_text("")
    Path("large photos").rename("large")
    Path("photos").mkdir()
    Image.new("L", (4, 4), 9).save("photos/a.png")
    random_model(small_config((2, 8, 8), num_values=256)).float().save_pretrained("clips")
    for name in ("cut", "broken", "frames"):
        shutil.copytree("model", name)
    Path("cut/model.safetensors").write_bytes(Path("cut/model.safetensors").read_bytes()[:99])
    Path("broken/config.json").write_text("{")
    Path("frames/config.json").write_text('{"model": "axial_transformer", "shape": [4], "layout": "frames"}')


def names(home: Path) -> list[Path]:
    """The files of a home, but for caches."""
    return sorted(path for path in home.rglob("*") if "axial-transformers" not in path.parts)


@pytest.fixture
def refused(axial: Axial, home: Path) -> Refused:
    """The one line that a command leaves, having written nothing."""

    def run(*argv: object) -> str:
        before = names(home)
        status, out, err = axial(*argv)
        assert (status, out) == (2, ""), (status, out, err)
        line = err.splitlines()[-1]
        assert line.startswith(f"axial {argv[0]}: ")
        assert line.isprintable()
        assert len(line) < 1500
        assert names(home) == before
        return line

    return run


def options_of(command: str) -> list[Argument]:
    options = app()[command].assemble_argument_collection()
    own = [each for each in options if each.parse and each.index is None]
    return [each for each in own if each.name.startswith("--") and not each.children]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_wrong_value_or_none(command):
    listed = [*WRONG.get(command, ()), *RIGHT[command].split()]
    assert sorted(each.name for each in options_of(command)) == sorted(f"--{name}" for name in listed)


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_value_is_refused_with_the_name_of_the_option(refused, files, command):
    for option, value in WRONG[command].items():
        words = value if "--" in value else f"{command} {WORDS[command]} --{option} {value}"
        name = option.rpartition(".")[2].replace("-", "_")
        line = refused(*words.split())
        assert re.search(rf"(?<![a-z]){name}(?![a-z_])", line.replace("-", "_")), (words, line)


def test_what_is_wrong_is_said_in_one_line(refused, files):
    for words, says in CALLS.items():
        line = refused(*words.split())
        assert says in line, (words, line)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_a_command_lacks_is_refused(refused, command):
    recipe = ["digits"] * (command in ("train", "inspect"))
    assert refused(command, *recipe, "--qwertz") == f"axial {command}: Unknown option: --qwertz."


@pytest.mark.parametrize(
    "words",
    [["evaluate", "model", ""], ["compress", "model", "", "x.axl"], ["train", ""], ["train", "digits", "--out="]],
    ids=" ".join,
)
def test_a_word_that_an_unset_variable_left_empty_is_refused(refused, files, words):
    assert "a word is empty" in refused(*words)


def test_names_of_files_are_no_markup_and_no_control_characters(refused, files):
    nowhere = f"{AWKWARD}/nowhere"
    for argv in (
        ["train", nowhere], ["evaluate", nowhere], ["evaluate", "model", nowhere], ["sample", nowhere],
        ["sample", "model", "--output", "x.[y]"], ["complete", "model", "--mask", nowhere],
        ["compress", "model", nowhere, "b.axl"], ["decompress", "model", nowhere, "again"], ["inspect", nowhere],
        ["import-official", nowhere, "-o", "o"], ["sample", "--count", "[/x]"], ["train", "x", "--[/x]"],
    ):  # fmt: skip
        refused(*argv)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A pipe that nobody writes to; what reads it raises an error after ten seconds."""

    def give_up(*_: object) -> None:
        raise TimeoutError("reads a pipe")

    os.mkfifo(tmp_path / "pipe.npy")
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(10)
    yield tmp_path / "pipe.npy"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "words",
    ["evaluate model PIPE", "score model PIPE", "compress model PIPE x.axl", "decompress model PIPE x", "train PIPE",
     "complete model PIPE --rows 4", "inspect PIPE"],
)  # fmt: skip
def test_a_pipe_is_no_source(refused, files, pipe, words):
    assert "pipe.npy is no file and no folder" in refused(*words.replace("PIPE", str(pipe)).split())
