"""The documentation: the commands, flags, files and names there exist; its Python examples run in `make test-slow`."""

import ast
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules, resolve_name

import numpy as np
import pytest
from PIL import Image

import axial_transformers as axial
from axial_transformers import cli
from axial_transformers.cli import COMMANDS
from tests.benchmark_commands import SCRIPTS
from tests.paths import ROOT
from tests.project.test_architecture import ROOMS

PACKAGE = ROOT / "src" / "axial_transformers"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/axial_transformers/pretrained/*/*.md")])
LAZY = ("data", "models", "training")
"""Rooms that import what they offer at its first use."""
FOREIGN = "import axial_attention"
"""A package whose examples run where it is installed."""
COMMAND = r"(?:axial|make) .+|python (?:benchmarks|experiments)/.+"
LAUNCHED = r"^(?:[A-Z_]+=\S+ )*(?:torchrun .+ -m axial_transformers (?=\w)|(?=axial ))"
"""The words before a verb that torchrun starts, or before `axial` in an environment of its own."""

of_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def spans(page: Path) -> list[str]:
    """The code within lines."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command that is of this repository, in blocks and within lines."""
    for line in [line for block in blocks(page, "sh") for line in block.splitlines()] + spans(page):
        line = re.sub(LAUNCHED, lambda found: "axial " if "torchrun" in found[0] else "", line)
        if re.fullmatch(COMMAND, line) and "COMMAND" not in line:
            yield shlex.split(line, comments=True)


@cache
def described(verb: str) -> str:
    """The help of a verb, with the settings of a recipe where it takes them."""
    with redirect_stdout(io.StringIO()) as out:
        for words in [[verb]] if verb != "train" else [["train"], ["train", "digits"]]:
            with suppress(SystemExit):
                cli.main([*words, "--help"])
    return out.getvalue() + (described("train") if verb == "inspect" else "")


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text()


def has_flag(flag: str, verb: str) -> bool:
    return re.search(rf"(?<![\w-]){flag}(?![\w.-])", described(verb)) is not None


def is_word(flag: str, path: str) -> bool:
    """Whether an option of a script is a name in its source."""
    return re.search(rf"\b{flag.strip('-').replace('-', '_')}\b", source(path)) is not None


@pytest.fixture(scope="module")
def somewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models and data that the examples name, small ones in place of those that are not here."""
    folder = tmp_path_factory.mktemp("examples")
    config = axial.AxialTransformerConfig(shape=(3, 5), dim=8, heads=2, outer_layers=2, inner_layers=1)
    axial.AxialTransformer(config).save_pretrained(folder / "runs" / "fashion_mnist")
    colour = replace(config, shape=(3, 4), channels=3, layout="columns")
    for name in ("photos", "scans"):
        axial.AxialTransformer(colour).save_pretrained(folder / "runs" / name)
    np.savez(folder / "fashion_mnist_test.npz", images=np.arange(45, dtype=np.uint8).reshape(3, 3, 5))
    for split in ("train", "validation", "test"):
        frames = folder / "my_videos" / split / "video"
        frames.mkdir(parents=True)
        for i in range(16):
            Image.new("RGB", (36, 32), (i, 0, 0)).save(frames / f"{i}.png")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_the_python_examples_run_from_top_to_bottom(page, somewhere, monkeypatch):
    monkeypatch.chdir(somewhere)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        if find_spec("axial_attention") or FOREIGN not in block:
            exec(compile(block, str(page), "exec"), names)


@of_every_page
def test_the_commands_and_their_flags_exist(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for command, name, *words in commands(page):
        flags = [word.split("=")[0] for word in words if re.match("--?[a-z]", word)]
        if command == "make":
            assert f"\n{name}:" in source("Makefile"), name
        elif command == "axial":
            assert name in COMMANDS
            assert [flag for flag in flags if not has_flag(flag, name)] == []
        else:
            assert [flag for flag in flags if not is_word(flag, name)] == []
    scripts = [str(path.relative_to(ROOT)) for path in SCRIPTS]
    for flag in (word for span in spans(page) if span.startswith("--") for word in span.split() if word[:2] == "--"):
        assert any(has_flag(flag, verb) for verb in COMMANDS) or any(is_word(flag, path) for path in scripts), flag


@of_every_page
def test_the_files_modules_and_names_exist(page):
    """Links are checked by MkDocs."""
    for path in re.findall(r"\b(?:tests|benchmarks|experiments|docs)/[\w/-]+\.?\w+", page.read_text()):
        assert (ROOT / path).exists(), path
    for path in spans(page):
        if re.fullmatch(rf"({'|'.join(ROOMS)})/[\w/]*(\.py)?", path) and "COMMAND" not in path:
            assert (PACKAGE / path).exists(), path
    names = re.findall(r"\b(?:axial_transformers|axial)(?:\.[A-Za-z_]\w*)+", page.read_text())
    names += [span for span in spans(page) if re.fullmatch(rf"({'|'.join(ROOMS)})(\.\w+)+", span)]
    for node in ast.walk(ast.parse("\n".join(blocks(page, "python")))):
        if isinstance(node, ast.ImportFrom) and "axial_transformers" in (node.module or ""):
            names += [f"{node.module}.{each.name}" for each in node.names]
    for name in names:
        inner = name.removeprefix("axial_transformers.").removeprefix("axial.")
        assert resolve_name(f"axial_transformers.{inner}") is not None


def public_names() -> dict[str, object]:
    """What the package and its subpackages export, by the first name in this order."""
    packages = ["axial_transformers"]
    packages += [found.name for found in iter_modules(axial.__path__, "axial_transformers.") if found.ispkg]
    packages.remove("axial_transformers.engine")  # whose door is for the package's other rooms
    found: dict[str, object] = {}
    for package in map(importlib.import_module, packages):
        for name in getattr(package, "__all__", []):
            thing = getattr(package, name)
            if not any(thing is known for known in found.values()):
                found[f"{package.__name__}.{name}"] = thing
    return found


def test_every_public_name_has_an_entry_in_the_reference_with_an_example():
    entries: dict[str, str] = {}
    for page in ROOT.glob("docs/reference/*.md"):
        for entry in re.split(r"^(?=:::|## )", page.read_text(), flags=re.MULTILINE):
            if named := re.match(r"::: (\S+)", entry):
                entries[named[1]] = "\n".join(re.findall(r"```python\n(.*?)```", entry, flags=re.DOTALL))
    assert set(entries) == set(public_names())
    assert [name for name, example in entries.items() if not example] == []


@pytest.mark.parametrize("package", ["axial_transformers", *(f"axial_transformers.{name}" for name in LAZY)])
def test_type_checkers_find_each_public_name_where_it_is_imported_from(package):
    door = importlib.import_module(package)
    (block,) = (node for node in ast.parse(Path(door.__file__).read_text()).body if isinstance(node, ast.If))
    homes = {
        each.asname: node.module.removeprefix(f"{package}.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    assert homes == door._HOMES


def test_the_package_has_its_public_names_and_no_other():
    assert dir(axial) == sorted(axial.__all__)
    names: dict[str, object] = {}
    exec("from axial_transformers import *", names)
    assert names.keys() - {"__builtins__"} == {*axial.__all__}
    with pytest.raises(AttributeError, match="axial_atention"):
        axial.axial_atention
