"""The README's Python examples run, from top to bottom, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from axial_transformers import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines() if line.strip()])
def test_the_commands_exist(line):
    words = shlex.split(line, comments=True)
    if words[0] == "axial":
        assert words[1] in cli.VERBS
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()


def test_the_tree_is_the_tree():
    tree = next(block for block in blocks("text") if block.startswith("src/axial_transformers/"))
    package, named = ROOT / "src" / "axial_transformers", set()
    for line in tree.splitlines():
        name = line.split()[0]
        assert ((package if line.startswith(" ") else ROOT) / name).exists(), name
        named.add(name.rstrip("/"))
    rooms = {path.name for path in package.iterdir()} - {"__init__.py", "__pycache__", "py.typed"}
    assert rooms <= named
