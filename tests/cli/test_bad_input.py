"""Bad input of all commands, in one process: one clear line, status 2, nothing written, little memory."""

import os
import re
import shutil
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import pytest
from PIL import Image

from axial_transformers.cli import COMMANDS, app
from tests.conftest import Axial, Refused
from tests.paths import DATA

pytestmark = pytest.mark.usefixtures("at_most_a_gigabyte_more")

OFFICIAL = DATA / "official_c"
AWKWARD = "[/x] [old]\x1b[31m\nö"

WORDS = {
    "train": "digits", "evaluate": "model photos.npz", "sample": "model", "complete": "model photos.npz --rows 1",
    "score": "model photos.npz", "studio": "model", "compress": "photos.npz a.axl",
    "decompress": "model a.axl restored", "demo": "",
    "import-official": "checkpoint --out converted", "push": "model a/b",
}  # fmt: skip
"""What a command needs besides an option."""

READING = ["data.size 0", "data.frames 0", "data.axes HH"]
SHADES = ["window 2 1"]
SAMPLING = [*SHADES, "scale 0", "temperature -1", "label 2", "count 0", "count 2.5", "output a_b=c.txt"]
WRONG: dict[str, list[str]] = {
    "train": [
        *READING, "data.stride 0", "data.validation-fraction 1", "data.grid 0 0", "data.skip-bad -1", "samples -1",
        "model.shape 0", "model.heads 0", "model.heads 7", "training.steps 1.5",
        "model.outer-layers 1", "model.known-channels -1", "model.lowest -3000000000",
        "model.centred", "model.max-log-precision 6", "model.gated-convolutions 9", "model.rotary 1", "model.dropout 1",
        "training.steps " + "9" * 400, "training.batch-size 0", "training.accumulate 7", "training.betas 1 1",
        "training.ema-decay 1", "training.device tpu", "training.compile gpu", "training.minutes 1e300",
        "training.shard",
    ],
    "demo": ["steps 0"],
    "evaluate": [*READING, "device tpu", "limit 0", "given-frames 4", "batch-size 0"],
    "sample": [*READING, *SAMPLING, "top-k 0", "top-p 2", "known digits"],
    "complete": [*READING, *SAMPLING, "examples 0", "rows 9"],
    "score": [*READING, *SHADES, "output a.txt", "top 0", f"batch-size {10**100}", "flag 2"],
    "studio": [*READING, "port 0"],
}  # fmt: skip
"""Values that are out of an option's range."""

