"""Completion in shells: what the script offers is what the verbs take."""

import shutil
import subprocess

import pytest

from axial_transformers import cli, recipes
from tests.conftest import Axial

WORDS = {
    "axial ev": {"evaluate"},
    "axial ": {*cli.COMMANDS},
    "axial sample x --temp": {"--temperature"},
    "axial train --training.st": {"--training.steps"},
    "axial inspect --dep": {"--dependencies"},
    "axial import-official x --verif": {"--verify"},
    "axial train fashion": {name for name in recipes.NAMED if name.startswith("fashion")},
    "axial completion z": {"zsh"},
}


def test_every_shells_script_names_the_verbs_and_their_options(axial: Axial):
    for shell, option in {"bash": "--heat-maps", "zsh": "--heat-maps", "fish": "-l heat-maps"}.items():
        status, out, err = axial("completion", shell)
        assert (status, err) == (0, "")
        for verb in cli.COMMANDS:
            assert verb in out
        assert option in out
    assert (
        axial("completion", "tcsh").err
        == 'axial completion: Invalid value "tcsh" for SHELL. Choose from: "bash", "zsh", "fish".\n'
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_by_it(axial: Axial):
    tries = "".join(
        f"COMP_WORDS=({words}{empty}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _axial; echo ${{COMPREPLY[@]}}\n"
        for words, empty in ((words, "''" * words.endswith(" ")) for words in WORDS)
    )
    run = subprocess.run(["bash", "-c", axial("completion", "bash").out + tries], capture_output=True, text=True)
    assert run.stderr == ""
    assert [{*line.split()} for line in run.stdout.splitlines()] == [*WORDS.values()]
