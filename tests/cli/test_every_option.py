"""Every option of every command, at another value than its default, changes what the command asks of the library."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import cli
from axial_transformers.cli import inspection
from axial_transformers.cli.parsing import COMMANDS, app
from axial_transformers.cli.train import requested
from axial_transformers.compression.archive import Limit
from axial_transformers.data import DataConfig, Examples
from axial_transformers.likelihood import outliers
from axial_transformers.likelihood.evaluation import Evaluation
from axial_transformers.likelihood.outliers import Scores
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import completions, saving
from axial_transformers.training import trained_model
from axial_transformers.training.trained_model import TrainedModel
from tests.scan_writer import make_scan
from tests.small_models import random_model, random_values, small_config

COUNT = 6
CONFIG = small_config((3, 2, 2), 1, "frames", known_channels=1, num_classes=3)
MODEL = random_model(CONFIG, torch.float32)
VALUES = random_values(MODEL, COUNT).numpy().astype(np.uint8)
NAMES = [f"<{i}>" for i in range(COUNT)]
EXAMPLES = Examples(VALUES, NAMES, labels=np.arange(COUNT) % 3, num_values=5)
TRAINED = TrainedModel(MODEL, "EMA", "own", DataConfig(), ("a", "b", "c"), "run")
OF_PICTURES = dataclasses.replace(TRAINED, model=random_model(small_config((2, 2)), torch.float32))

BASE = {
    "demo": "",
    "evaluate": "run",
    "sample": "run",
    "complete": "run --frames 1",
    "score": "run --against others",
    "studio": "run",
    "compress": "run images.npz a.axl",
    "decompress": "run a.axl restored",
    "import-official": "checkpoint --output converted",
    "recipes": "",
    "doctor": "",
    "push": "run owner/name",
    "inspect": "digits",
}
"""A call of each command but `train`, whose options have a test of their own."""

READING = {
    "data.size": "2",
    "data.fit": "crop",
    "data.frames": "2",
    "data.stride": "2",
    "data.mode": "gray",
    "data.background": "white",
    "data.axes": "NTHW",
    "data.key": "other",
    "data.column": "other",
    "data.label-column": "other",
    "data.skip-bad": "2",
}
OPENING = {"weights": "raw", "device": "cpu"}
KNOWN = "run --count 3 --known data"
FITTING = "images.npz a.axl --fit 1"
COMPILING = {"compile": ""}

CASES: dict[str, dict[str, str | tuple[str, str]]] = {
    "demo": {"out": "elsewhere", "steps": "7"},
    "evaluate": READING | OPENING | {
        "model": ("run", "other"), "source": ("run", "run data"), "split": "train", "labels": "",
        "limit": "3", "given-frames": "2", "batch-size": "2", "precision": "bfloat16", "json": "",
    },
    "sample": {name: (KNOWN, f"{KNOWN} --{name} {value}") for name, value in READING.items()} | OPENING | COMPILING | {
        "model": ("run", "other"), "output": "other.png", "count": "3", "seed": "1", "temperature": "0.5",
        "top-k": "2", "top-p": "0.5", "label": "1", "known": ("run --count 3", KNOWN), "scale": "2",
        "precision": "bfloat16", "palette": "categories", "window": "1 3",
        "fps": ("run --output clips.gif", "run --output clips.gif --fps 3"),
    },
    "complete": READING | OPENING | COMPILING | {
        "model": ("run --frames 1", "other --frames 1"), "source": ("run --frames 1", "run data --frames 1"),
        "split": "train",
        "rows": ("run --frames 1 --approximate", "run --rows 1 --approximate"),
        "channels": ("run --frames 1 --approximate", "run --channels 1 --approximate"),
        "frames": ("run --frames 1", "run --frames 2"),
        "mask": ("run --frames 1 --approximate", "run --mask mask.npy --approximate"),
        "approximate": "", "examples": "3", "only": "4 1", "label": "1", "count": "2", "output": "other.png",
        "scale": "2", "palette": "categories", "window": "1 3", "seed": "1", "temperature": "0.5",
        "precision": "bfloat16",
        "fps": ("run --frames 1 --output clips.gif", "run --frames 1 --output clips.gif --fps 3"),
    },
    "score": READING | OPENING | {
        "model": ("run", "other"), "source": ("run", "run data"), "split": "train",
        "output": "scores.csv", "heat-maps": "maps", "top": ("run --heat-maps maps", "run --heat-maps maps --top 2"),
        "limit": "3", "against": ("run", "run --against others"), "rank-by": "corrected", "batch-size": "2",
        "precision": "bfloat16", "palette": "categories", "window": "1 3", "typical": ("run", "run --typical others"),
        "flag": ("run --typical others", "run --typical others --flag 0.9"),
    },
    "studio": READING | OPENING | {"model": ("run", "other"), "host": "localhost", "port": "8000"},
    "compress": {
        "model": ("run images.npz a.axl", "other images.npz a.axl"),
        "source": ("run images.npz a.axl", "run others.npz a.axl"),
        "archive": ("run images.npz a.axl", "run images.npz b.axl"),
        "force": "", "other-sizes": "tile", "drop-header": ("run a.nii a.axl", "run a.nii a.axl --drop-header"),
        "verify": ("run images.npz a.axl", "run images.npz a.axl --no-verify"),
        "compare": "", "embed": "", "weights": "raw", "json": "",
        "fit": ("run images.npz a.axl", "images.npz a.axl --fit 1"), "from": (FITTING, f"{FITTING} --from other"),
        "data.size": (FITTING, f"{FITTING} --data.size 2"),
    },
    "decompress": {
        "model": ("run a.axl restored", "other a.axl restored"),
        "archive": ("run a.axl restored", "run b.axl restored"),
        "output": ("run a.axl restored", "run a.axl another"),
        "salvage": "", "only": "cat.png", "most-values": "9", "weights": "raw",
    },
    "import-official": {
        "checkpoint": ("checkpoint --output converted", "other --output converted"),
        "output": ("checkpoint --output converted", "checkpoint --output another"),
        "raw": "", "heads": "4", "channels": "3", "verify": "",
    },
    "recipes": {},
    "doctor": {},
    "push": {
        "folder": ("run owner/name", "other owner/name"), "repository": ("run owner/name", "run owner/other"),
        "private": "", "revision": "v2", "licence": "mit", "dry-run": "",
    },
    "inspect": {
        "name": ("digits", "images.npz"), "dependencies": "", "json": "",
    },
}  # fmt: skip
"""What is added to the call, or the words before and after."""

SHOWN = {
    ("complete", "output"),
    ("score", "output"),
} | {(verb, "json") for verb in ("evaluate", "compress", "inspect")}
"""Options that change what is printed or written, not what the library is asked."""

EVERY_TIME = {("score", "limit"): "score", ("score", "batch-size"): "score"}
"""Options that change each call of a function."""


class Reached(BaseException):
    """The command has come to the function that does all of its work."""


def plain(value: Any) -> Any:
    """A value to compare and to print, of which functions and what is made anew are left out."""
    if isinstance(value, AxialTransformer):
        return value.config
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, torch.Generator):
        return value.initial_seed()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if isinstance(value, str | int | float | Path | slice | torch.dtype | None) else type(value).__name__


class Recorder:
    """Functions at the border of the library, and their calls."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._patch = patch

    def replace(self, owner: Any, name: str, answer: Callable[..., Any] | None = None) -> None:
        """The function is recorded, and answered by another; None: by an end of the command."""

        def recorded(*given: Any, **options: Any) -> Any:
            self.calls.append((name, plain([given, options])))
            if name in REPLACEMENTS and torch.is_autocast_enabled("cpu"):
                self.calls.append((f"{name} under autocast", None))
            if answer is None:
                raise Reached
            return answer(*given, **options)

        self._patch.setattr(owner, name, recorded)

    def watch(self, owner: Any, *names: str) -> None:
        """The functions are recorded, and do what they do."""
        for name in names:
            self.replace(owner, name, getattr(owner, name))