CALLS = {
    # words of the command line
    "evaluate a b c": "Unused Tokens: ['c']",
    "evalute runs/digits": 'Unknown command "evalute". Did you mean "evaluate"?',
    "train digits --training.stpes 5": "Unknown option: --training.stpes. Did you mean --training.steps?",
    "train digits --data {}": "--data takes no value: give each setting by its name",
    "train --training.steps 3": "a recipe or a source comes first",
    "inspect --json": "Parameter --name requires an argument",
    # recipes, sources, runs
    "train imagnet32": "no recipe, folder or file 'imagnet32'; the recipes are digits, ",
    "train imagenet32": "axial train imagenet32 FOLDER_OR_FILE",
    "train digits photos.npz": "4 x 4 x 1",
    "train a.npz photos.npz": "one source is taken, and photos.npz is one more",
    "train pipe.npy": "pipe.npy is no file and no folder",
    "evaluate model pipe.npy": "pipe.npy is no file and no folder",
    "sample runs/none": "runs/none: no such run, and no other yet: axial train digits makes one",
    "inspect model photos.npz": "model has its settings already: leave out photos.npz",
    "inspect missing/ --from model": "missing/: no such file or folder",
    "inspect nowhere.axl": "nowhere.axl",
    # data and settings
    "train clips.npz --data.offsets random --data.frames 2": "data.frames",
    "train digits --data.cut tiles": "--data.cut tiles needs a size",
    "train pair.npz --data.key none": "key",
    "train photos.npz --data.num-values 3": "--data.num-values",
    "train digits --model.layout frames --model.shape 8": "frames",
    "train one.npy": "no validation examples (it states train): give more examples",
    "train digits --out photos.npz": "photos.npz exists already, and is no folder",
    "train photos.npz --from model --training.steps x": "--training.steps",
    # models and what they read
    "evaluate cut digits": "model.safetensors: damaged or cut off",
    "evaluate broken digits": "config.json: not a model configuration",
    "evaluate model clips.npz": "--data.cut crop",
    "evaluate model wide.npz": "values 900..900 of wide.npz, but the model knows 0..255",
    "evaluate model photos.npz --split test": "has no test examples",
    "evaluate model photos.npz --labels": "trained without classes",
    "score model large --data.size 4": "large/0.png is 8x8 pixels, not 4x4",
    "score model photos.npz --flag 0.5": "--typical SOURCE",
    # sampling and completing
    "sample model --count 1000000000000": "would fit",
    "sample model --device cuda:99": "cuda:99",
    "sample model --weights raw": "no raw weights",
    "sample model --out samples.gif": "not of clips",
    "sample model --out photos.npz": "photos.npz exists already",
    "complete model photos.npz --rows 1 --frames 1": "give one of --rows, --frames and --mask",
    "complete model photos.npz --rows 1 --count 1000000000000": "would fit",
    "complete model photos.npz --rows 1 --only 10": "names from 0 to 2",
    "complete model photos.npz --mask nowhere.npy": "nowhere.npy",
    "complete model photos.npz --mask mask.npy": "mask must be bool",
    # archives and checkpoints
    "compress photos.npz a.axl --minutes 0": "minutes must be",
    "compress none.npz a.axl --minutes 1": "none.npz",
    "compress run photos.npz a.axl --minutes 1": "leave out run, or begin with it, by --from run",
    "compress model photos.npz photos.npz": "force",
    "compress photos.npz a.axl --data.key none": "no array none",
    "compress model zero.npy a.axl": "zero.npy is of shape []: the model is of blocks",
    "decompress model photos": "is a folder, and no archive: name the archive",
    f"import-official {OFFICIAL} --out converted": "raw",
    f"import-official {OFFICIAL} --out converted --raw --heads 3": "dim 16 must be a multiple of",
    "import-official nowhere --out photos": "photos exists already",
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
    np.save("zero.npy", np.int64(3))
    np.save("one.npy", np.zeros((1, 4, 4), np.uint8))
    np.save("mask.npy", np.ones((3, 3), bool))
    Path("a.npz").write_text("")
    os.mkfifo("pipe.npy")
    Path("large photos").rename("large")
    Path("photos").mkdir()
    Image.new("L", (4, 4), 9).save("photos/a.png")
    for name in ("cut", "broken"):
        shutil.copytree("model", name)
    Path("cut/model.safetensors").write_bytes(Path("cut/model.safetensors").read_bytes()[:99])
    Path("broken/config.json").write_text("{")


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


def takes_any_word(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(takes_any_word, get_args(hint)))
    return hint in (str, Path, bool) or str in get_args(hint)


@pytest.mark.parametrize("command", WORDS)
def test_a_wrong_value_is_refused_with_the_name_of_the_option(refused, files, command):
    listed = [each for each in app()[command].assemble_argument_collection() if each.parse and not each.children]
    options = [each.name for each in listed if each.index is None and not takes_any_word(each.hint)]
    for words in [*(f"{option} %" for option in options), *(f"--{value}" for value in WRONG.get(command, ()))]:
        name = words.split()[0].rpartition(".")[2].strip("-").replace("-", "_")
        line = refused(command, *WORDS[command].split(), *words.split())
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
        ["sample", "model", "--out", "x.[y]"], ["complete", "model", "--mask", nowhere],
        ["compress", "model", nowhere, "b.axl"], ["decompress", "model", nowhere, "again"], ["inspect", nowhere],
        ["import-official", nowhere, "--out", "o"], ["sample", "--count", "[/x]"], ["train", "x", "--[/x]"],
    ):  # fmt: skip
        refused(*argv)
