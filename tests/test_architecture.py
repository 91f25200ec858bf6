"""The rooms of the package: imports go down only, those inside functions included."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "axial_transformers"
PACKAGE = SOURCE.name
LEVELS = {
    "files": 1,
    "progress": 1,
    "workers": 1,
    "formats": 1,
    "checkpoint": 1,
    "ops": 1,
    "layers": 2,
    "models": 3,
    "likelihood": 4,
    "decoding": 4,
    "dependencies": 4,
    "costs": 4,
    "official": 4,
    "training": 5,
    "evaluation": 5,
    "sampling": 5,
    "scoring": 5,
    "compression": 5,
    "recipes": 6,
    "cli": 6,
}
APART = {"training", "evaluation", "sampling", "scoring", "compression"}
"""Rooms that do not know each other: what needs two of them is put together in cli."""
DATA_MAY_USE = {"data", "files", "formats", "workers"}
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules(tree: ast.AST, package: str) -> Iterator[str]:
    """Every module that is imported anywhere in the tree, by its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def rooms_used(path: Path) -> set[str]:
    package = ".".join([PACKAGE, *path.relative_to(SOURCE).parts[:-1]])
    names = modules(ast.parse(path.read_text()), package)
    return {parts[1] for name in names if (parts := name.split("."))[0] == PACKAGE and len(parts) > 1}


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} - {"__init__", "data"} <= set(LEVELS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path):
    here = room(path)
    if here == "__init__":
        return  # the public names come from everywhere
    for used in rooms_used(path) - {here}:
        if here == "data":
            assert used in DATA_MAY_USE, f"data must not know {used}"
        elif used != "data":
            assert LEVELS[used] <= LEVELS[here], f"{here} must not know {used}"
            assert not {here, used} <= APART, f"{here} and {used} must not know each other"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_unpickled(path):
    """Model and data files come from anywhere: none may run code when it is read."""
    tree = ast.parse(path.read_text())
    unsafe = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"}
    assert not {name.split(".")[0] for name in modules(tree, PACKAGE)} & unsafe
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_the_check_sees_imports_inside_functions_and_relative_ones():
    source = (
        "def f():\n    from axial_transformers.training import train\n    from . import order\n    from ..data import x"
    )
    found = set(modules(ast.parse(source), f"{PACKAGE}.training"))
    assert found == {f"{PACKAGE}.training.train", f"{PACKAGE}.training.order", f"{PACKAGE}.data.x"}
