"""The findings: each has a line in the list, says what was guessed and seen, and installs pinned packages only."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

FOLDER = ROOT / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
STATED = ("Guess:", "Found:", "Ran on:", "Output:")

of_every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def test_the_list_has_a_line_for_each_script():
    linked = re.findall(r"^\| \[([\w-]+)\]\(\1\.sh\)", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(linked) == [script.stem for script in SCRIPTS]


@of_every_script
def test_a_script_states_guess_behaviour_date_and_output(script: Path):
    text = script.read_text()
    assert [word for word in STATED if f"\n# {word}" not in text] == []


@of_every_script
def test_a_script_installs_pinned_packages_without_this_one(script: Path):
    installed = re.findall(r"pip install --quiet --progress-bar off (.+)", script.read_text())
    assert len(installed) == 1
    assert [package for package in installed[0].split() if not re.fullmatch(r"[\w-]+==[\d.]+", package)] == []
    assert "axial" not in script.read_text()
