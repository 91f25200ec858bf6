"""Runs the commands of benchmarks/ and experiments/ within one process."""

import ast
import importlib
import io
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from tests.paths import ROOT

FOLDERS = ROOT / "benchmarks", ROOT / "experiments"
SCRIPTS = sorted(path for folder in FOLDERS for path in folder.glob("*.py"))
IN_A_PROCESS = subprocess.run
MEASURED = ROOT / "experiments" / "measured"
sys.path[:0] = map(str, FOLDERS)


def commands_of(script: Path) -> list[str]:
    """The names of the commands of a script: itself, or with each word that `run_command` tells apart."""
    tree = ast.parse(script.read_text())
    if main_block(tree) is None:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "run_command"]
    words = [ast.unparse(word) for call in calls if len(call.args) > 1 for word in call.args]
    return [f"{script.name} {word}" for word in words] or [script.name]


def main_block(tree: ast.Module) -> ast.If | None:
    blocks = (node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    return next(blocks, None)


def run(name: str, words: Sequence[str]) -> int:
    """The exit status of a script, whose module is imported once, as `python FOLDER/NAME WORDS` leaves it."""
    module = importlib.import_module(name.removesuffix(".py"))
    block = main_block(ast.parse(next(path for path in SCRIPTS if path.name == name).read_text()))
    assert block is not None
    threads = torch.get_num_threads()
    try:
        with patch.object(sys, "argv", [name, *words]), patch.dict(os.environ):
            exec(compile(ast.Module(block.body, []), name, "exec"), vars(module))
    except SystemExit as left:
        if isinstance(left.code, str):
            raise
        return int(left.code or 0)
    finally:
        torch.set_num_threads(threads)
    return 0


def run_in_place(command: Sequence[object], **how: Any) -> subprocess.CompletedProcess[str]:
    """A stand-in of `subprocess.run`, for which a script of these folders needs no process."""
    if command[0] != sys.executable:
        return IN_A_PROCESS(command, **how)
    script, *words = map(str, command[1:])
    with redirect_stdout(io.StringIO()) as out:
        status = run(Path(script).name, words)
    return subprocess.CompletedProcess(command, status, out.getvalue(), "")


@contextmanager
def one_process() -> Iterator[None]:
    """What scripts begin in processes runs in this one."""
    threads = SimpleNamespace(Pool=lambda count: ThreadPool(count))
    with (
        patch.object(multiprocessing, "get_context", lambda _: threads),
        patch.object(subprocess, "run", run_in_place),
    ):
        yield
