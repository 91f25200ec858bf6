"""Every option of every command is read by it and changes what it does; every setting of training is set alone."""

import hashlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from axial_transformers.cli import COMMANDS, app, command_options, options
from axial_transformers.cli.options import READING, OfModel, Reading
from axial_transformers.cli.train import requested
from tests.conftest import Axial

OPTIONS = {name: command_options(name) for name in COMMANDS if name != "train"}


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_read_by_its_command(command):
    module = import_module(f"axial_transformers.cli.{command.replace('-', '_')}")
    texts = "".join(map(inspect.getsource, (module, options)))
    read = re.findall(r"\.(\w+)", texts)
    assert "vars(options)" in texts or {field.name for field in fields(OPTIONS[command])} <= {*read}


CASES = {
    "evaluate RUN --limit 9": [
        "--split validation", "--limit 3", "--labels", "--given-frames 2", "--weights raw", "--precision bfloat16",
        "--json",
    ],
    "sample RUN --count 2": [
        "--seed 1", "--temperature 0.5", "--top-k 2", "--top-p 0.5", "--scale 2", "--window 1 3",
        "--count 3", "--out other.png",
    ],
    "complete RUN --examples 2 --count 1": [
        "--split train", "--examples 3", "--count 2", "--only 1504 1501", "--seed 1", "--temperature 0.01",
        "--scale 2", "--window 1 3", "--out other.npz", "--rows 5",
    ],
    "score RUN --limit 9 --heat-maps maps": [
        "--split train", "--limit 8", "--rank-by corrected", "--rank-by deviation", "--top 2", "--weights raw",
        "--window 1 3", "--out scores.csv", "--against digits", "--typical digits", "--flag 0.2",
    ],
}  # fmt: skip
"""Options that are added to a call."""


@pytest.mark.parametrize("call", CASES)
def test_an_option_changes_what_a_command_prints_or_writes(axial: Axial, trained: Path, home: Path, monkeypatch, call):
    def made(folder: str, option: str) -> object:
        (home / folder).mkdir()
        monkeypatch.chdir(home / folder)
        rows = "" if not call.startswith("complete") or "--rows" in option else "--rows 4"
        done = axial(*f"{call} {rows} {option}".replace("RUN", str(trained)).split())
        assert done.status == 0, done.err
        files = [path for path in sorted(Path().rglob("*")) if path.is_file()]
        return done.out, done.err, [(path, hashlib.sha256(path.read_bytes()).digest()) for path in files]

    before = made("before", "")
    assert made("again", "") == before
    assert [option for i, option in enumerate(CASES[call]) if made(str(i), option) == before] == []


def test_settings_of_data_replace_those_of_the_run(gray):
    given = {"size": 8, "cut": "crop", "frames": 2, "mode": "gray", "axes": "NHW", "key": "k", "column": "c"}
    given["decimal"] = ","
    found = OfModel(gray, data=Reading(**given)).opened().data
    assert {name: getattr(found, name) for name in READING} == given


SETTINGS = {
    "out": "elsewhere", "validate-on": "4", "samples": "3",
    "data.size": "8", "data.frames": "2",
    "data.mode": "gray", "data.background": "white", "data.palette": "indices",
    "data.validation-fraction": "0.3", "data.test-fraction": "0.2", "data.seed": "1",
    "data.num-values": "5", "data.grid": "0.5 0", "data.axes": "NHWC", "data.key": "other", "data.decimal": ",",
    "data.column": "other", "data.label-column": "other", "data.skip-bad": "2",
    "model.grid": "0.5 0", "model.shape": "8 4", "model.num-values": "5", "model.lowest": "-1",
    "model.num-classes": "3", "model.mixtures": "3", "model.max-log-precision": "2",
    "model.layout": "rows", "model.dim": "8", "model.heads": "2", "model.mlp-ratio": "2",
    "model.encoder-layers": "4", "model.outer-layers": "2", "model.inner-layers": "1",
    "model.channel-planes": "index", "model.input-divisor": "9", "model.dropout": "0.2", "model.rotary": "9",
    "model.gated-convolutions": "1",
    "training.steps": "7", "training.batch-size": "8", "training.accumulate": "2", "training.optimizer": "adam",
    "training.learning-rate": "0.5", "training.head-learning-rate": "0.5", "training.muon-learning-rate": "0.5",
    "training.muon-weight-decay": "0.5", "training.warmup-steps": "3",
    "training.schedule": "constant",
    "training.betas": "0.5 0.6", "training.clip-norm": "0.5", "training.as-released": "",
    "training.ema-decay": "0.5", "training.precision": "bfloat16", "training.compile": "",
    "training.vectors-only": "", "training.cuda-graph": "",
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
    "data.cut": "crop --data.size 8", "data.stride": "2 --data.frames 2", "data.offsets": "random --data.frames 2",
    "model.levels": "-1 0 9 --model.lowest -1 --model.num-values 3",
    "model.known-channels": "1 --model.channels 2 --model.encoder-layers 2",
    "model.values": "ordinal", "model.centred": "--model.values ordinal",
    "model.activity": "--model.values ordinal --model.centred",
}  # fmt: skip
"""Settings that need others."""


def test_every_setting_of_train_is_set_alone(home):
    base = requested(["digits"])[0]
    listed = app()["train"].assemble_argument_collection()
    names = {each.name.strip("-") for each in listed if each.parse and not each.children} - {"from", "resume"}
    assert {*SETTINGS, *APART} == names
    for name, value in (SETTINGS | APART).items():
        run, begun = requested(["digits", *f"--{name} {value}".split()])
        before, after = (dict(settings_of(each)) for each in (base, run))
        changed = {setting.replace("_", "-") for setting in before if before[setting] != after[setting]}
        assert (changed, begun) == ({name, *re.findall("--([a-z.-]+)", value)}, None)


def settings_of(run: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a run by their names."""
    for name, value in vars(run).items():
        if is_dataclass(value):
            yield from settings_of(value, f"{name}.")
        else:
            yield prefix + name, value
