"""README and quickstart: their commands run in their order, on small data of the kinds that they name."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import TINY, Axial

ROOT = Path(__file__).parents[1]
OFFICIAL = Path(__file__).parent / "data" / "official_e"
FEW_STEPS = ["--training.steps", "2", "--training.batch-size", "2", "--samples", "1", "--validate-on", "2"]

pytestmark = pytest.mark.usefixtures("home")


def commands(page: str) -> list[list[str]]:
    """The words after `axial` of each command in the page's blocks, in their order."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("axial ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def made_small(words: list[str]) -> list[str]:
    """The command, with a small model and few steps where it begins a run."""
    if words[0] != "train" or words[1].startswith("runs/"):
        return words
    layers = TINY[TINY.index("--model.outer-layers") :]
    return [*words, *(layers if "--model.dim" in words else TINY), *FEW_STEPS]


def pictures(folder: str, *names: str, size: tuple[int, int] = (70, 68)) -> None:
    """Files of smooth colours, larger than what is modelled as a whole."""
    Path(folder).mkdir()
    for i, name in enumerate(names):
        ramp = np.arange(size[0] * size[1] * 3).reshape(*size, 3)
        Image.fromarray((ramp // (3 + i) % 256).astype(np.uint8)).save(f"{folder}/{name}.png")


def test_the_commands_of_the_readme_run_in_its_order(axial: Axial):
    pictures("my_photos", *(str(i) for i in range(12)))
    pictures("scans", "a", "b", size=(33, 65))
    shutil.copytree(OFFICIAL, "logdir")
    for words in commands("README.md"):
        done = axial(*made_small(words))
        assert done.status == 0, (words, done.err)
    for file in Path("my_photos").iterdir():
        with Image.open(file) as before, Image.open(Path("again") / file.name) as after:
            assert np.array_equal(np.asarray(before), np.asarray(after))


ARRAYS = {
    "my_photos/": "my_photos.npz",
    "scans/": "scans.npz",
    "again/": "again.npz",
    "new_photos/": "new_photos.npz",
    "new_photos/night.png": "scans.npz",
    "night_again.png": "again.npz",
}
"""Arrays in the place of pictures."""


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_same_commands_run_on_arrays(axial: Axial, page):
    values = (np.arange(12 * 70 * 68).reshape(12, 70, 68) // 7 % 256).astype(np.uint8)
    np.savez("my_photos.npz", values)
    np.savez("scans.npz", values[:2, :33, :65])
    np.savez("new_photos.npz", values[:2, :33, :65])
    known = {"my_photos/", "runs/my_photos", "runs/photos"}
    for words in commands(page):
        if known & {*words}:
            done = axial(*made_small([ARRAYS.get(word, word) for word in words]))
            assert done.status == 0, (words, done.err)
    with np.load("again.npz") as again:
        assert np.array_equal(again["arr_0"], values if page == "README.md" else values[:2, :33, :65])


def test_the_commands_of_the_quickstart_run_in_its_order(axial: Axial):
    pictures("my_photos", *(str(i) for i in range(12)))
    pictures("new_photos", "night", "broken", size=(33, 65))
    for words in commands("docs/quickstart.md"):
        done = axial(*made_small(words))
        assert done.status == 0, (words, done.err)
    with Image.open("new_photos/night.png") as before, Image.open("night_again.png") as after:
        assert np.array_equal(np.asarray(before), np.asarray(after))
