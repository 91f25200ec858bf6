"""The rooms of the package, and how large they may be; pyproject.toml has the directions of their imports."""

import re
import tomllib

import pytest

from axial_transformers import engine
from tests.paths import ROOT

SOURCE = ROOT / "src" / "axial_transformers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
MAX_LINES = 600
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


LINES_OF_ROOMS = {
    ("cli",): 1_900,
    ("layers", "ops"): 3_300,
    ("engine",): 1_405,
    ("studio.py",): 250,
    ("decoding",): 1_520,
    ("pictures",): 900,
    ("recipes",): 550,
    ("models", "likelihood"): 2_680,
    ("training",): 3_000,
    ("data",): 2_802,
    ("compression",): 2_000,
    ("storage",): 950,
    ("machine.py",): 150,
    ("__init__.py", "__main__.py", "doors.py", "machine.py", "progress.py", "wording.py"): 420,
}
"""Rooms that were rebuilt may not grow; the engine is to become smaller."""
LINES_OF_C = 4_585
"""Of the engine and of axl."""


@pytest.mark.parametrize("rooms", LINES_OF_ROOMS)
def test_a_rebuilt_room_does_not_grow(rooms):
    lengths = [len(text.splitlines()) for file, text in FILES.items() if file in rooms or file.split("/")[0] in rooms]
    assert 0 < sum(lengths) <= LINES_OF_ROOMS[rooms]


def test_the_c_sources_do_not_grow():
    sources = [*(SOURCE / "engine").glob("*.[ch]"), *(ROOT / "tools" / "axl").glob("*.c")]
    assert 0 < sum(len(path.read_text().splitlines()) for path in sources) <= LINES_OF_C


def test_no_file_is_long():
    assert [file for file, text in FILES.items() if len(text.splitlines()) > MAX_LINES] == []


def test_nothing_outside_the_engine_imports_from_inside():
    for file, text in FILES.items():
        if not file.startswith("engine/"):
            assert not re.search(r"(from|import) axial_transformers\.engine\.", text), file
            names = re.findall(r"from axial_transformers\.engine import (?:\(([^)]*)\)|(.*))", text)
            assert {*" ".join(map(" ".join, names)).replace(",", " ").split()} <= {*engine.__all__}, file


def test_packages_whose_private_names_are_used_have_a_version_cap():
    adapters = {file.split("/")[-1].removesuffix("_private.py") for file in FILES if file.endswith("_private.py")}
    capped = {re.split(r"\W", each)[0] for each in PROJECT["project"]["dependencies"] if "<" in each.split(";")[0]}
    assert adapters == {"torch"} <= capped


def test_the_source_tree_lists_the_rooms_in_the_order_of_imports():
    (tree,) = re.findall(
        r"```text\nsrc/axial_transformers/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL
    )
    assert re.findall(r"^  (\w+)", tree, re.MULTILINE) == ROOMS


def test_nothing_is_unpickled():
    """Model and data files come from anywhere: none may run code when it is read. Ruff finds pickle itself."""
    unsafe = r"= torch\.(load|save)\(|allow_pickle=(?!False)|import (dill|joblib|shelve|marshal)"
    assert [file for file, text in FILES.items() if re.search(unsafe, text)] == []
