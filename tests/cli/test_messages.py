"""What is wrong with an option is said in the words of the command; what is no setting is left as it is."""

import ast
import pickle
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from cyclopts import Argument

from axial_transformers import cli
from axial_transformers.cli import sample
from axial_transformers.cli.commands import Sample
from axial_transformers.cli.completion import parser_of
from axial_transformers.cli.parsing import as_option
from axial_transformers.messages import Message, joined, message_of
from tests.conftest import Axial
from tests.paths import DATA, ROOT
from tests.project.test_architecture import trees
from tests.shard_writer import picture, write

SOURCE = ROOT / "src" / "axial_transformers"
OFFICIAL = DATA / "official_c"

READING = {
    "data.size": "0", "data.fit": "oval", "data.frames": "0", "data.stride": "0", "data.mode": "cmyk",
    "data.background": "red",
    "data.axes": "HH", "data.key": "train pair.npz --data.key none", "data.skip-bad": "-1",
    "data.column": "train some.tar --data.column none", "data.label-column": "train some.tar --data.label-column none",
}  # fmt: skip
OPENING = {"weights": "new", "device": "tpu"}
SHADES = {"palette": "blue", "window": "2 1"}
APPEARANCE = SHADES | {"scale": "0", "fps": "0"}

WRONG: dict[str, dict[str, str]] = {
    "train": READING | {
        "samples": "-1", "validate-on": "0",
        "data.offsets": "some", "data.validation-fraction": "1", "data.test-fraction": "-1", "data.seed": "x",
        "data.num-values": "1", "data.grid": "0 0", "model.grid": "0 0",
        "model.shape": "0", "model.channels": "0", "model.num-values": "1", "model.num-classes": "0",
        "model.known-channels": "-1", "model.layout": "none",
        "model.lowest": "-3000000000", "model.values": "some", "model.mixtures": "0", "model.centred": "",
        "model.max-log-precision": "6",
        "model.dim": "0", "model.heads": "7", "model.mlp-ratio": "0",
        "model.encoder-layers": "-1", "model.outer-layers": "1", "model.inner-layers": "0", "model.inner": "none",
        "model.channel-planes": "none", "model.input-divisor": "0", "model.convolution": "9", "model.dropout": "1",
        "model.rotary": "1",
        "training.steps": "0", "training.batch-size": "0", "training.accumulate": "7", "training.optimizer": "sgd",
        "training.head-learning-rate": "0",
        "training.learning-rate": "0", "training.muon-learning-rate": "0", "training.muon-weight-decay": "1",
        "training.warmup-steps": "-1", "training.longest-warmup": "-1", "training.schedule": "none",
        "training.betas": "1 1", "training.clip-norm": "0", "training.ema-decay": "1",
        "training.precision": "float16", "training.compile": "gpu", "training.distribution-augmentation": "1",
        "training.shift-augmentation": "1", "training.label-dropout": "1", "training.seed": "-1",
        "training.device": "tpu", "training.workers": "-1", "training.log-every": "0",
        "training.evaluate-every": "0", "training.sample-every": "0", "training.save-every": "0",
        "training.minutes": "0", "training.shard": "",
    },
    "demo": {"steps": "0"},
    "evaluate": READING | OPENING | {
        "split": "some", "limit": "0", "given-frames": "4", "batch-size": "0", "precision": "half",
    },
    "sample": READING | OPENING | APPEARANCE | {
        "output": "a_b=c.txt", "count": "0", "seed": "x", "temperature": "-1", "top-k": "0", "top-p": "0",
        "label": "2", "known": "digits", "precision": "half",
    },
    "complete": READING | OPENING | APPEARANCE | {
        "split": "some", "rows": "9", "channels": "complete model photos.npz --channels 9",
        "frames": "complete model photos.npz --frames 9", "mask": "complete model photos.npz --mask mask.npy",
        "examples": "0", "label": "2", "count": "0", "output": "a.txt", "seed": "x", "temperature": "-1",
        "precision": "half",
    },
    "score": READING | OPENING | SHADES | {
        "split": "some", "rank-by": "png", "output": "a.txt", "top": "0", "limit": "0", "batch-size": "0",
        "precision": "half", "flag": "2",
    },
    "studio": READING | OPENING | {"port": "0"},
    "compress": {"other-sizes": "none", "weights": "new", "fit": "soon", "data.size": "large"},
    "decompress": {"most-values": "x", "weights": "new"},
    "import-official": {"heads": "x", "channels": "x"},
    "inspect": {"model.heads": "7", "sheet": "a.jpg"},
}  # fmt: skip
"""A wrong value of each option; or the whole call, where it is wrong with other words only."""

