"""Commands that are killed, or reach a limit of memory or file size, leave whole outputs or none, and work again.

    pytest -m slow tests/fuzz/test_faults.py --hypothesis-profile long      a thousand faults in place of twenty

After each fault every output is what the command makes undisturbed, or is not there; an error is one line and leaves
nothing in part; the same command without the fault makes the undisturbed outputs. Where memory ends inside LLVM or C++,
these abort the process: they say so in words of their own, and a hidden file in part may stay. Processes are forked, so
that none spends seconds importing torch.
"""

import faulthandler
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from axial_transformers import cli
from axial_transformers.data import load
from axial_transformers.models import AxialTransformer
from axial_transformers.training.run_state import RunState
from tests.conftest import TINY
from tests.paths import DATA

pytestmark = pytest.mark.slow
settings.register_profile("long", max_examples=1000)
COMMANDS = ("train", "score", "sample", "complete", "compress", "decompress", "import-official")
OFFICIAL = DATA / "official_c"
HANGS = 300.0
"""Seconds after which a command counts as one that does not end."""
KINDS = ("kill", "terminate", "file size", "memory")
ENDINGS = {"kill": (-signal.SIGKILL,), "terminate": (-signal.SIGTERM, 130), "memory": (-signal.SIGABRT,)}
"""Exit statuses besides 0 and 2: LLVM and C++ abort where memory ends."""


class Command(NamedTuple):
    argv: list[str]
    outputs: dict[str, Callable[[Path], object]]
    """Of each output, the function that reads all of it and raises an error where it is damaged."""
    resume: list[str] | None = None
    """The command that goes on with a run; its output may be there in part, and is sound then."""


class Undisturbed(NamedTuple):
    outputs: dict[str, object]
    seconds: float
    size: int
    memory: int
    """Bytes of address space beyond those of the process that it was forked from."""


class Process:
    """`axial argv` in a forked process, in the folder `place`; what it says on stderr is kept."""

    def __init__(self, argv: list[str], place: Path, before: Callable[[], None] = lambda: None) -> None:
        self.status: int | None = None
        self.said, (self._read, write) = "", os.pipe()
        os.set_blocking(self._read, False)
        self.begun, self.id = time.monotonic(), os.fork()
        if not self.id:
            try:
                faulthandler.disable()  # pytest's: a user's process has none
                os.chdir(place)
                os.environ["XDG_CACHE_HOME"] = str(place / "cache")
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(write, 2)
                sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
                before()
                os._exit(cli.main(argv))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(write)

    def wait(self, seconds: float = HANGS) -> int | None:
        """The exit status, below 0 for a signal; None if it has not ended after so many seconds."""
        while self.status is None:
            done, status = os.waitpid(self.id, os.WNOHANG)
            with suppress(BlockingIOError):
                self.said += os.read(self._read, 1 << 20).decode(errors="replace")
            if done:
                self.status = os.waitstatus_to_exitcode(status)
                os.close(self._read)
            elif time.monotonic() > self.begun + seconds:
                break
            else:
                time.sleep(1e-3)
        return self.status

    def memory(self) -> int:
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/{self.id}/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmPeak")).split()[1]) * 1024
        return 0


def _picture(path: Path) -> object:
    with Image.open(path) as picture:
        return picture.mode, picture.size, picture.tobytes()


def _pictures(folder: Path) -> object:
    return {
        path.name: path.read_text() if path.suffix == ".html" else _picture(path) for path in sorted(folder.iterdir())
    }


def _arrays(path: Path) -> object:
    with np.load(path, allow_pickle=False) as file:
        return {name: (str(file[name].dtype), file[name].tobytes()) for name in file}


