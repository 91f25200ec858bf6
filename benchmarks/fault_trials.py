"""One fault: a command is disturbed, what it leaves is looked at, and it is run again."""

import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_subjects import Command, Process, commands, digest, emptied, entries, prepare

PID = "(process)"
ENDINGS = {"kill-9": (-signal.SIGKILL,), "sigterm": (-signal.SIGTERM, 130), "memory": (-signal.SIGABRT,)}
"""Exit statuses besides 0 and 2 that a kind of fault may lead to: LLVM and C++ abort where memory ends."""
REMARKS = re.compile(
    r"resumed at step \d+|warning: .*|compiling kernels .*|preparing compiled .*|.* gone back to .*|"
    r"  (memory|time) .*|.* \d+/\d+  .*|"
)
"""What a command may say besides an error and what it says undisturbed."""


@dataclass(frozen=True)
class Undisturbed:
    """A command left alone."""

    outputs: dict[str, Any]
    seconds: float
    pages: int
    """Of 4 KiB that it filled."""
    largest: int
    """Bytes of the largest file."""
    memory: int
    """Bytes of address space that it took beyond those of its parent."""
    locks: dict[Path, str]
    """Lock files that were seen, relative to its place, and what was in them, `PID` for the process."""
    said: list[str]
    """Lines on stderr."""


