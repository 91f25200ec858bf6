"""Faults at random moments of every command that writes: its outputs are there whole or not at all, and it works again.

    python benchmarks/faults.py [COUNT, default 500] [SEED] [--only KIND ...] [--replay NAME]

Kinds: kill-9, sigterm, full-disk, read-only, file-size (RLIMIT_FSIZE), memory (RLIMIT_AS), clock (set back while the
command runs, files dated in the future), pipes (stdout and stderr closed, without a reader, or full), caches (of shards
and of compiled kernels, damaged), locks (left by a dead process). full-disk and read-only mount a tmpfs in a namespace
of this process, which takes root. After each fault:

- every output is what the command makes undisturbed, or is not there; what it reads is unharmed;
- the exit status is 0 only where all outputs are there; an error is one line on stderr, and leaves nothing in part;
- the same command without the fault (`axial train RUN` for a run that has begun) makes the undisturbed outputs.

Prints each failure, and at the end JSON. `--replay NAME` repeats one fault by the name that a failure has: the same
draws, at moments that are about the same.
"""

import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from fault_subjects import Command
from fault_trials import PID, Bench, Trial, address_space

ROOM = "256m"
RARE = {"demo": 0.2, "kernels": 0.1}
"""How often commands that take long are chosen, others being 1."""
NEW_NAMESPACE = 0x20000
"""CLONE_NEWNS of Linux."""


@contextmanager
def _signalled(number: int, trial: Trial) -> Iterator[None]:
    process = trial.start()
    if trial.at_random_moment(process):
        process.signal(number)
    yield


@contextmanager
def _mounted(trial: Trial, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", trial.work], check=True)
    try:
        yield
        # what comes next, on the same files, has room and may write
        shutil.copytree(trial.work, moved := trial.work.with_name("moved"), symlinks=True)
    finally:
        subprocess.run(["umount", "-l", trial.work], check=True)
    shutil.rmtree(trial.work)
    moved.rename(trial.work)


@contextmanager
def _full_disk(trial: Trial) -> Iterator[None]:
    at_once = trial.draw.random() < 0.5
    pages = trial.draw.randint(1, max(2, trial.known.pages))
    with _mounted(trial, f"{4 * pages}k" if at_once else ROOM):
        filler = trial.work / "filler"
        process = trial.start()
        if not at_once and trial.at_random_moment(process):
            with suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(1 << 22))
                    file.flush()
        yield
        filler.unlink(missing_ok=True)


@contextmanager
def _read_only(trial: Trial) -> Iterator[None]:
    with _mounted(trial, ROOM):
        lock = ["mount", "-o", "remount,ro", trial.work]
        if trial.draw.random() < 0.3:
            subprocess.run(lock, check=True)
            trial.start()
        else:
            process = trial.start()
            if trial.at_random_moment(process):  # while a file is open for writing, it cannot be
                process.until(lambda: subprocess.run(lock, capture_output=True).returncode == 0)
        yield


@contextmanager
def _file_size(trial: Trial) -> Iterator[None]:
    most = int(trial.known.largest ** trial.draw.uniform(0, 1))
    trial.start(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
    yield


@contextmanager
def _memory(trial: Trial) -> Iterator[None]:
    more = int(trial.known.memory * trial.draw.random())

    def limit() -> None:
        most = address_space("self", peak=False) + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    trial.start(before=limit)
    yield


@contextmanager
def _clock(trial: Trial) -> Iterator[None]:
    if trial.draw.random() < 0.5:  # something is there already, from a time that has not come
        process = trial.start()
        if trial.at_random_moment(process):
            process.signal(signal.SIGKILL)
        process.wait()
    later = time.time() + trial.draw.choice((10, 3600, 86400 * 365))
    for path in trial.work.rglob("*"):
        os.utime(path, (later, later))
    moment, back = trial.draw.uniform(0, trial.known.seconds), trial.draw.choice((0.5, 100, 1e8))
    trial.start(before=partial(_set_back, moment, back))
    yield


def _set_back(moment: float, back: float) -> None:
    now, begun = time.time, time.monotonic()

    def earlier() -> float:
        return now() - (back if time.monotonic() > begun + moment else 0)

    time.time, time.time_ns = earlier, lambda: int(earlier() * 1e9)


@contextmanager
def _pipes(trial: Trial) -> Iterator[None]:
    which = trial.draw.choice(((1,), (2,), (1, 2)))
    trial.start(ends={descriptor: trial.draw.choice(("closed", "broken", "full")) for descriptor in which})
    yield


@contextmanager
def _caches(trial: Trial) -> Iterator[None]:
    if trial.command.compiles:
        shutil.copytree(trial.bench.kernels, trial.kernels)
    elif trial.start().wait() != 0:
        raise RuntimeError(f"{trial.command.argv} fails without a fault")
    for name in trial.command.outputs:
        path = trial.work / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    folders = [trial.kernels if trial.command.compiles else trial.work / "cache"]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix != ".lock"]
    files = [path for path in files if path.is_file()]
    for path in trial.draw.sample(files, min(len(files), trial.draw.choice((1, 1, 2, 9)))):
        _damage(path, trial.draw)
    trial.start()
    yield