def _model(folder: Path) -> object:
    AxialTransformer.from_pretrained(folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _run(run: Path) -> object:
    for folder in run.glob("checkpoints/step-*"):
        RunState.read(folder)
    for path in run.glob("samples/*.png"):
        _picture(path)
    newest = max((run / "checkpoints").glob("step-*"), default=run)
    files = [path for path in (*sorted(newest.glob("*.safetensors")), run / "model.safetensors") if path.exists()]
    return [newest.name, *((path.name, path.read_bytes()) for path in files)]


class Bench:
    """What the commands read, and what each makes undisturbed."""

    def __init__(self, place: Path) -> None:
        self.given, self.work = place / "given", place / "work"
        (self.given / "pictures").mkdir(parents=True)
        values = load("digits", split="test").values[:24, ..., 0] * 15
        for i, pixels in enumerate(values):
            Image.fromarray(pixels).save(self.given / f"pictures/{i:02d}.png")
        np.savez(self.given / "images.npz", images=values[:12])
        self.commands = self._commands()
        for argv in (
            [*self.commands["train"].argv[:-1], str(self.given / "model")],
            [
                "compress",
                str(self.given / "model"),
                str(self.given / "pictures"),
                str(self.given / "pictures.axl"),
                "--force",
            ],
        ):
            assert Process(argv, self.given).wait() == 0, argv
        self._known = dict[str, Undisturbed]()

    def _commands(self) -> dict[str, Command]:
        model, test, pictures = (str(self.given / name) for name in ("model", "images.npz", "pictures"))
        schedule = "--training.steps 12 --training.save-every 3 --training.evaluate-every 5 --training.sample-every 6"
        few = "--training.batch-size 4 --training.device cpu --validate-on 4 --samples 2"
        train = [*TINY, *schedule.split(), *few.split(), "--data.validation-fraction", "0.25", "--out", "run"]
        rows = ["complete", model, test, "--rows", "4", "--examples", "4", "--output"]
        score = ["score", model, pictures, "--output", "scores.csv", "--heat-maps", "maps"]
        return {
            "train": Command(["train", pictures, *train], {"run": _run}, ["train", "run"]),
            "score": Command(score, {"scores.csv": Path.read_text, "maps": _pictures}),
            "sample": Command(["sample", model, "--count", "8", "--output", "samples.npz"], {"samples.npz": _arrays}),
            "complete": Command([*rows, "completions.npz"], {"completions.npz": _arrays}),
            "compress": Command(["compress", model, pictures, "new.axl", "--force"], {"new.axl": Path.read_bytes}),
            "decompress": Command(
                ["decompress", model, str(self.given / "pictures.axl"), "again"], {"again": _pictures}
            ),
            "import-official": Command(
                ["import-official", str(OFFICIAL), "-o", "imported", "--raw", "--heads", "2"], {"imported": _model}
            ),
        }

    def undisturbed(self, name: str) -> Undisturbed:
        if name not in self._known:
            command, most = self.commands[name], 0
            for _ in range(2):  # the first may compile kernels
                process = Process(command.argv, self.emptied())
                while process.wait(0.01 + time.monotonic() - process.begun) is None:
                    most = max(most, process.memory())
                seconds = time.monotonic() - process.begun
            outputs = {output: read(self.work / output) for output, read in command.outputs.items()}
            size = max(path.stat().st_size for path in self.work.rglob("*") if path.is_file())
            own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            self._known[name] = Undisturbed(outputs, seconds, size, max(most - own, 1 << 20))
        return self._known[name]

    def emptied(self) -> Path:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        return self.work


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    torch.set_num_threads(1)
    return Bench(tmp_path_factory.mktemp("faults"))


def limited(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


def disturbed(bench: Bench, name: str, kind: str, draw: Random) -> Process:
    """The process of a command that has met a fault, or has ended before it."""
    known, argv = bench.undisturbed(name), bench.commands[name].argv
    if kind == "file size":
        return Process(argv, bench.work, limited(resource.RLIMIT_FSIZE, int(known.size ** draw.random())))
    if kind == "memory":
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return Process(argv, bench.work, limited(resource.RLIMIT_AS, own + int(known.memory * draw.random())))
    process = Process(argv, bench.work)
    if draw.random() < 0.5:  # while something is there in part
        while not any(bench.work.rglob("*.part*")) and process.wait(0) is None:
            time.sleep(1e-4)
        time.sleep(draw.random() * 0.01)
    else:
        time.sleep(draw.random() * known.seconds)
    if process.wait(0) is None:
        os.kill(process.id, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    return process


@settings(
    max_examples=settings.default.max_examples if settings.default.max_examples == 1000 else 20, deadline=None,
    database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(st.sampled_from([(kind, name) for kind in KINDS for name in COMMANDS]), st.randoms(use_true_random=True))
def test_outputs_are_whole_or_missing_after_a_fault_and_the_next_command_makes_them(bench, fault, draw):
    kind, name = fault
    command, known = bench.commands[name], bench.undisturbed(name).outputs
    bench.emptied()
    process = disturbed(bench, name, kind, draw)
    status, said = process.wait(), process.said.splitlines()
    assert status in (0, 2, *ENDINGS.get(kind, ())), (status, *said[-4:])
    there = {
        output: read(bench.work / output) for output, read in command.outputs.items() if (bench.work / output).exists()
    }
    if command.resume is None:
        assert there == {output: known[output] for output in there}
        assert status != 2 or len(there) in (0, len(known)), "an error, and one of two outputs"
    assert status != 0 or there == known
    if status == 2:
        assert said[-1].startswith(f"axial {command.argv[0]}: "), said
    if status >= 0:
        assert not [*bench.work.rglob("*.part*")]
    begun = command.resume if (bench.work / "run" / "train.json").exists() else None
    for output in [] if command.resume else there:
        path = bench.work / output
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = Process(begun or command.argv, bench.work)
    assert again.wait() == 0, again.said
    assert {output: read(bench.work / output) for output, read in command.outputs.items()} == known