def replace_library(verb: str, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    module = import_module(f"axial_transformers.cli.{verb.replace('-', '_')}")
    for owner in (trained_model, module) if hasattr(module, "open_model") else (trained_model,):
        recorder.replace(owner, "open_model", lambda *given, **options: OF_PICTURES if verb == "compress" else TRAINED)
    recorder.replace(TrainedModel, "examples", lambda trained, source, split: (EXAMPLES, "examples"))
    if hasattr(module, "processes_on"):
        recorder.watch(module, "processes_on")
    for name in ("save_arrays", "save_clips", "save_grid", "save_images"):
        recorder.replace(saving, name, lambda *given, **options: None)
    REPLACEMENTS[verb](module, recorder, patch)


def _evaluate(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.replace(
        module, "evaluate", lambda *given, **options: Evaluation(bits_per_dim=1, standard_error=0.1, images=COUNT)
    )


def _sample(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.replace(module, "sample", lambda model, count, **options: torch.zeros(count, 3, 2, 2, 1).byte())


def _complete(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.replace(module, "complete", lambda model, known, count, **options: known.repeat_interleave(count, 0))

    def drawn(known: Any, mask: Any, filled: Any, look: Any, **options: Any) -> Image.Image:
        return Image.new("L", completions.for_display(known, look).shape[1:3])

    recorder.watch(completions, "for_display")
    recorder.replace(completions, "completion_sheet", drawn)
    recorder.replace(completions, "save_movie", lambda *given, **options: None)


def _score(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    def score(model: Any, values: Any, *given: Any) -> Scores:
        return Scores(bits=np.arange(len(values)), corrected=np.zeros(len(values)))

    recorder.replace(module, "score", score)
    recorder.replace(module, "are_images", lambda *given: True)  # the model is of other channels
    recorder.watch(module, "ranking")
    recorder.replace(outliers, "bits_map", lambda model, x: torch.zeros(x.shape))
    recorder.replace(module, "save_scores", lambda table, rows, folder, maps, *given: [*maps])


def _studio(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.replace(module, "served")
    patch.setattr(module, "find_spec", bool)
    patch.setattr(module.signal, "signal", lambda *given: None)


def _compress(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.watch(module, "compress_files", "_compared")
    patch.setattr(Limit, "check", lambda *given: None)  # a model that was not trained
    recorder.replace(module, "fitted", lambda *given: "run")


def _push(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "read_model", lambda folder: MODEL if folder.name == "run" else OF_PICTURES.model)
    recorder.watch(module, "card_of")
    recorder.replace(AxialTransformer, "push_to_hub", lambda *given, **options: "address")


def _inspect(module: Any, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    module = inspection
    recorder.watch(module, "read", "_checked", "print_rows")


def _ends_at(name: str) -> Callable[[Any, Recorder, pytest.MonkeyPatch], None]:
    return lambda module, recorder, patch: recorder.replace(module, name)


REPLACEMENTS = {
    "demo": _ends_at("train"),
    "evaluate": _evaluate,
    "sample": _sample,
    "complete": _complete,
    "score": _score,
    "studio": _studio,
    "compress": _compress,
    "decompress": _ends_at("decompress_files"),
    "import-official": _ends_at("import_official_to"),
    "recipes": lambda *given: None,
    "doctor": lambda *given: None,
    "push": _push,
    "inspect": _inspect,
}


def options_of(verb: str) -> set[str]:
    return {
        option.name.strip("-").lower()
        for option in app()[verb].assemble_argument_collection()
        if not option.children and option.parameter.parse is not False
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Files that commands read."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("images", "others"):
        np.savez(folder / f"{name}.npz", images=VALUES[:, 0, ..., 0])
    make_scan(folder / "a.nii", VALUES[:, 0, ..., 0].astype(np.uint8))
    known = np.zeros((3, 2, 2), bool)
    known[0, 1] = True
    np.save(folder / "mask.npy", known)
    for name in ("run", "other"):
        MODEL.save_pretrained(folder / name)
    return folder


@pytest.fixture
def call(folder, tmp_path, monkeypatch, capsys) -> Callable[[str, str], tuple[list[Any], Any]]:
    """A command: what it asks of the library; what it prints, and the names of the files that it leaves."""
    number = count()

    @cache
    def call(verb: str, words: str) -> tuple[list[Any], Any]:
        here = tmp_path / str(next(number))
        here.mkdir()
        for path in folder.iterdir():
            (here / path.name).symlink_to(path)
        capsys.readouterr()
        with monkeypatch.context() as patch, suppress(Reached):
            patch.chdir(here)
            recorder = Recorder(patch)
            replace_library(verb, recorder, patch)
            status = cli.main([verb, *words.split()])
            assert status == 0, capsys.readouterr().err
        return recorder.calls, (capsys.readouterr().out, sorted(path.name for path in here.iterdir()))

    return call


@pytest.mark.parametrize("verb", CASES)
def test_every_option_changes_what_reaches_the_library(call, verb):
    assert set(CASES[verb]) == options_of(verb)
    without_effect = []
    for option, case in CASES[verb].items():
        before, after = case if isinstance(case, tuple) else (BASE[verb], f"{BASE[verb]} --{option} {case}")
        (asked, shown), (asked_then, shown_then) = call(verb, before), call(verb, after)
        name = EVERY_TIME.get((verb, option))
        pairs = [pair for pair in zip(asked, asked_then) if pair[0][0] == name] or [(asked, asked_then)]
        if (verb, option) in SHOWN:
            pairs = [(shown, shown_then)]
        without_effect += [option] * any(one == other for one, other in pairs)
    assert without_effect == []


SETTINGS = {
    "out": "elsewhere", "validate-on": "4", "samples": "3",
    "data.size": "8", "data.frames": "2",
    "data.mode": "gray", "data.background": "white", "data.palette": "indices",
    "data.validation-fraction": "0.3", "data.test-fraction": "0.2", "data.seed": "1",
    "data.num-values": "5", "data.grid": "0.5 0", "data.axes": "NHWC", "data.key": "other",
    "data.column": "other", "data.label-column": "other", "data.skip-bad": "2",
    "model.grid": "0.5 0", "model.shape": "8 4", "model.num-values": "5", "model.lowest": "-1",
    "model.num-classes": "3", "model.mixtures": "3", "model.max-log-precision": "2",
    "model.layout": "rows", "model.dim": "8", "model.heads": "2", "model.mlp-ratio": "2",
    "model.encoder-layers": "4", "model.outer-layers": "2", "model.inner-layers": "1",
    "model.channel-planes": "index", "model.input-divisor": "9", "model.dropout": "0.2", "model.rotary": "9",
    "model.convolution": "2",
    "training.steps": "7", "training.batch-size": "8", "training.accumulate": "2", "training.optimizer": "adam",
    "training.learning-rate": "0.5", "training.head-learning-rate": "0.5", "training.muon-learning-rate": "0.5",
    "training.muon-weight-decay": "0.5", "training.warmup-steps": "3",
    "training.longest-warmup": "3", "training.schedule": "constant",
    "training.betas": "0.5 0.6", "training.clip-norm": "0.5", "training.as-released": "",
    "training.ema-decay": "0.5", "training.precision": "bfloat16", "training.compile": "",
    "training.deterministic": "", "training.horizontal-flip": "", "training.distribution-augmentation": "0.1",
    "training.shift-augmentation": "0.1", "training.label-dropout": "0.1", "training.seed": "1",
    "training.device": "cpu", "training.workers": "1", "training.log-every": "3", "training.evaluate-every": "3",
    "training.sample-every": "3", "training.save-every": "3",
    "training.checkpoint-blocks": "", "training.minutes": "3", "training.tensorboard": "",
    "training.wandb": "project",
}  # fmt: skip
APART = {
    "model.channels": "3 --model.encoder-layers 2", "model.inner": "lstm --model.inner-layers 1",
    "training.shard": " --training.optimizer adam",
    "data.fit": "crop --data.size 8", "data.stride": "2 --data.frames 2", "data.offsets": "random --data.frames 2",
    "model.known-channels": "1 --model.channels 2 --model.encoder-layers 2",
    "model.values": "ordinal", "model.centred": "--model.values ordinal",
}  # fmt: skip
"""Settings that need others."""


def test_every_setting_of_train_is_set_alone(home):
    base, names = requested(["digits"], "train")[0], options_of("train") - {"from", "resume"}
    assert {*SETTINGS, *APART} == names
    for name, value in (SETTINGS | APART).items():
        run, begun = requested(["digits", *f"--{name} {value}".split()], "train")
        before, after = (dict(settings_of(each)) for each in (base, run))
        changed = {setting.replace("_", "-") for setting in before if before[setting] != after[setting]}
        assert (changed, begun) == ({name, *re.findall("--([a-z.-]+)", value)}, None)
    for name in names & {f"training.{name}" for name in ("deterministic", "tensorboard", "compile")}:
        part, _, last = name.partition(".")
        assert getattr(requested(["digits", f"--{part}.no-{last}"], "train")[0].training, last) is False


def settings_of(run: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a run by their names."""
    for field in dataclasses.fields(run):
        value = getattr(run, field.name)
        if dataclasses.is_dataclass(value):
            yield from settings_of(value, f"{field.name}.")
        else:
            yield prefix + field.name, value


def test_every_command_has_its_cases():
    assert {*CASES, "train"} == set(COMMANDS)
