"""The commands that `faults.py` disturbs: every verb that writes, with what it must leave, in processes forked warm."""

import csv
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
from PIL import Image

from axial_transformers import cli
from axial_transformers.data import load
from axial_transformers.models import AxialTransformer
from axial_transformers.training.checkpoints import Record

OFFICIAL = Path(__file__).parents[1] / "tests/data/official_c"
HANGS = 600.0
"""Seconds after which a command counts as one that does not end."""
POLL = 1e-3
LOGGED = ("step", "nats_per_dim", "gradient_norm", "learning_rate", "validation_bits_per_dim")

for _verb in cli.VERBS:
    import_module(f"axial_transformers.cli.{_verb.replace('-', '_')}")


@dataclass(frozen=True)
class Command:
    """A command and what it is asked for."""

    name: str
    argv: list[str]
    """Paths of outputs are relative to the place where it runs."""
    outputs: Mapping[str, Callable[[Path], Any]]
    """Of each output the function that reads it, all of it, and raises an error where it is damaged."""
    sound: Callable[[Path], Any] | None = None
    """For outputs that grow: raises an error where a part of one is damaged. Others are whole or are not there."""
    resume: list[str] | None = None
    """The command that goes on with an output that has grown so far as to have `RECORD`."""
    compiles: bool = False
    """Whether it begins without the kernels that other commands find compiled."""


def commands(given: Path) -> dict[str, Command]:
    """The commands by name."""
    model, test = str(given / "model"), str(given / "images.npz")
    shards = str(given / "shards/s-{0..1}.tar")
    tiny = "--model.dim 8 --model.heads 2 --model.outer-layers 2 --model.inner-layers 1 --validate-on 4 --samples 2"
    tiny += " --training.steps 12 --training.save-every 3 --training.evaluate-every 5 --training.sample-every 6"
    tiny += " --training.batch-size 4 --training.device cpu --data.validation-fraction 0.25 --out run"
    drawn = ["--no-compile", "--output"]
    rows = ["complete", model, test, "--rows", "4", "--examples", "4", "--count", "2"]
    maps = {"scores.csv": _table, "maps": _pictures}
    train = [
        Command(name, ["train", source, *tiny.split()], {"run": _run}, _sound_run, ["train", "run"])
        for name, source in (("train", str(given / "pictures")), ("train-shards", shards))
    ]
    score = [
        Command(name, ["score", model, source, "--output", "scores.csv", "--heat-maps", "maps", "--top", "4"], maps)
        for name, source in (("score", test), ("score-shards", shards))
    ]
    array = ["decompress", model, str(given / "images.axl"), "again.npz"]
    imported = ["import-official", str(OFFICIAL), "-o", "imported", "--raw", "--heads", "2"]
    all_of_them = [
        *train,
        *score,
        Command("sample-png", ["sample", model, "--count", "8", *drawn, "samples.png"], {"samples.png": _picture}),
        Command("sample-npz", ["sample", model, "--count", "8", *drawn, "samples.npz"], {"samples.npz": _arrays}),
        Command("sample-folder", ["sample", model, "--count", "8", *drawn, "samples"], {"samples": _pictures}),
        Command("complete-png", [*rows, *drawn, "completions.png"], {"completions.png": _picture}),
        Command("complete-npz", [*rows, *drawn, "completions.npz"], {"completions.npz": _arrays}),
        Command("compress", ["compress", model, str(given / "pictures"), "new.axl"], {"new.axl": Path.read_bytes}),
        Command("decompress", ["decompress", model, str(given / "pictures.axl"), "again"], {"again": _pictures}),
        Command("decompress-npz", array, {"again.npz": _arrays}),
        Command("import-official", imported, {"imported": _model}),
        Command("demo", ["demo", "--out", "demo", "--steps", "2"], {"demo": _demo}, _sound_demo),
        Command(
            "kernels",
            ["sample", model, "--count", "2", "--compile", "--output", "samples.npz"],
            {"samples.npz": _arrays},
            compiles=True,
        ),
    ]
    return {command.name: command for command in all_of_them}