RIGHT = {
    "train": (
        "out resume from training.deterministic training.horizontal-flip training.as-released "
        "training.checkpoint-blocks training.tensorboard training.wandb"
    ),
    "demo": "out",
    "evaluate": "labels json",
    "sample": "compile",
    "complete": "approximate only compile",
    "score": "heat-maps against typical",
    "studio": "host",
    "compress": "embed force from drop-header verify compare json",
    "decompress": "salvage only",
    "import-official": "output raw verify",
    "inspect": "dependencies json page verbose",
    "push": "private revision licence dry-run",
    "completion": "",
    "recipes": "",
    "doctor": "",
}
"""Options of which no value is wrong by itself: flags, files, names. A message about one names the value."""

WORDS = {
    "train": "digits", "demo": "", "evaluate": "model photos.npz", "sample": "model",
    "complete": "model photos.npz --rows 1", "score": "model photos.npz", "studio": "model",
    "compress": "model photos.npz a.axl", "decompress": "model a.axl restored",
    "import-official": "checkpoint --output converted", "inspect": "digits",
}  # fmt: skip

LATER = {
    "train clips.npz --data.offsets random --data.frames 2": "--data.offsets fixed",
    "train digits --data.fit tiles": "--data.fit tiles needs a size, for example --data.size 32",
    "train pair.npz": "choose one with --data.key",
    "train photos.npz --data.num-values 3": "correct --data.num-values",
    "train photos.npz --data.mode rgb": "--data.mode rgb",
    "train some.tar": "give --data.size and --data.fit (crop or stretch)",
    "train some.tar --data.size 4": "use --data.fit crop, --data.fit stretch or --data.fit tiles",
    "score model large --data.size 4": "--data.fit stretch or --data.fit tiles; large/1.png is 12x8 pixels, not 4x4",
    "train digits --model.convolution 8 --model.shape 4 4 4 4": "--model.convolution 8 over 4 axes",
    "train digits --model.layout frames --model.shape 8": "--model.layout 'frames' needs frames",
    "train digits --model.dim 12 --model.rotary 9": "--model.dim / --model.heads is 3, but",
    "train digits --training.device meta": "--training.device meta computes nothing",
    "complete model photos.npz --rows 1 --data.frames 0": "--data.frames must be at least 1",
    "complete model photos.npz --frames 9": "--frames must be in 0..4",
    "sample model --output samples.gif": "--output samples.gif: this model is not of clips",
    "sample model --output photos.npz": "--output photos.npz exists already",
    "evaluate model clips.npz": "fit pictures with --data.fit crop, --data.fit stretch or --data.fit tiles",
    "compress model photos.npz photos.npz": "or --force to replace it",
    "compress model photos.npz new.axl --drop-header": "no scan, whose header --drop-header leaves out",
    f"import-official {OFFICIAL} --output converted": "import its raw weights (--raw)",
    f"import-official {OFFICIAL} --output converted --raw --heads 3": "dim 16 must be a multiple of --heads 3",
}
"""Calls that are found wrong where data or a model is at hand, and what the message says."""


@pytest.fixture
def files(gray, monkeypatch, no_hub):
    monkeypatch.setattr("axial_transformers.cli.studio.find_spec", bool)
    np.savez("photos.npz", np.full((3, 4, 4), 9, np.uint8))
    np.savez("clips.npz", np.zeros((3, 2, 8, 8, 1), np.uint8))
    np.savez("pair.npz", one=np.zeros((2, 4, 4), np.uint8), other=np.zeros((2, 4, 4), np.uint8))
    np.save("mask.npy", np.ones((3, 3), bool))
    Path("large photos").rename("large")
    write(Path("some.tar"), [(f"{n}.png", picture(np.zeros((n, n), np.uint8))) for n in (4, 8)])


