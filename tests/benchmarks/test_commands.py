"""The commands of benchmarks/ and experiments/ run, and pages quote what they print."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from axial_transformers.data import DataConfig
from axial_transformers.recipes import NAMED
from axial_transformers.training import RunConfig
from tests import benchmark_commands
from tests.benchmark_commands import MEASURED, SCRIPTS
from tests.paths import ROOT
from tests.project.test_docs import PAGES, commands
from tests.small_models import random_model, small_config

import ablation_groups  # isort: skip
import command_line  # isort: skip
import complexity  # isort: skip
import peers  # isort: skip
import tokens  # isort: skip
import wallpapers  # isort: skip

DOCS = ROOT / "docs"


def tiny_group() -> ablation_groups.Group:
    group = ablation_groups.GROUPS["fashion"]
    rows = dict.fromkeys(group.rows, small_config((4, 4), num_values=256, heads=1))
    return replace(group, train="gray.npz", test="gray.npz", rows=rows, test_count=2)


def tiny_recipe() -> RunConfig:
    recipe = NAMED["fashion_mnist"]()
    config = replace(recipe.model, shape=(4, 4), dim=8, heads=1, outer_layers=2, inner_layers=1)
    return replace(recipe, model=config, training=replace(recipe.training, batch_size=2, compile=False))


def tiny_photographs() -> RunConfig:
    recipe = NAMED["photos32"]()
    config = replace(recipe.model, shape=(4, 4), dim=12, heads=1)
    return replace(recipe, model=config, training=replace(recipe.training, batch_size=2))


TINY_KINDS = {
    "fashion": replace(
        peers.KINDS["fashion"],
        source="gray.npz",
        recipes={"axial": tiny_recipe},
        validation=2,
        timed_batches=(1,),
    ),
    "varied": replace(
        peers.KINDS["varied"],
        source="colours.npz",
        trained_on="colours.npz",
        data=DataConfig(),
        recipes=dict.fromkeys(peers.AXIAL_PHOTOGRAPHS, tiny_photographs),
        validation=2,
        timed_batches=(1,),
    ),
}
SMALLER: dict[str, dict[str, object]] = {
    "ablation": {"ablation.GROUPS": {"fashion": tiny_group()}},
    "complexity": {"complexity.SQUARES": (4, 8), "complexity.SIDES": {1: (10, 20), 2: (10, 12)}},
    "peers": {"peers.KINDS": TINY_KINDS},
    "speed": {"speed.NAMED": {"digits": tiny_recipe}},
    "table1": {"table1.SIZES": (16, 32), "table1.PAPER": {"Axial Transformer": "yes yes yes yes"}},
}
"""Constants that make a script small where no option does."""
TINY = {
    "ablation.py run": "run . --out rows --groups fashion --rows 'axial, LSTM' --steps 1",
    "ablation.py row": "row . fashion 'axial, LSTM' 0 1",
    "ablation.py table": f"table --out {MEASURED}/ablation_fashion",
    "complexity.py": "plot.png --rounds 1",
    "exact_functions.py": "--every 67108859",
    "flat_images.py": "flat",
    "gpu_report.py": f"--dry-run --out report --before {ROOT}",
    "gpu_report.py --only": "--dry-run --only parity",
    "multihead_weights.py": "clothes.npz clothes.npz --steps 1 --more 1 --count 8",
    "peers.py run": "run . --out rows --data fashion --models axial --seconds 0.01 --rates 1 --seeds 2",
    "peers.py run --kodak": "run . --out rows --data varied --models axial 'axial without attention' --optimizers muon"
    " --seconds 0.01 --rates 1 --seeds 1 --kodak kodak.npz --every 1",
    "peers.py trial": "trial . fashion 'gated PixelCNN' muon 0.01 0 0.01",
    "peers.py table": f"table --out {MEASURED}/peers_fashion",
    "scan_sets.py": "new/scans",
    "speed.py sampling": "sampling --size 3 --width 8 --heads 1 --layers 2 --batches 1 2 --rounds 1",
    "speed.py likelihood": "likelihood model --batches 2 --rounds 1",
    "speed.py steps": "steps --recipes digits --rounds 1",
    "speed.py layers": "layers --shapes 1x4x4x16 --rounds 1",
    "speed.py archives": "archives model gray.npz --count 2",
    "stable_training.py": ". rows.jsonl --sets noise --steps 2",
    "table1.py": "--depths 1 3 --reach-sizes 8",
    "tokens.py encode": "encode clothes.npz clothes.npz tokens --codes 300 --steps 2 --batch 3",
    "tokens.py sizes": "sizes codes.npy",
    "tokens.py decode": "decode model_of_codes codes.npy decoded.png",
    "varied_photos.py": "photos varied --copies 2",
    "varied_photos.py -sharp": "photos varied --copies 2 --sharp",
    **{f"wallpapers.py -{name}": f"{name} {name} photographs" for name in get_args(wallpapers.Collection)},
    "video.py": "model_of_clips clips.npz --strips-to strips.png",
}
"""The smallest arguments of each command, in a folder with tiny data."""
SLOW = {"complexity.py", "gpu_report.py"}
"""Commands of more than a second."""
ELSEWHERE = {"public_datasets.py", "authors.py time", "authors.py cases", "authors_worker.py"}
"""The first downloads: test_datasets.py. The others need TensorFlow 2.15."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with tiny data and models."""
    folder, rng = tmp_path_factory.mktemp("tiny"), np.random.default_rng(0)
    np.savez(folder / "gray.npz", images=rng.integers(0, 256, (40, 4, 4), np.uint8))
    np.savez(folder / "colours.npz", images=rng.integers(0, 256, (40, 4, 4, 3), np.uint8))
    np.savez(folder / "kodak.npz", crops32=rng.integers(0, 256, (3, 4, 4, 3), np.uint8))
    np.savez(folder / "clothes.npz", images=rng.integers(0, 256, (8, 28, 28), np.uint8), labels=np.arange(8))
    np.savez(folder / "clips.npz", images=rng.integers(0, 256, (2, 2, 16, 16, 3), np.uint8))
    np.save(folder / "codes.npy", rng.integers(0, 300, (3, 2, 2), np.int16))
    (folder / "model_of_codes").mkdir()
    save_file(tokens.VQ(300).state_dict(), folder / "model_of_codes" / tokens.WEIGHTS)
    (folder / "photos").mkdir()
    Image.fromarray(rng.integers(0, 256, (160, 144, 3), np.uint8)).save(folder / "photos" / "one.png")
    for collection in get_args(wallpapers.Collection):
        for _, path in wallpapers.files(collection, folder / collection).values():
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (6, 5, 3), np.uint8)).save(path)
    random_model(small_config((4, 4), num_values=256), torch.float32).save_pretrained(folder / "model")
    clips = small_config((2, 16, 16), 3, "columns", num_values=256)
    random_model(clips, torch.float32).save_pretrained(folder / "model_of_clips")
    return folder