def prepare(given: Path) -> None:
    """Writes what the commands read: pictures, an array, two shards, a model and archives."""
    values = load("digits", split="test").values[:24, ..., 0] * 15
    (given / "pictures").mkdir(parents=True)
    (given / "shards").mkdir()
    for i, pixels in enumerate(values):
        Image.fromarray(pixels).save(given / f"pictures/{i:02d}.png")
    np.savez(given / "images.npz", images=values[:12])
    for part, some in enumerate(np.split(values, 2)):
        with tarfile.open(given / f"shards/s-{part}.tar", "w") as tar:
            for i, pixels in enumerate(some):
                stream = io.BytesIO()
                Image.fromarray(pixels).save(stream, "PNG")
                for suffix, content in (("png", stream.getvalue()), ("cls", b"%d" % (i % 3))):
                    member = tarfile.TarInfo(f"{i:02d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    made, model = commands(given)["train"], str(given / "model")
    for argv in (
        [*made.argv[:-1], model],
        ["compress", model, str(given / "pictures"), str(given / "pictures.axl")],
        ["compress", model, str(given / "images.npz"), str(given / "images.axl")],
    ):
        process = Process(argv, given)
        if process.wait() != 0:
            raise RuntimeError(f"{argv} failed: {process.said}")


def digest(folder: Path) -> str:
    """SHA-256 over names and contents of all files."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".lock":
            found.update(f"{path} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.hexdigest()


class Process:
    """A command in a process forked from this one, whose stdout is thrown away and whose stderr is kept.

    Args:
        argv: what follows `axial`.
        place: where it runs; its cache is there.
        kernels: folder of compiled kernels.
        before: called in the process before the command.
        ends: what descriptors 1 and 2 are instead: "closed", "broken" (nobody reads the pipe) or "full".
    """

    def __init__(
        self,
        argv: list[str],
        place: Path,
        kernels: Path | None = None,
        before: Callable[[], None] = lambda: None,
        ends: Mapping[int, str] | None = None,
    ) -> None:
        self.said, self.status, self.ends = "", None, dict(ends or {})
        self.begun = time.monotonic()
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self.id = os.fork()
        if not self.id:
            try:
                _in_process(argv, place, kernels, before, write, self.ends)
            finally:
                os._exit(1)
        os.close(write)

    def running(self) -> bool:
        """Whether it has not ended."""
        if self.status is None:
            process, status = os.waitpid(self.id, os.WNOHANG)
            with suppress(BlockingIOError):
                self.said += os.read(self._read, 1 << 20).decode(errors="replace")
            if process:
                self.status = os.waitstatus_to_exitcode(status)
                os.close(self._read)
        return self.status is None

    def until(self, condition: Callable[[], bool]) -> bool:
        """Waits for a condition; whether it comes true before the process ends."""
        while not condition():
            if not self.running():
                return False
            if time.monotonic() > self.begun + HANGS:
                self.signal(signal.SIGKILL)
                raise TimeoutError(f"has not ended after {HANGS} s")
            time.sleep(POLL)
        return True

    def alive_after(self, seconds: float) -> bool:
        """Whether it lasts so long."""
        deadline = time.monotonic() + seconds
        return self.until(lambda: time.monotonic() >= deadline)

    def wait(self) -> int:
        """Its exit status, once it has ended; of a signal, less than 0."""
        self.until(lambda: False)
        assert self.status is not None
        return self.status

    def signal(self, number: int) -> None:
        """Sends a signal."""
        if self.running():
            os.kill(self.id, number)


def _in_process(
    argv: list[str],
    place: Path,
    kernels: Path | None,
    before: Callable[[], None],
    errors: int,
    ends: Mapping[int, str],
) -> None:
    os.chdir(place)
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    if kernels is not None:
        numba.config.CACHE_DIR = str(kernels)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    os.close(errors)
    for descriptor, end in ends.items():
        if end == "closed":
            os.close(descriptor)
            continue
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer if end == "broken" else os.open("/dev/full", os.O_WRONLY), descriptor)
        os.close(writer)
    sys.stdin = None
    sys.stdout, sys.stderr = (  # Python starts like this
        None if ends.get(descriptor) == "closed" else open(descriptor, "w", buffering=1 if descriptor == 2 else -1)  # noqa: PTH123, SIM115
        for descriptor in (1, 2)
    )
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # the process's own
    try:
        before()
        status = cli.main(argv)
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    try:  # as Python does at its end
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored on flushing sys.stdout: {error}", file=sys.stderr)
        status = 120
    os._exit(status)


def _picture(path: Path) -> tuple[object, ...]:
    with Image.open(path) as picture:
        picture.load()
        return picture.mode, picture.size, picture.tobytes()


def _pictures(folder: Path) -> dict[str, object]:
    return {path.name: _picture(path) for path in sorted(folder.iterdir())}


def _arrays(path: Path) -> dict[str, object]:
    with np.load(path, allow_pickle=False) as file:
        return {name: (str(file[name].dtype), file[name].shape, file[name].tobytes()) for name in file}


def _table(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def _model(folder: Path) -> dict[str, bytes]:
    AxialTransformer.from_pretrained(folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _sound_run(run: Path) -> None:
    """Raises an error where any file of a run is damaged, however far the run has come."""
    if (run / "model.safetensors").exists() and (run / "config.json").exists():
        AxialTransformer.from_pretrained(run)
    if (run / "train.json").exists():
        json.loads((run / "train.json").read_text())
    for folder in run.glob("checkpoints/step-*"):
        for name, expected in Record.read(folder).files.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
                raise ValueError(f"{folder / name} is damaged")
    for path in run.glob("samples/*.png"):
        _picture(path)


def _run(run: Path) -> list[object]:
    _sound_run(run)
    newest = max((run / "checkpoints").glob("step-*"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    figures = [{name: value for name, value in line.items() if name in LOGGED} for line in lines]
    files = [*sorted(newest.glob("*.safetensors")), run / "model.safetensors", run / "config.json"]
    return [newest.name, figures, *((path.name, path.read_bytes()) for path in files)]


def _sound_demo(demo: Path) -> None:
    _sound_run(demo / "run")
    for path in demo.glob("*.png"):
        _picture(path)
    if (demo / "index.html").exists() and not (demo / "index.html").read_text().rstrip().endswith("</html>"):
        raise ValueError("the page is cut off")


def _demo(demo: Path) -> list[object]:
    _sound_demo(demo)
    if not (demo / "index.html").exists():
        raise FileNotFoundError("there is no page")
    return [_run(demo / "run"), {path.name: _picture(path) for path in sorted(demo.glob("*.png"))}]


def entries(folder: Path, part: str) -> set[Path]:
    """Files and folders below a folder, which may change meanwhile, with this part in their names."""
    walked = os.walk(folder)
    return {Path(place, name) for place, folders, files in walked for name in (*folders, *files) if part in name}


def emptied(folder: Path) -> Path:
    """The folder, new."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