def options_of(command: str) -> list[Argument]:
    options = parser_of(command).assemble_argument_collection()
    own = [each for each in options if each.parse and each.index is None]
    return [each for each in own if each.name.startswith("--") and not each.children]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_option_has_a_wrong_value_or_none(command):
    settings = {each.name for each in options_of("train")} if command == "inspect" else set()
    options = {each.name for each in options_of(command)} - settings
    listed = [*WRONG.get(command, ()), *RIGHT[command].split()]
    assert sorted(options) == sorted(f"--{name}" for name in listed if f"--{name}" not in settings)


CASES = [(command, option, value) for command, options in WRONG.items() for option, value in options.items()]


@pytest.mark.parametrize(("command", "option", "value"), CASES)
def test_a_wrong_value_is_refused_with_the_option_as_it_was_typed(axial: Axial, files, command, option, value):
    words = value if "--" in value else f"{command} {WORDS[command]} --{option} {value}"
    status, out, err = axial(*words.split())
    assert (status, out) == (2, "")
    assert re.search(rf"--{option}\b", err), err


@pytest.mark.parametrize(("words", "says"), LATER.items())
def test_what_is_found_wrong_later_is_said_in_options_too(axial: Axial, files, words, says):
    status, out, err = axial(*words.split())
    assert (status, out) == (2, "")
    assert says in err


def in_words_of(command: str) -> Callable[[str, str | None], str | None]:
    return partial(as_option, parser_of(command))


@pytest.mark.parametrize(
    ("command", "message", "python", "options"),
    [
        ("train", Message("{fit=crop} or {size=}", size=4), "fit=crop or size=4", "--data.fit crop or --data.size 4"),
        ("train", Message("choose one with {key=}"), "choose one with key=", "choose one with --data.key"),
        ("train", Message("{tensorboard=True} needs"), "tensorboard=True needs", "--training.tensorboard needs"),
        ("train", Message("{training.seed}"), "seed", "--training.seed"),
        ("train", Message("{data.seed}"), "seed", "--data.seed"),
        ("train", Message("{start_from}"), "start_from", "--from"),
        ("train", Message("{optimizer=muon!r}"), "optimizer='muon'", "--training.optimizer muon"),
        ("train", Message("{minutes=:g}", minutes=2.0), "minutes=2", "--training.minutes 2"),
        ("sample", Message("{top_p} and {compile=False}"), "top_p and compile=False", "--top-p and --no-compile"),
        ("sample", Message("{output=}", output=Path("my cat.gif")), "output=my cat.gif", "--output 'my cat.gif'"),
        ("complete", Message("{frames}"), "frames", "--frames"),
        ("complete", Message("{data.frames}"), "frames", "--data.frames"),
        ("decompress", Message("use {fit=crop}, {data.frames}"), "use fit=crop, frames", "use fit=crop, frames"),
        ("sample", Message("{:,} {!r}", 1000, "a"), "1,000 'a'", "1,000 'a'"),
    ],
)  # fmt: skip
def test_a_message_names_settings_as_arguments_and_as_options(command, message, python, options):
    assert message == python
    assert message.worded(in_words_of(command)) == options


