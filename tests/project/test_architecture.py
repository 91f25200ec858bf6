"""The rooms of the package: imports go down only, between files as between rooms, those inside functions included."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from axial_transformers import engine
from tests.paths import ROOT

SOURCE = ROOT / "src" / "axial_transformers"
PACKAGE = SOURCE.name
ROOMS = [
    "cli", "studio", "recipes", "training", "compression", "likelihood", "decoding",
    "importers", "models", "layers", "ops", "engine", "machine", "pictures", "data", "storage", "progress",
    "wording", "doors",
]  # fmt: skip
"""From the top to the bottom: a room may import those behind it."""
MAX_LINES = 600
ADAPTERS = {
    "ops/torch_private.py": {"torch"},
}
"""The files that may use private names of other packages, and these packages. Each adapter has a test of its own."""
HAVE_C = {
    "engine/library.py", "engine/network.py", "engine/threads.py",
    "ops/compiled_attention.py", "ops/elementwise.py", "ops/operators.py", "training/freed_memory.py",
    "training/processes.py",
}  # fmt: skip
"""The files that call public functions of C libraries: the system's, OpenMP's and Python's."""
PRIVATE = re.compile(r"(\w+\.)*_[a-zA-Z][\w.]*")
FOREIGN = re.compile(r"\b_[a-zA-Z]")
OF_NAMED_TUPLES = {"_asdict", "_fields", "_fields_", "_replace"}
"""Public, for all their underscores; `_fields_` is of C structures."""
OF_WEIGHTS = {"_round_"}
"""Parts of the names of weights."""


def test_every_room_has_its_place():
    names = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")}
    assert names - {"__init__", "__main__", "__pycache__", "pretrained"} == set(ROOMS)


def test_imports_go_down_between_rooms_and_in_no_circle_between_files():
    assert [*violations(SOURCE)] == []


LINES_OF_ROOMS = {
    ("cli",): 1_900,
    ("layers", "ops"): 3_100,
    ("engine",): 1_405,
    ("studio.py",): 250,
    ("decoding",): 1_500,
    ("pictures",): 885,
    ("recipes",): 550,
    ("models", "likelihood"): 2_680,
    ("training",): 3_000,
    ("data",): 3_394,
    ("compression",): 2_223,
    ("storage",): 950,
    ("machine.py",): 150,
    ("__init__.py", "__main__.py", "doors.py", "machine.py", "progress.py", "wording.py"): 420,
}
"""Rooms that were rebuilt may not grow; the engine is to become smaller."""
LINES_OF_C = 4_610
"""Of the engine and of axl."""


@pytest.mark.parametrize("rooms", LINES_OF_ROOMS)
def test_a_rebuilt_room_does_not_grow(rooms):
    paths = [path for room in rooms for path in [SOURCE / room, *(SOURCE / room).rglob("*.py")] if path.is_file()]
    lengths = [len(path.read_text().splitlines()) for path in paths]
    assert 0 < sum(lengths) <= LINES_OF_ROOMS[rooms]


def test_the_c_sources_do_not_grow():
    sources = [*(SOURCE / "engine").glob("*.[ch]"), *(ROOT / "tools" / "axl").glob("*.c")]
    assert 0 < sum(len(path.read_text().splitlines()) for path in sources) <= LINES_OF_C


def test_no_file_is_long():
    lengths = {path: len(path.read_text().splitlines()) for path in files(SOURCE)}
    assert [path.name for path, length in lengths.items() if length > MAX_LINES] == []


def test_nothing_outside_the_engine_imports_from_inside():
    inside = [
        (file, name)
        for file, tree in trees(SOURCE)
        if not file.startswith("engine/")
        for name in imported_names(tree, package_of(file))
        if re.match(rf"{PACKAGE}\.engine\b", name) and name.removeprefix(f"{PACKAGE}.engine.") not in engine.__all__
    ]
    assert inside == []


def test_private_names_of_other_packages_are_used_by_adapters_only():
    assert {file for file, _ in private_uses(SOURCE)} == set(ADAPTERS), [*private_uses(SOURCE)]


def test_packages_with_an_adapter_have_a_version_cap():
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    capped = {re.split(r"\W", each)[0] for each in requirements if "<" in each.split(";")[0]}
    assert set().union(*ADAPTERS.values()) <= capped


