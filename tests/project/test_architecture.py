"""The rooms of the package, and its weight; pyproject.toml has the directions of their imports."""

import re
import subprocess
import sys
import tomllib

from axial_transformers import engine
from tests.paths import ROOT

SOURCE = ROOT / "src" / "axial_transformers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def test_the_source_is_not_heavier_than_its_limit():
    told = subprocess.run([sys.executable, ROOT / "tools" / "weight.py"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout


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
