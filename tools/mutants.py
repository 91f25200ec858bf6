"""Plant the faults of `mutants.json` in a copy of the checkout, one at a time: the tests of each must fail.

A fault that survives says that a test is missing. A fault is an expression or statement (`old`) that occurs once in a
function of a file, and what it becomes (`new`). How it is laid out makes no difference. In C it is a text of the file.
People chose some. A rule drew the others: an operator, a comparison, a constant or a line of a room, at random. The
list is fixed. If a place is gone, choose another fault in its room.
"""

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = Path("src", "axial_transformers")
MAX_SECONDS = 600
"""Faults that let tests run longer count as killed."""
PYTEST = [sys.executable, "-m", "pytest", "-qx", "--hypothesis-seed=0", "-p", "no:cacheprovider"]
KILLED, TOO_LONG, SURVIVED, GONE = "killed", "killed, by the limit of time", "SURVIVED", "PLACE IS GONE"
DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


class Mutant(NamedTuple):
    """A fault, in a few words, and where it is planted."""

    fault: str
    origin: str
    """chosen or drawn."""
    file: str
    """Below the package."""
    old: str
    new: str
    tests: list[str]
    """Node ids of pytest, one of which must fail."""
    function: str = ""
    """Its qualified name; of C, none."""

    def planted(self, text: str) -> str | None:
        """Return the text of the file with the fault, or None if its place is not there exactly once."""
        if not self.file.endswith(".py"):
            return text.replace(self.old, self.new) if text.count(self.old) == 1 else None
        tree = ast.parse(text)
        place = definition(tree, self.function)
        if place is None:
            return None
        planter = Planter(self.old, self.new)
        planter.generic_visit(place)
        return ast.unparse(ast.fix_missing_locations(tree)) if planter.count == 1 else None


class Planter(ast.NodeTransformer):
    """Replaces each expression and statement that reads as `old`."""

    def __init__(self, old: str, new: str) -> None:
        self.old = ast.unparse(ast.parse(old))
        (self.new,) = ast.parse(new).body
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.expr | ast.stmt) or ast.unparse(node) != self.old:
            return self.generic_visit(node)
        self.count += 1
        return self.new if isinstance(node, ast.stmt) else self.new.value


def definition(tree: ast.AST, name: str) -> ast.AST | None:
    """Return the function or class of a qualified name."""
    for part in name.split("."):
        inside = (node for node in ast.walk(tree) if isinstance(node, DEFINITIONS) and node.name == part)
        found = next(inside, None)  # the outermost
        if found is None:
            return None
        tree = found
    return tree


class Checkout:
    """A copy of the checkout, with an engine of its own, compiled by CC or cc."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        own = {"PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}
        self._environment = {"CC": "cc"} | os.environ | own
        self.compile()

    def compile(self) -> None:
        """Compile the engine of this copy."""
        command = [sys.executable, "hatch_build.py"]
        subprocess.run(command, cwd=self.root, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def run(self, tests: Sequence[str], log: Path, seconds: float | None = None) -> str:
        """Run tests and return what became of a fault; `log` takes what they print."""
        with log.open("w") as out:
            run = subprocess.Popen(
                [*PYTEST, *tests], cwd=self.root, env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
            try:
                return KILLED if run.wait(seconds) else SURVIVED
            except subprocess.TimeoutExpired:
                return TOO_LONG
            finally:
                if run.poll() is None:  # with the processes that tests started
                    os.killpg(run.pid, signal.SIGKILL)
                    run.wait()

    def plant(self, mutant: Mutant, log: Path) -> str:
        """Run the tests of a fault with it, and return what became of it."""
        path = self.root / SOURCE / mutant.file
        planted = mutant.planted(path.read_text(encoding="utf-8")) if path.is_file() else None
        if planted is None:
            return GONE
        whole = shutil.copy2(path, path.with_suffix(".whole"))
        path.write_text(planted, encoding="utf-8")
        in_c = path.suffix in (".c", ".h")
        try:
            if in_c:
                self.compile()
            return self.run(mutant.tests, log, MAX_SECONDS)
        finally:
            whole.replace(path)
            if in_c:
                self.compile()


def main() -> int:
    """Return 1 if a fault survives, if its place is gone, or if tests fail without it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="faults whose file or words contain this text")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults that are tried at a time")
    options, begun = parser.parse_args(), time.monotonic()
    listed = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    mutants = [each for each in (Mutant(**fields) for fields in listed) if options.only in f"{each.file}: {each.fault}"]
    if not mutants:
        parser.error(f"no fault has {options.only!r} in its file or words: see tools/mutants.json")
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, ThreadPoolExecutor(options.jobs) as pool:
        folder, free = Path(name), SimpleQueue[Checkout]()
        first, *others = (Checkout(folder / str(job)) for job in range(options.jobs))
        tests = sorted({test for each in mutants for test in each.tests})
        print(f"{len(mutants)} faults; first, {len(tests)} tests without any", flush=True)
        if first.run(tests, folder / "log") != SURVIVED:
            print((folder / "log").read_text(), "\nThese tests fail without any fault.", sep="")
            return 1
        print(f"all pass in {time.monotonic() - begun:.0f} s", flush=True)
        for each in (first, *others):
            free.put(each)

        def tried(number: int, mutant: Mutant) -> tuple[Mutant, str, float]:
            checkout, start = free.get(), time.monotonic()
            verdict = checkout.plant(mutant, folder / f"{number}.log")
            free.put(checkout)
            return mutant, verdict, time.monotonic() - start

        trials, killed, start = [pool.submit(tried, *each) for each in enumerate(mutants)], 0, time.monotonic()
        for done, trial in enumerate(as_completed(trials), start=1):
            mutant, verdict, seconds = trial.result()
            killed += verdict in (KILLED, TOO_LONG)
            left = (time.monotonic() - start) / done * (len(mutants) - done) / 60
            what = f"{verdict} in {seconds:.0f} s: {mutant.file}, {mutant.fault} ({mutant.origin})"
            print(f"{done}/{len(mutants)}, {left:.0f} min left  {what}", flush=True)
    minutes = (time.monotonic() - begun) / 60
    print(f"{killed} of {len(mutants)} faults were killed, in {minutes:.1f} min")
    return int(killed < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
