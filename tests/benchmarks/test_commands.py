"""What training is measured against is the same model, and benchmarks can be run."""

import importlib
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.training import RunConfig
from tests import benchmark_commands
from tests.benchmark_commands import MEASURED, SCRIPTS
from tests.paths import ROOT
from tests.project.test_docs import PAGES, commands
from tests.small_models import CENTRED, random_given, random_model, random_values, small_config

import ablation_groups  # isort: skip
import command_line  # isort: skip
import complexity  # isort: skip
import crashes  # isort: skip
import peers  # isort: skip
import tokens  # isort: skip
from straightforward import Straightforward  # isort: skip

DOCS = ROOT / "docs"
CONFIGS = {
    "one channel": small_config((3, 5), outer_layers=4, inner_layers=2, mlp_ratio=2.0),
    "classes": small_config((3, 5), num_classes=3),
    "rotary": small_config((3, 5), outer_layers=4, rotary=50.0),
    "channels": small_config((3, 5), 3, encoder_layers=4, outer_layers=2, inner_layers=1),
    "centred columns": small_config((3, 4), 3, "columns", **CENTRED),
    "centred channels": small_config((3, 4), 2, num_values=300, **CENTRED),
    "convolution": small_config((5, 4), convolution=2),
    "convolution of channels": small_config((3, 4), 2, convolution=1),
    "centred convolution": small_config((4, 3), 3, "columns", convolution=2, num_values=256, **CENTRED),
    "channels and classes": small_config((5, 3), 2, num_classes=3),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_with_equal_weights_the_straightforward_model_has_our_loss_and_gradients(name):
    ours = random_model(CONFIGS[name])
    plain = Straightforward(ours.config).double()
    plain.load(ours.state_dict())
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in ours.parameters())
    x, channel = random_values(ours, 4), torch.randint(len(ours.slices), (4,))
    label = random_given(ours, 4).get("label")
    one, other = random_slice_loss(ours, x, label, channel=channel), plain(x, label, channel)
    assert one.item() == pytest.approx(other.item(), rel=1e-6)
    one.backward()
    other.backward()
    for mine, theirs in (
        (next(ours.embed_value.parameters()), plain.values.weight),
        (ours.inner_decoder.blocks[0].attention.norm.weight, plain.inner[0].attention.norm.weight),
    ):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


NEEDED = {"authors_worker": "tensorflow"}
"""Packages of another environment."""


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS])
def test_a_benchmark_finds_all_that_it_imports(name):
    pytest.importorskip(NEEDED.get(name, "torch"))
    importlib.import_module(name)


def tiny_group() -> ablation_groups.Group:
    group = ablation_groups.GROUPS["fashion"]
    rows = dict.fromkeys(group.rows, small_config((4, 4), num_values=256, heads=1))
    return replace(group, train="gray.npz", test="gray.npz", rows=rows, test_count=2)


def tiny_recipe() -> RunConfig:
    recipe = peers.narrow_fashion_mnist()
    config = replace(recipe.model, shape=(4, 4), dim=8, heads=1, outer_layers=2, inner_layers=1)
    return replace(recipe, model=config, training=replace(recipe.training, batch_size=2))


SHAPES = [(1, 4, 4, 16)]
SMALLER: dict[str, dict[str, object]] = {
    "ablation": {"ablation.GROUPS": {"fashion": tiny_group()}},
    "attention": {"attention.SHAPES": SHAPES, "attention.MAX_SHAPE": SHAPES[0], "attention.BESIDE_PACKAGE": SHAPES},
    "complexity": {"complexity.SQUARES": (4, 8), "complexity.SIDES": {1: (10, 20), 2: (10, 12)}},
    "crashes": {"crashes.CONFIG": replace(crashes.CONFIG, steps=15)},
    "optimizers": {"optimizers.NAMED": {"digits": tiny_recipe}},
    "peers": {
        "peers.KINDS": {
            "fashion": replace(
                peers.KINDS["fashion"], source="gray.npz", recipe=tiny_recipe, validation=2, timed_batches=(1,)
            )
        }
    },
    "table1": {"table1.SIZES": (16, 32), "table1.PAPER": {"Axial Transformer": "yes yes yes yes"}},
    "triangle": {"triangle.peak_memory": lambda run: len(run())},
}
"""Constants that make a script small where no option does."""