@dataclass
class Bench:
    """The place of all faults."""

    place: Path
    known: dict[str, Undisturbed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given, self.work, self.kernels = self.place / "given", self.place / "work", self.place / "kernels"
        prepare(self.given)
        self.commands = commands(self.given)
        self.digest = digest(self.given)

    def undisturbed(self, command: Command) -> Undisturbed:
        """What a command does if it is left alone; it is run when this is first asked."""
        if command.name not in self.known:
            if command.compiles:
                self.known[command.name] = self.run_alone(command, self.work / "kernels")
                shutil.copytree(self.work / "kernels", self.kernels, dirs_exist_ok=True)
            else:
                before = entries(self.kernels, "")
                self.known[command.name] = self.run_alone(command, self.kernels)
                if entries(self.kernels, "") != before:  # it has compiled something, which takes long
                    self.known[command.name] = self.run_alone(command, self.kernels)
        return self.known[command.name]

    def run_alone(self, command: Command, kernels: Path) -> Undisturbed:
        """Runs a command once in an empty place."""
        work, parent, memory, locks = emptied(self.work), address_space("self"), 0, dict[Path, str]()
        begun = time.monotonic()
        process = Process(command.argv, work, kernels)

        def look() -> bool:
            nonlocal memory
            with suppress(OSError, ValueError):
                memory = max(memory, address_space(str(process.id)))
            for lock in (*entries(work, "lock"), *entries(work, "holder")):
                with suppress(OSError, ValueError):
                    locks[lock.relative_to(work)] = lock.read_text().replace(str(process.id), PID) or PID
            time.sleep(0.01)
            return False

        process.until(look)
        if process.wait() != 0:
            raise RuntimeError(f"{command.argv} fails without a fault: {process.said}")
        sizes = [path.stat().st_size for path in work.rglob("*") if path.is_file()]
        return Undisturbed(
            {name: read(work / name) for name, read in command.outputs.items()},
            time.monotonic() - begun,
            sum(-(-size // 4096) for size in sizes),
            max(sizes),
            max(memory - parent, 1 << 20),
            locks,
            process.said.splitlines(),
        )


class Trial:
    """One fault. Its name says what it is, and is the seed of what is drawn."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.kind, command, _ = name.split("/")
        self.command = bench.commands[command]
        self.known = bench.undisturbed(self.command)
        self.draw, self.wrong = random.Random(name), list[str]()
        self.work = emptied(bench.work)
        self.kernels = self.work / "kernels" if self.command.compiles else bench.kernels
        self.strays, self.earlier = 0, set[Path]()
        self.process: Process | None = None

    def start(self, **how: Any) -> Process:
        """Begins the command, or goes on with it."""
        run = next(iter(self.command.outputs))
        begun = self.command.resume and (self.work / run / "train.json").exists()
        self.earlier = entries(self.work, ".part")
        argv = self.command.resume if begun and self.command.resume else self.command.argv
        self.process = Process(argv, self.work, self.kernels, **how)
        return self.process

    def at_random_moment(self, process: Process) -> bool:
        """Waits for one, in every second trial one at which something is there in part; False where it ends before."""
        moment = self.draw.uniform(0, self.known.seconds)
        if self.draw.random() < 0.5:
            return process.alive_after(moment)
        before = entries(self.work, ".part")
        moment = self.draw.uniform(0, 0.01)
        return process.until(lambda: entries(self.work, ".part") - before != set()) and process.alive_after(moment)

    def run(self, fault: Callable[["Trial"], AbstractContextManager[None]]) -> "Trial":
        """The fault, and what is to hold after it."""
        try:
            with fault(self):
                assert self.process is not None
                status, said = self.process.wait(), self.process.said
                self._check(status, said, self.process.ends)
            self._again()
        except TimeoutError as error:
            self.wrong.append(str(error))
        if digest(self.bench.given) != self.bench.digest:
            raise RuntimeError(f"{self.name} changed what it reads")
        return self

    def _check(self, status: int, said: str, ends: dict[int, str]) -> None:
        whole = [self._whole(name) for name in self.command.outputs]
        allowed = ENDINGS.get(self.kind, ())
        if status == 0 and not all(whole):
            self.wrong.append("status 0, but an output is missing")
        if status not in (0, 2, *allowed):
            self.wrong.append(f"status {status}")
        if status == 2 and any(whole) and not all(whole):
            self.wrong.append("an error, and one of two outputs")
        if 2 not in ends and status >= 0:
            self._check_said(status, said)
        if status >= 0 and self.kind != "read-only" and (strays := self._strays(self.earlier)):
            self.wrong.append(f"left {', '.join(strays)}")

    def _check_said(self, status: int, said: str) -> None:
        lines = said.splitlines()
        if status == 2 and not (lines and lines[-1].startswith(f"axial {self.command.argv[0]}: ")):
            self.wrong.append("status 2 without its line")
        lines = lines[:-1] if status == 2 else lines
        if noise := [line for line in lines if line not in self.known.said and not REMARKS.fullmatch(line)]:
            self.wrong.append(f"says {len(noise)} other lines: {noise[-1][:200]}")

    def _whole(self, name: str) -> bool:
        path = self.work / name
        if not path.exists():
            return False
        try:
            if self.command.sound is None:
                right = self.command.outputs[name](path) == self.known.outputs[name]
                self.wrong += [] if right else [f"{name} is another than without the fault"]
                return True
            self.command.sound(path)
        except Exception as error:
            self.wrong.append(f"{name} is damaged: {type(error).__name__}: {str(error)[:200]}")
            return True
        with suppress(OSError, ValueError):
            return self.command.outputs[name](path) == self.known.outputs[name]
        return False

    def _again(self) -> None:
        """The same command, undisturbed."""
        process = self.start()
        if process.wait() == 2 and self.command.sound is None and "exists" in process.said:
            for name in self.command.outputs:  # whole: a command that ends by refusing to replace it works
                path = self.work / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            process = self.start()
        if process.wait() != 0:
            self.wrong.append(f"the next command has status {process.status}: {process.said[-600:]}")
            return
        self._check_said(0, process.said)
        for name, read in self.command.outputs.items():
            try:
                if read(self.work / name) != self.known.outputs[name]:
                    self.wrong.append(f"the next command makes another {name}")
            except Exception as error:
                self.wrong.append(f"the next command leaves {name} damaged: {type(error).__name__}: {error}")
        self.strays += len(self._strays())

    def _strays(self, but: set[Path] = frozenset()) -> list[str]:
        found = (path.relative_to(self.work) for path in entries(self.work, ".part") - but)
        return [str(path) for path in found if not any(".part" in parent.name for parent in path.parents)]


def address_space(process: str, peak: bool = True) -> int:
    """Bytes of address space that a process has had at most, or has."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{'VmPeak' if peak else 'VmSize'}:\s+(\d+) kB", status)
    if found is None:
        raise ValueError(f"process {process} has ended")
    return int(found[1]) * 1024
