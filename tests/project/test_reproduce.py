"""Every command of docs/how-to/reproduce_the_paper.md runs, on stand-ins of the published files, to a number.

The commands and the overrides are read out of the page. Commands of the shell run with stand-ins of gcloud and of
TensorFlow Datasets.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import recipes
from axial_transformers.data import load
from tests.paths import ROOT
from tests.tfrecord_writer import video_record, write_records

PAGE = (ROOT / "docs" / "how-to" / "reproduce_the_paper.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
OVERRIDES = {
    name: shlex.split(words) for name, words in re.findall(r"^\| (?!the tests)([^|]+) \| `(--[^`]+)` \|$", PAGE, re.M)
}
COSTS = dict(re.findall(r"^\| `(\w+)` \| (\d.*)\|$", PAGE, re.M))
SIDE = 8


def pictures(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def steps() -> list:
    """Each training with the evaluation of its run; blocks that hold commands of the shell as they are."""
    found = []
    for block in BLOCKS:
        lines = block.splitlines()
        if not all(line.startswith("axial ") for line in lines):
            found.append(pytest.param(lines, id=lines[0]))
            continue
        for training, evaluation in zip(lines[::2], lines[1::2], strict=True):
            run = run_of(training)
            assert shlex.split(evaluation)[:3] == ["axial", "evaluate", run]
            found.append(pytest.param([training, evaluation], id=run))
    return found


def run_of(training: str) -> str:
    """The folder of a run, as the command that begins it sets it."""
    words = shlex.split(training)
    return words[words.index("--out") + 1] if "--out" in words else f"runs/{words[2]}"


def changed(words: list[str]) -> list[str]:
    """A command with the overrides that the page states, but of nothing that it sets itself."""
    if words[1] == "import-official":
        return [*words, *OVERRIDES["the authors' checkpoints"]]
    if words[1] != "train":
        return words
    kind = "of BAIR" if words[2] == "bair" else "of ImageNet"
    if "block_transformer" in words[2]:
        kind = "of ImageNet, Block Transformer"
    added = OVERRIDES["every training"] + OVERRIDES[kind]
    assert not {word for word in added if word.startswith("--")} & set(words), words
    return [*words, *added]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with the files of the page's section 1, but for the unpacked ones, and the commands that it calls."""
    folder = tmp_path_factory.mktemp("published")
    for size in (32, 64):
        for seed, (part, count) in enumerate([("train", 5), ("valid", 3)]):
            images = folder / f"imagenet{size}" / f"{part}_{size}x{size}"
            images.mkdir(parents=True)
            for i, pixels in enumerate(pictures(count, seed)):
                Image.fromarray(pixels).save(images / f"{i:07d}.png")
            with tarfile.open(folder / f"{images.name}.tar", "w") as tar:
                tar.add(images, images.name)
        batches = folder / f"imagenet{size}_npz"
        batches.mkdir()
        for name, count in {"train_data_batch_1": 3, "train_data_batch_2": 2, "val_data": 2}.items():
            planes = pictures(count, len(name)).transpose(0, 3, 1, 2).reshape(count, -1)
            labels = np.arange(1000 - count, 1000) + 1
            np.savez(batches / f"{name}.npz", data=planes, labels=labels, mean=planes.mean(0))
    frames = np.random.default_rng(1).integers(0, 256, (2, 6, 64, 64, 3), dtype=np.uint8)
    for i in range(6):
        write_records(folder / "softmotion30_44k" / "train" / f"traj_{i}.tfrecords", map(video_record, frames))
    write_records(folder / "softmotion30_44k" / "test" / "traj_0.tfrecords", map(video_record, frames[:, ::-1]))
    return folder


@pytest.fixture
def here(published, tmp_path, monkeypatch):
    """A working folder with those files and the stand-ins of gcloud, python and TensorFlow Datasets."""
    for path in published.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "tensorflow_datasets.py").write_text(
        "import numpy as np\n"
        "def load(name, split, shuffle_files):\n"
        f"    return [{{'image': np.full(({SIDE}, {SIDE}, 3), i, np.uint8)}} for i in range(10)]\n"
        "def as_numpy(examples):\n"
        "    return examples\n"
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    checkpoint = ROOT / "tests" / "data" / "official_e"
    for name, script in {
        "python": f'exec {sys.executable} "$@"',
        # storage cp FROM FROM FROM TO; of the three files, the stand-in lacks `checkpoint`
        "gcloud": f'to="${{@: -1}}"; for from in "${{@:3:3}}"; do cp {checkpoint}/"${{from##*/}}" "$to" || true; done',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_shell(lines: list[str], here: Path) -> None:
    """Runs the lines before the next command of this package."""
    if any(line.startswith("tar ") for line in lines):
        for name in ("imagenet32", "imagenet64"):
            (here / name).unlink()  # they are to be unpacked
    done = subprocess.run(["bash", "-e", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("lines", steps())
def test_the_commands_run_to_a_number(lines, here, axial):
    shell, numbers = [], 0
    for line in lines:
        if not line.startswith("axial "):
            shell.append(line)
            continue
        if shell:
            run_shell(shell, here)
            shell = []
        _, verb, *words = changed(shlex.split(line))
        outcome = axial(verb, *words)
        assert outcome.status == 0, outcome.err
        if verb == "evaluate":
            metrics = json.loads(outcome.out.splitlines()[-1])
            assert 0 < metrics["bits_per_dim"] < 30
            assert metrics["images"] > 0
            numbers += 1
    if shell:
        run_shell(shell, here)
        for part, count in {"train": 5, "validation": 3}.items():
            assert len(load(here / "imagenet32", split=part)) == count
    assert numbers == sum("evaluate" in line for line in lines)


def test_every_published_recipe_has_a_command_and_a_cost():
    named = {name for name in recipes.NAMED if name.startswith("imagenet") or name == "bair"}
    assert named == set(COSTS) == {words.split()[2] for words in re.findall(r"^axial train .*$", PAGE, re.M)}