TINY = {
    "ablation.py run": "run . --out rows --groups fashion --rows 'axial, LSTM' --steps 1",
    "ablation.py row": "row . fashion 'axial, LSTM' 0 1",
    "ablation.py table": f"table --out {MEASURED}/ablation_fashion",
    "attention.py": "--rounds 1",
    "attention.py --equation-4-only": "--equation-4-only --rounds 1",
    "complexity.py": "plot.png --rounds 1",
    "compression.py rounding": "rounding model gray.npz --count 4",
    "compression.py overhead": "overhead model gray.npz --counts 4",
    "crashes.py": "--kills 1",
    "decode.py": "--size 3 --width 8 --heads 1 --layers 2 2 1 --batches 1 2 --repeats 1 --rows 1 --positions 1",
    "exact_functions.py": "--every 67108859",
    "exact_settings.py": "model gray.npz --count 4 --block 2 --only threads backwards together",
    "exact_speed.py": "--model model --images 2 --rounds 1",
    "fields.py": "--steps 1 --dim 16 --side 3 --count 8 --held-out 2 --batch 2",
    "fashion_classifier.py": "clothes.npz clothes.npz --width 4 --epochs 1 --batch 4 --seeds 0",
    "gpu_report.py --only": "--dry-run --only decoding",
    "optimizers.py": "--recipe digits --steps 1",
    "outlier_scores.py": "model gray.npz --others gray.npz --count 2",
    "peers.py run": "run . --out rows --data fashion --models axial --seconds 0.01 --rates 1 --seeds 2",
    "peers.py trial": "trial . fashion 'gated PixelCNN' muon 0.01 0 0.01",
    "peers.py table": f"table --out {MEASURED}/peers_fashion",
    "random_calls.py": "--calls 28",
    "scan_sets.py": "new/scans",
    "stable_training.py": "data new.jsonl --sets dna --steps 2",
    "table1.py": "--depths 1 3 --reach-sizes 8 --decode-size 4",
    "threads.py": "--busy 0 --turns 300 --seconds 0",
    "tokens.py encode": "encode clothes.npz clothes.npz tokens --codes 300 --steps 2 --batch 3",
    "tokens.py sizes": "sizes codes.npy",
    "tokens.py decode": "decode model_of_codes codes.npy decoded.png",
    "train.py": "--recipes digits --batch 2 --precisions auto --compiled False --seconds 0 --threads 1",
    "triangle.py": "--residues 4 --dim 8 --heads 2 --rounds 1",
    "varied_photos.py": "photos varied --copies 2",
    "video.py": "model_of_clips clips.npz --strips-to strips.png",
    "volume_outliers.py": "runs/volume volume.npy --contrasts 1",
    "own_data.py": "data --kinds table --minutes 0.05",
    "volumes.py halves": "halves --data volume.npy --out new/halves",
    "volumes.py table": "table --data volume.npy --small",
}
"""The smallest arguments of each command, in a folder with tiny data."""

