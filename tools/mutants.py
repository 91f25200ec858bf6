"""Plant the faults of `mutants.json` in a copy of the checkout, one at a time: the tests of each must fail.

A fault that survives says that a test is missing. A fault is a text of a source file, which occurs once (`old`), and
what it becomes (`new`). People chose some. A rule drew the others: an operator, a comparison, a constant or a line of a
room, at random. The list is fixed. If a text is gone, choose another fault in its room.
"""

import argparse
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
KILLED, TOO_LONG, SURVIVED, GONE = "killed", "killed, by the limit of time", "SURVIVED", "TEXT IS GONE"


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
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(mutant.old) != 1:
            return GONE
        whole = shutil.copy2(path, path.with_suffix(".whole"))
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
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
    """Return 1 if a fault survives, if its text is gone, or if tests fail without it."""
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