@pytest.mark.parametrize("command", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in TINY])
def test_every_command_runs_at_its_smallest(command, tiny, tmp_path, monkeypatch, capsys):
    script = command.split()[0]
    for path in tiny.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for target, smaller in SMALLER.get(script.removesuffix(".py"), {}).items():
        monkeypatch.setattr(target, smaller)
    with benchmark_commands.one_process():
        assert benchmark_commands.run(script, shlex.split(TINY[command])) == 0
    assert capsys.readouterr().out


def test_every_command_of_a_script_has_an_entry():
    every = {command for script in SCRIPTS for command in benchmark_commands.commands_of(script)}
    assert {command.split(" -")[0] for command in TINY.keys() | ELSEWHERE} == every


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_script_understands_its_commands_on_a_page(page, monkeypatch):
    def parse(app, words):
        app.parse_args(words, exit_on_error=False, print_error=False)
        raise SystemExit(0)

    monkeypatch.setattr(command_line.App, "__call__", parse)
    for _, path, *words in (command for command in commands(page) if command[0] == "python"):
        assert benchmark_commands.run(Path(path).name, words) == 0


def test_the_exponents_of_a_page_are_those_that_are_counted():
    page = (DOCS / "explanation" / "complexity.md").read_text()
    rows = re.findall(r"^\| (\d) \| \d[^|]* to [^|]* \| (.*) \|$", page, re.MULTILINE)
    assert [int(axes) for axes, _ in rows] == [*complexity.SIDES]
    for axes, cells in rows:
        found = complexity.counted(int(axes))
        counted = [f"{value:.2f}" for value in found["exponents"].values()]
        assert cells.split(" | ") == [*counted, f"{found['savings, largest']:,.0f}"]


@pytest.mark.parametrize(
    ("page", "title", "script", "stored"),
    [
        ("benchmarks.md", "Other models", "peers.py", ["peers_photos", "peers_photos_xeon"]),
        ("../experiments/EXPERIMENTS.md", "Fashion-MNIST beside", "peers.py", ["peers_fashion"]),
        ("paper_in_miniature.md", "Table 2", "ablation.py", ["ablation_fashion", "ablation_photos"]),
    ],
)
def test_a_page_quotes_the_stored_measurements(page, title, script, stored, capsys):
    for name in stored:
        benchmark_commands.run(script, ["table", "--out", str(MEASURED / name)])
    out = capsys.readouterr().out
    printed = re.findall(r"(\d+\.\d+) ± (\d+\.\d+)", out) + re.findall(r"(\d+\.\d+) \((\d+\.\d+)\)", out)
    rounded = {f"{float(mean):.{n}f} ± {float(error):.{n}f}" for mean, error in printed for n in (2, 3)}
    (section,) = (part for part in (DOCS / page).read_text().split("\n## ") if part.startswith(title))
    quoted = re.findall(r"\d+\.\d+ ± \d+\.\d+", section)
    assert len(quoted) >= 5
    assert set(quoted) - rounded == set()


@pytest.mark.slow
def test_the_pages_quote_table_1_as_it_is_measured(capsys):
    assert benchmark_commands.run("table1.py", ["--depths", "1", "2", "3", "4"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    results = (DOCS / "results.md").read_text()
    for name, row in rows.items():
        shares = " | ".join(f"{share:.0%}".replace("%", " %") for share in row["reach"]["16"].values())
        assert f"| {name} | {shares} |" in results
        if name in ("Transformer", "Strided Sparse Transformer", "Axial Transformer"):
            assert not row["own_operators"]