def test_c_functions_are_called_by_few_files():
    with_c = {file for file, tree in trees(SOURCE) for each in imported_names(tree, PACKAGE) if "ctypes" in each}
    assert with_c == HAVE_C


def test_no_two_files_have_one_name():
    names = Counter(path.name for path in files(SOURCE) if "cli" not in path.parts)
    in_several_rooms = {"__init__.py", "config.py", "reference.py"}
    assert {name for name, count in names.items() if count > 1} <= in_several_rooms


def test_the_source_tree_lists_the_rooms_in_the_order_of_imports():
    assert listed_rooms((ROOT / "CONTRIBUTING.md").read_text()) == ROOMS


def test_nothing_is_unpickled():
    """Model and data files come from anywhere: none may run code when it is read."""
    unsafe = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"}
    for file, tree in trees(SOURCE):
        assert not {name.split(".")[0] for name in imported_names(tree, PACKAGE)} & unsafe, file
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("torch.load", "torch.save"), file
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", file


def files(source: Path) -> Iterator[Path]:
    """All but the package's own __init__ and __main__, which are above the rooms."""
    return (path for path in sorted(source.rglob("*.py")) if path.parent != source or not path.stem.startswith("__"))


def trees(source: Path) -> Iterator[tuple[str, ast.AST]]:
    """The files of a package and what they say."""
    return ((path.relative_to(source).as_posix(), ast.parse(path.read_text())) for path in sorted(source.rglob("*.py")))


def package_of(file: str) -> str:
    """The package that a file's relative imports start from."""
    return ".".join([PACKAGE, *Path(file).parts[:-1]])


def private_uses(source: Path) -> Iterator[tuple[str, str]]:
    """Every use of a private name of another package, by file.

    A name counts wherever it stands: imported, behind a dot, or as text, for getattr, vars and annotations.
    """
    own = {name for _, tree in trees(source) for node in ast.walk(tree) for name in defined(node)}
    texts = own | OF_WEIGHTS
    for file, tree in trees(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found = [each for each in imported_names(node, PACKAGE) if FOREIGN.search(each)]
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                on_self = ast.unparse(node.value) in ("self", "cls") and node.attr in own
                public = node.attr in OF_NAMED_TUPLES or ast.unparse(node) == "os._exit"
                found = [] if on_self or public else [node.attr]
            else:
                found = (
                    [str(node.value)]
                    if isinstance(node, ast.Constant) and node.value not in texts | OF_NAMED_TUPLES
                    else []
                )
            yield from ((file, each) for each in found if isinstance(node, ast.stmt) or PRIVATE.fullmatch(each))


def defined(node: ast.AST) -> Iterator[str]:
    """The name that a node defines: a function, a class, a variable or an attribute of `self`."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
        yield node.attr


def violations(source: Path) -> Iterator[str]:
    """Imports of a package that go up, and the first circle among those that do not."""
    modules = {module_of(source, path): path for path in files(source)}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = imported_names(ast.parse(path.read_text()), f"{PACKAGE}.{package}".rstrip("."))
        used = {nearest(name, modules) for name in names} - {None, module}
        upward = {name for name in used if ROOMS.index(room_of(name)) < ROOMS.index(room_of(module))}
        yield from (f"{module}: {room_of(module)} must not import {room_of(name)}" for name in sorted(upward))
        graph[module] = used - upward
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"circle: {' <- '.join(error.args[1])}"


def module_of(source: Path, path: Path) -> str:
    """The name of a file's module within the package."""
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room that a module lies in."""
    return module.split(".")[0]


def nearest(name: str, modules: dict[str, Path]) -> str | None:
    """The module of the package that an imported name is, or lies in."""
    package, *parts = name.split(".")
    if package != PACKAGE:
        return None
    return next((found for k in range(len(parts), 0, -1) if (found := ".".join(parts[:k])) in modules), None)


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Every name that is imported anywhere in the tree, with the module that it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            packages = package.split(".")
            above = packages[: len(packages) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def listed_rooms(page: str) -> list[str]:
    """Return the rooms in the source tree of CONTRIBUTING, as they follow each other."""
    (tree,) = re.findall(r"```text\nsrc/axial_transformers/\n(.*?)```", page, flags=re.DOTALL)
    return [
        line.split()[0].removesuffix("/").removesuffix(".py") for line in tree.splitlines() if line.startswith("  ")
    ]