def _damage(path: Path, draw: random.Random) -> None:
    content, kind = bytearray(path.read_bytes()), draw.randrange(7)
    at, to = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    if kind == 0:
        content = content[:at]
    elif kind == 1:
        content = bytearray()
    elif kind == 2:
        content[at:to] = draw.randbytes(to - at)
    elif kind == 3 and content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == 4:
        content[at:at] = content[at:to]
    elif kind == 5:
        del content[at:to]
    else:
        path.unlink()
        return
    path.write_bytes(content)


@contextmanager
def _locks(trial: Trial) -> Iterator[None]:
    if trial.draw.random() < 0.5:
        process = trial.start()
        if trial.at_random_moment(process):
            process.signal(signal.SIGKILL)
        process.wait()
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name, content in trial.known.locks.items():
        lock = trial.work / name
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text(content.replace(PID, str(dead.pid)))
    trial.start()
    yield


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    fault: Callable[[Trial], Any]
    """Begins the command and disturbs it; what follows the yield ends the disturbance."""
    suits: Callable[[Bench, Command], bool] = lambda bench, command: True
    mounts: bool = False


KINDS = {
    "kill-9": Kind(partial(_signalled, signal.SIGKILL)),
    "sigterm": Kind(partial(_signalled, signal.SIGTERM)),
    "full-disk": Kind(_full_disk, mounts=True),
    "read-only": Kind(_read_only, mounts=True),
    "file-size": Kind(_file_size),
    "memory": Kind(_memory),
    "clock": Kind(_clock),
    "pipes": Kind(_pipes),
    "caches": Kind(_caches, lambda bench, command: command.name in ("train-shards", "score-shards", "kernels")),
    "locks": Kind(_locks, lambda bench, command: bool(bench.undisturbed(command).locks)),
}


def own_mounts() -> str | None:
    """Gives this process mounts of its own, which end with it; the reason if it cannot have them."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NAMESPACE):
        return f"mounts: {os.strerror(ctypes.get_errno())}"
    with tempfile.TemporaryDirectory() as place:
        for line in ("mount --make-rprivate /", f"mount -t tmpfs -o size=64k tmpfs {place}", f"umount {place}"):
            done = subprocess.run(line.split(), capture_output=True, text=True)
            if done.returncode:
                return f"mounts: {done.stderr.strip()}"
    return None


def faults(count: int, seed: int, kinds: Sequence[str], replay: str | None = None, among: Sequence[str] = ()) -> dict:
    """So many faults, spread over kinds and commands (all, or those `among`), and what came of them."""
    begun, by_kind, by_command, failures, strays = time.monotonic(), Counter(), Counter(), [], 0
    reason = own_mounts() if any(KINDS[kind].mounts for kind in kinds) else None
    skipped = {kind: reason for kind in kinds if KINDS[kind].mounts and reason}
    kinds = [kind for kind in kinds if kind not in skipped]
    with tempfile.TemporaryDirectory(prefix="faults.") as place:
        bench = Bench(Path(place))
        names = [replay] if replay else _names(bench, count, seed, kinds, among)
        for name in names:
            trial = Trial(bench, name)
            trial.run(KINDS[trial.kind].fault)
            by_kind[trial.kind] += 1
            by_command[trial.command.name] += 1
            strays += trial.strays
            if trial.wrong:
                said = trial.process.said[-1500:] if trial.process else ""
                failures.append({"seed": name, "wrong": trial.wrong, "said_last": said})
                print(name, *trial.wrong, sep="\n  ", file=sys.stderr, flush=True)
    return {
        "faults": sum(by_kind.values()),
        "seed": seed,
        "failed": len(failures),
        "failed_by_kind": dict(Counter(failure["seed"].split("/")[0] for failure in failures)),
        "by_kind": dict(by_kind),
        "by_command": dict(by_command),
        "skipped": skipped,
        "hidden_parts_that_stayed": strays,
        "seconds": round(time.monotonic() - begun),
        "failures": failures,
    }


def _names(bench: Bench, count: int, seed: int, kinds: Sequence[str], among: Sequence[str]) -> Iterator[str]:
    draw = random.Random(seed)
    candidates = [command for command in bench.commands.values() if not among or command.name in among]
    for i in range(count):
        kind = kinds[i % len(kinds)]
        suited = [command for command in candidates if KINDS[kind].suits(bench, command)]
        if suited:
            (command,) = draw.choices(suited, [RARE.get(command.name, 1) for command in suited])
            yield f"{kind}/{command.name}/{seed}.{i}"


def main(
    count: Annotated[int, tyro.conf.Positional] = 500,
    seed: Annotated[int, tyro.conf.Positional] = 0,
    only: tuple[str, ...] = tuple(KINDS),
    among: tuple[str, ...] = (),
    replay: str | None = None,
) -> None:
    os.nice(10)
    torch.set_num_threads(1)
    found = faults(count, seed, only, replay, among)
    print(json.dumps(found))
    sys.exit(found["failed"] > 0)


if __name__ == "__main__":
    tyro.cli(main)