ELSEWHERE = {
    "authors.py time": "needs TensorFlow 2.15; tests/benchmarks/test_authors.py has all but that",
    "authors.py cases": "needs TensorFlow 2.15; tests/benchmarks/test_authors.py has all but that",
    "authors_worker.py": "needs TensorFlow 2.15",
    "attention.py --package-only": "needs the package axial_attention, of the extra `benchmarks`",
    "public_datasets.py": "downloads; tests/benchmarks/test_datasets.py has a server of its own",
    "gpu_report.py": "starts processes: slow, tests/benchmarks/test_gpu_report.py",
    "masks.py": "compared with the pages' drawings, below",
}
"""Commands that the table lacks, and why."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with tiny data and models."""
    folder, rng = tmp_path_factory.mktemp("tiny"), np.random.default_rng(0)
    ramp = (np.arange(40 * 4 * 4) // 3 % 256).astype(np.uint8).reshape(40, 4, 4)
    np.savez(folder / "gray.npz", images=ramp)
    np.savez(folder / "clothes.npz", images=rng.integers(0, 256, (8, 28, 28), np.uint8), labels=np.arange(8))
    np.savez(folder / "clips.npz", images=rng.integers(0, 256, (2, 2, 16, 16, 3), np.uint8))
    np.save(folder / "codes.npy", rng.integers(0, 300, (3, 2, 2), np.int16))
    np.save(folder / "volume.npy", rng.integers(-9, 300, (16, 9, 20), np.int16))
    (folder / "model_of_codes").mkdir()
    save_file(tokens.VQ(300).state_dict(), folder / "model_of_codes" / tokens.WEIGHTS)
    (folder / "photos").mkdir()
    Image.fromarray(rng.integers(0, 256, (160, 144, 3), np.uint8)).save(folder / "photos" / "one.png")
    random_model(small_config((4, 4), num_values=256), torch.float32).save_pretrained(folder / "model")
    volume = small_config((4, 4, 8), num_values=400, lowest=-20, **CENTRED)
    random_model(volume, torch.float32).save_pretrained(folder / "runs" / "volume")
    clips = small_config((2, 16, 16), 3, "columns", num_values=256)
    random_model(clips, torch.float32).save_pretrained(folder / "model_of_clips")
    return folder


@pytest.mark.parametrize("command", TINY)
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
    known = TINY.keys() | ELSEWHERE
    assert every - known == set()
    assert {command for command in known if command.split(" -")[0] not in every} == set()


class Parsed(Exception):
    """The words were understood."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_script_understands_its_commands_on_a_page(page, monkeypatch):
    def parse(app, words):
        app.parse_args(words, exit_on_error=False, print_error=False)
        raise Parsed

    monkeypatch.setattr(command_line.App, "__call__", parse)
    for _, path, *words in (command for command in commands(page) if command[0] == "python"):
        script = Path(path)
        assert {script.name, f"{script.name} {words[:1] and words[0]}"} & (TINY.keys() | ELSEWHERE)
        with pytest.raises(Parsed):
            benchmark_commands.run(script.name, words)


def test_the_drawings_of_the_pages_are_those_of_masks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert benchmark_commands.run("masks.py", ["new/images"]) == 0
    drawn = sorted((tmp_path / "new" / "images").iterdir())
    assert len(drawn) == 9
    for path in drawn:
        assert path.read_text() == (DOCS / "images" / path.name).read_text(), path.name


def test_the_exponents_of_a_page_are_those_that_are_counted():
    page = (DOCS / "explanation" / "complexity.md").read_text()
    rows = re.findall(r"^\| (\d) \| \d[^|]* to [^|]* \| (.*) \|$", page, re.MULTILINE)
    found = {axes: complexity.counted(axes) for axes in complexity.SIDES}
    assert len(rows) == len(found)
    for axes, cells in rows:
        of_axes = found[int(axes)]
        counted = [f"{value:.2f}" for value in of_axes["exponents"].values()]
        assert cells.split(" | ") == [*counted, f"{of_axes['savings, largest']:,.0f}"]


@pytest.mark.parametrize(
    ("page", "title", "script", "stored"),
    [
        ("benchmarks.md", "Other models", "peers.py", ["peers_fashion", "peers_photos"]),
        ("paper_in_miniature.md", "Table 2", "ablation.py", ["ablation_fashion", "ablation_photos"]),
    ],
)
def test_a_page_quotes_the_stored_measurements(page, title, script, stored, capsys):
    for name in stored:
        benchmark_commands.run(script, ["table", "--out", str(MEASURED / name)])
    printed = re.findall(r"(\d+\.\d+) ± (\d+\.\d+)", capsys.readouterr().out)
    rounded = {f"{float(mean):.{n}f} ± {float(error):.{n}f}" for mean, error in printed for n in (2, 3)}
    (section,) = (part for part in (DOCS / page).read_text().split("\n## ") if part.startswith(title))
    quoted = re.findall(r"\d+\.\d+ ± \d+\.\d+", section)
    assert len(quoted) >= 7
    assert set(quoted) - rounded == set()


@pytest.mark.slow
def test_the_pages_quote_table_1_as_it_is_measured(capsys):
    assert benchmark_commands.run("table1.py", ["--depths", "1", "2", "3", "4"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    results, benchmarks = ((DOCS / name).read_text() for name in ("results.md", "benchmarks.md"))
    for name, row in rows.items():
        shares = " | ".join(f"{share:.0%}".replace("%", " %") for share in row["reach"]["16"].values())
        assert f"| {name} | {shares} |" in results
        keys = ("naive", "semi_parallel", "cached", "sequential")
        millions = [row["decode"][key] and row["decode"][key] / 1e6 for key in keys]
        cells = [f"{n:,.1f}" if n and n < 1000 else "" if n is None else f"{n:,.0f}" for n in millions]
        assert f"| {name} | {' | '.join(cells)} |".replace("|  |", "| |") in benchmarks
    grows = {name: f"{row['exponent']:.2f} | no" for name, row in rows.items() if not row["own_operators"]}
    for name in ("Transformer", "Strided Sparse Transformer", "Axial Transformer"):
        assert f"| {name} | {grows[name]}" in results
    assert f"{rows['Axial Transformer']['parallel']:.0%}".replace("%", " %") + " (semi-parallel)" in results
