"""README and quickstart: their commands run in their order, and README's numbers are those of the results pages."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import __version__ as version
from tests.conftest import TINY, Axial
from tests.paths import ROOT
from tests.small_models import random_model, small_config

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
        return fitted_briefly(words)
    layers = TINY[TINY.index("--model.outer-layers") :]
    return [*words, *(layers if "--model.dim" in words else TINY), *FEW_STEPS]


def fitted_briefly(words: list[str]) -> list[str]:
    """The command, which trains for a second or two where it trains for minutes; its archive may be large then."""
    fits = words[0] == "compress" and (len(words) == 3 or words[3].startswith("--"))
    words = [*words, "--fit", "0"] if fits and "--fit" not in words else words
    force = ["--force"] if fits else []
    return ["0.02" if before == "--fit" else word for before, word in zip(["", *words], words)] + force


def pictures(folder: str, *names: str, size: tuple[int, int] = (70, 68)) -> None:
    """Files of smooth colours, larger than what is modelled as a whole."""
    Path(folder).mkdir()
    for i, name in enumerate(names):
        ramp = np.arange(size[0] * size[1] * 3).reshape(*size, 3)
        Image.fromarray((ramp // (3 + i) % 256).astype(np.uint8)).save(f"{folder}/{name}.png")


def test_the_commands_of_the_readme_run_in_its_order(axial: Axial):
    pictures("my_photos", *(str(i) for i in range(12)))
    pictures("scans", "a", "b", size=(33, 65))
    for words in commands("README.md"):
        done = axial(*made_small(words))
        assert done.status == 0, (words, done.err)
    for file in Path("my_photos").iterdir():
        with Image.open(file) as before, Image.open(Path("again") / file.name) as after:
            assert np.array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.slow
def test_the_commands_of_the_quickstart_run_in_its_order(axial: Axial, monkeypatch: pytest.MonkeyPatch):
    random_model(small_config((8, 8), num_values=17, num_classes=10)).float().save_pretrained("demo/run")
    for words in commands("docs/quickstart.md"):
        if words[0] == "demo":  # which tests/cli/test_demo.py runs
            continue
        done = axial(*words, *(["digits"] if words[1] == "demo/run" and words[0] != "sample" else []))
        assert done.status == 0, (words, done.err)
    for file in Path("sampled").iterdir():
        with Image.open(file) as before, Image.open(Path("sampled_again") / file.name) as after:
            assert np.array_equal(np.asarray(before), np.asarray(after))


MEASURED = r"\d+\.\d+(?: ± \d+\.\d+)?|\de-\d|\d+,\d+|\d+(?= (?:s|times|photographs)\b)"
"""Numbers that a command prints, in a text."""


def measured(page: str) -> set[str]:
    """Return the numbers in the prose and the tables of a page."""
    text = re.sub(r"```.*?```|\]\([^)]*\)", "", (ROOT / page).read_text(), flags=re.DOTALL)
    return set(re.findall(MEASURED, " ".join(text.split())))


def test_every_number_of_the_readme_is_on_the_results_or_the_benchmarks_page():
    known = measured("docs/results.md") | measured("docs/benchmarks.md")
    stated = measured("README.md") - {"3.11", "0.2", "1912.12180", "2.0"}  # versions and an address
    assert {"2.712 ± 0.008", "18,913", "0.041"} <= stated
    assert stated - known == set()


def test_the_readme_fits_one_screen_and_its_version_is_the_packages():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900  # the words of its prose: test_prose.py
    assert f"Version {version}:" in text