NAMES = ["a_b=c.png", "{fit=crop}", "{", "}{", "{0}", "fit=crop", "top_p", "my/fit=crop/x.png", "rows must be"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_field_is_left_as_it_is(name):
    in_words = in_words_of("sample")
    assert Message("{} is {count=}, not {}", name, name, count=3).worded(in_words) == f"{name} is --count 3, not {name}"
    assert joined(", ", [name, Message("{count}"), name]).worded(in_words) == f"{name}, --count, {name}"
    assert Message("{output=}", output=name) == f"output={name}"
    assert Message("{output=}", output=name).worded(in_words) == f"--output {shlex.quote(name)}"


@pytest.mark.parametrize("name", ["a_b=c.png", "fit=crop.png", "top_p{}.png", "{size}.png"])
def test_a_file_may_have_the_name_of_a_setting(axial: Axial, files, name):
    Path(name).write_bytes(b"no image")
    _, _, err = axial("evaluate", "model", name)
    assert err.startswith(f"axial evaluate: {name}")
    _, _, err = axial("sample", "model", "--output", name.replace("png", "txt"))
    assert err.startswith(f"axial sample: --output {shlex.quote(name.replace('png', 'txt'))} is none of NAME.png")


@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), deepcopy])
def test_a_message_survives_the_way_to_another_process(copied):
    error = copied(ValueError(Message("{}: {size=}, {}", "{a}", Message("{fit}"), size="{}")))
    assert str(error) == "{a}: size={}, fit"
    assert message_of(error).worded(in_words_of("train")) == "{a}: --data.size '{}', --data.fit"


def test_an_error_within_a_message_is_worded_too():
    message = Message("{}: {}", "config.json", ValueError(Message("{heads} must be 1")))
    assert message == "config.json: heads must be 1"
    assert message.worded(in_words_of("import-official")) == "config.json: --heads must be 1"


def test_a_warning_names_options(axial: Axial, monkeypatch):
    def warn(options: Sample) -> None:
        warnings.warn(Message("{precision=bfloat16} is slow"), stacklevel=1)
        warnings.warn("precision=bfloat16 is slow", stacklevel=1)

    monkeypatch.setattr(sample, "main", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, _, err = axial("sample", "model")
    assert err == "warning: --precision bfloat16 is slow\nwarning: precision=bfloat16 is slow\n"


NAMED = sorted({each.field_info.name for command in cli.COMMANDS for each in options_of(command)})
NO_OPTIONS = ("layers/", "ops/", "kernels/", "importers/axial")
"""Rooms whose functions have arguments of their own, such as heads and axes."""
OF_ARGUMENTS = {("compression/archive.py", "archive"), ("models/axial_transformer.py", "label")}
"""Arguments that come from no option: an open file, a tensor."""


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of errors and warnings that are no `Message`, with {} for each value."""
    for node in ast.walk(tree):
        raised = node.exc if isinstance(node, ast.Raise) else node
        if isinstance(raised, ast.Call) and re.search(r"(Error|warn)$", ast.unparse(raised.func)):
            for text in raised.args:
                if isinstance(text, ast.Constant):
                    yield str(text.value)
                elif isinstance(text, ast.JoinedStr):
                    yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in text.values)


def test_no_error_names_a_setting_but_by_a_message():
    long = "|".join(name for name in NAMED if "_" in name)
    every = "|".join(NAMED)
    pattern = re.compile(rf"(?<![\w.\-])({every})=|^({every}) must be |(?<![\w./'-])({long})(?![\w./'(])")
    found = [
        (file, next(filter(None, match.groups())))
        for file, tree in trees(SOURCE)
        if not file.startswith(NO_OPTIONS)
        for text in texts(tree)
        if (match := pattern.search(text))
    ]
    assert {*found} - OF_ARGUMENTS == set()


def test_the_fields_of_messages_are_options_and_have_their_values():
    options = {
        each.name.removeprefix("--").replace("-", "_") for command in cli.COMMANDS for each in options_of(command)
    }
    templates = 0
    for _, tree in trees(SOURCE):
        for call in ast.walk(tree):
            at = {"Message": 0, "_require": 1}.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
            if at is None or not isinstance(call.args[at], ast.Constant):
                continue
            template, *values = call.args[at:]
            fields = [field for _, field, _, _ in Formatter().parse(template.value) if field is not None]
            given = {keyword.arg for keyword in call.keywords} - {None}
            assert {field.partition("=")[0] for field in fields if field} <= options | {*NAMED}, template.value
            assert given <= {field.removesuffix("=").rpartition(".")[2] for field in fields}, template.value
            assert fields.count("") == len(values), template.value
            templates += 1
    assert templates > 90
