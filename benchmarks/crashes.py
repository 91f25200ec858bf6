"""Kills a training run again and again with SIGKILL, resumes it each time, and compares its end with a run left alone.

    python benchmarks/crashes.py [--kills 100] [--seed 0]

A third of the kills come at a random moment while the process starts, a third at a random moment of its training, a
third at a random moment after a checkpoint's write has begun; a kill was inside a write if it left something in part.
A run that comes to its end must have the weights, averages, moments, exported weights and logged metrics of the run
left alone, bitwise; then another begins, until there have been enough kills. Processes are forked, so that none spends
seconds importing torch. Prints JSON.
"""

import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal, get_args

import torch

from axial_transformers.data import load
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.progress import Display
from axial_transformers.training import TrainConfig, train
from command_line import run_command
from matmul_rate import matmul_rate

CONFIG = TrainConfig(
    steps=150,
    batch_size=4,
    learning_rate=1e-2,
    warmup_steps=10,
    ema_decay=0.9,
    device="cpu",
    log_every=1,
    save_every=7,
    evaluate_every=25,
)
EXAMPLES = load("digits", split="validation")
METRICS = ("step", "nats_per_dim", "gradient_norm", "learning_rate", "validation_bits_per_dim")
POLL = 5e-4

Phase = Literal["start", "training", "write"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class Run:
    """A training run in a folder, by a process that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.errors = folder, folder / "metrics.jsonl", folder.with_suffix(".stderr")
        self.process: int | None = None
        self.begun, self.begun_at = 0, 0
        self.left_over: set[Path] = set()

    def start(self) -> None:
        """Begins or resumes."""
        self.begun, self.begun_at, self.left_over = time.time_ns(), self.saved(), self.half_written()
        self.process = os.fork()
        if self.process:
            return
        try:
            os.dup2(os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            _train(self.folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def ended(self, wait: bool = False) -> bool:
        """Whether all steps have been made; anything that went wrong is raised."""
        if self.process is not None:
            process, status = os.waitpid(self.process, 0 if wait else os.WNOHANG)
            if status:
                raise RuntimeError(f"{self.folder.name} failed: {self.errors.read_text()}")
            self.process = None if process else self.process
        return self.process is None

    def alive_after(self, seconds: float) -> bool:
        """Whether it runs for so many seconds more."""
        deadline = time.monotonic() + seconds
        return self.alive_when(lambda: time.monotonic() >= deadline)

    def alive_when(self, condition: Callable[[], bool]) -> bool:
        """Waits for a condition; whether it comes true before the run ends."""
        while not condition():
            if self.ended():
                return False
            time.sleep(POLL)
        return True

    def training(self) -> bool:
        """Whether the process has started to train."""
        return self.log.exists() and self.log.stat().st_mtime_ns > self.begun

    def kill(self) -> None:
        """Ends it at once."""
        assert self.process is not None
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def writing(self) -> bool:
        """Whether the process is writing a checkpoint."""
        return bool({*self.folder.glob("checkpoints/.*.part")} - self.left_over)

    def half_written(self) -> set[Path]:
        """Files and folders that are half-written."""
        return {*self.folder.rglob(".*.part*")}

    def lines(self) -> list[dict[str, float]]:
        """Logged lines, without times."""
        lines = self.log.read_text().splitlines(keepends=True) if self.log.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [{name: value for name, value in line.items() if name in METRICS} for line in whole]

    def saved(self) -> int:
        """The step of the newest checkpoint."""
        return max((int(path.name[-8:]) for path in self.folder.glob("checkpoints/step-*")), default=0)

    def resumed(self) -> bool:
        """Whether the last process reported its resume, which must be at the newest checkpoint."""
        said = self.errors.read_text() if self.errors.exists() else ""
        resumed = [int(word) for word in re.findall(r"^resumed at step (\d+)$", said, re.MULTILINE)]
        assert resumed in ([], [self.begun_at]), said
        assert "damaged" not in said, said
        return bool(resumed)

    def outcome(self) -> list[object]:
        """Everything that must not depend on kills."""
        files = sorted(self.folder.glob(f"checkpoints/step-{CONFIG.steps:08d}/*.safetensors"))
        assert len(files) == 3
        return [self.lines(), *(file.read_bytes() for file in (*files, self.folder / "model.safetensors"))]


@dataclass
class Findings:
    """Counts over all kills."""

    kills: int = 0
    inside_a_write: int = 0
    resumes: int = 0
    """Resumes reported before the next kill, each at the newest checkpoint."""
    runs: int = 0
    """Runs that ended, each as the run left alone."""
    steps_repeated_at_most: int = 0
    steps_between_checkpoints: int = CONFIG.save_every
    steps_of_a_run: int = CONFIG.steps


def crash(kills: int = 100, seed: int = 0) -> Findings:
    """Kills so often; AssertionError or RuntimeError where a run was damaged."""
    rng, found = random.Random(seed), Findings()
    with tempfile.TemporaryDirectory() as temporary:
        alone = Run(Path(temporary) / "alone")
        seconds = _seconds(alone)
        while found.kills < kills:
            run = Run(Path(temporary) / f"run{found.runs}")
            run.start()
            while found.kills < kills and _alive_at(PHASES[found.kills % 3], run, seconds, rng):
                run.kill()
                _note(run, found)
                run.start()
            run.ended(wait=True)
            found.resumes += run.resumed()
            assert run.outcome() == alone.outcome(), f"run {found.runs} came to another end"
            found.runs += 1
            print(f"{found.kills} of {kills} kills", file=sys.stderr, flush=True)
    return found


def _alive_at(phase: Phase, run: Run, seconds: Mapping[Phase, float], rng: random.Random) -> bool:
    """Waits for a random moment of a phase; False where the run ends before."""
    if phase != "start" and not run.alive_when(run.training):
        return False
    if phase == "write" and not (run.alive_after(rng.uniform(0, seconds["training"])) and run.alive_when(run.writing)):
        return False
    return run.alive_after(rng.uniform(0, seconds[phase]))


def _note(run: Run, found: Findings) -> None:
    saved, made = run.saved(), [line["step"] for line in run.lines() if "nats_per_dim" in line]
    found.kills += 1
    found.resumes += run.resumed()
    found.inside_a_write += bool(run.half_written() - run.left_over)
    found.steps_repeated_at_most = max(found.steps_repeated_at_most, len(made) - saved)
    assert made == [*range(1, len(made) + 1)], "steps are missing or logged twice"
    assert len(made) - saved <= CONFIG.save_every, f"{len(made)} steps made, {saved} saved"


def _seconds(run: Run) -> dict[Phase, float]:
    """Seconds of a whole run's start, of its training until the fourth checkpoint, and of the write of a checkpoint."""
    writes = []
    begun = time.monotonic()
    run.start()
    run.alive_when(run.training)
    training = time.monotonic()
    while not run.ended():
        start = time.monotonic()
        while run.writing():
            time.sleep(POLL)
        writes.append(time.monotonic() - start)
        time.sleep(POLL)
    return {
        "start": training - begun,
        "training": (time.monotonic() - training) * 4 * CONFIG.save_every / CONFIG.steps,
        "write": median(seconds for seconds in writes if seconds > POLL),
    }


class Messages(Display):
    """Writes messages to stderr."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _train(folder: Path) -> None:
    torch.manual_seed(0)
    model = AxialTransformer(
        AxialTransformerConfig(
            shape=EXAMPLES.shape, num_values=17, dim=8, heads=2, outer_layers=2, inner_layers=1, dropout=0.1
        )
    )
    train(model, EXAMPLES, CONFIG, folder, evaluate=_score, resume=True, progress=Messages())


def _score(model: AxialTransformer, step: int, fill: object) -> dict[str, float]:
    return {"bits_per_dim": float(bits_per_dim(model, torch.from_numpy(EXAMPLES.values[:20])).mean())}


def main(kills: int = 100, seed: int = 0) -> None:
    torch.set_num_threads(1)
    matmul_rate(torch.device("cpu"), torch.float32)  # once, in place of in each forked process
    start = time.monotonic()
    print(json.dumps(asdict(crash(kills, seed)) | {"seconds": round(time.monotonic() - start)}))


if __name__ == "__main__":
    run_command(main)
