"""Two processes, each with a GPU: they train as one does, resume, and one that fails ends the run.

    python benchmarks/gpu_processes.py                   needs two GPUs
    python benchmarks/gpu_processes.py --device cpu      the same with gloo

It starts torchrun and prints a row a check: what was expected, and whether it holds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from axial_transformers.models import AxialTransformer
from axial_transformers.recipes import NAMED
from axial_transformers.training import TrainConfig, train
from command_line import run_command
from gpu_report import examples, row

STEPS = 12
LIMIT = 120
"""Seconds after which processes hang."""
RUNS: dict[str, dict[str, Any]] = {"copies": {}, "shards": {"shard": True}, "muon": {"optimizer": "muon"}}


@dataclass(frozen=True, kw_only=True)
class Options:
    device: str = "cuda"
    """cuda or cpu."""
    folder: Path | None = None
    """Train here, as one of the processes; the command starts itself so."""
    fail: bool = False
    """The second process raises at its fifth step."""


def main(options: Options) -> None:
    if options.folder:
        (fail if options.fail else work)(options.folder, options.device)
        return
    with tempfile.TemporaryDirectory() as folder:
        alone, two = Path(folder) / "1", Path(folder) / "2"
        work(alone, options.device)
        ended, seconds = launched(options, two)
        say("two processes train", "exit status 0", ended.returncode == 0, said=ended.stderr[-1000:], seconds=seconds)
        for name in (*RUNS, "resumed"):
            pairs = [*zip(losses(alone / name), losses(two / name), strict=False)]
            apart = max((abs(one - other) / one for one, other in pairs), default=1.0)
            say(name, "losses of one process, within 1 %", len(pairs) == STEPS and apart < 0.01, difference=apart)
        ended, seconds = launched(options, Path(folder) / "failing", "--fail")
        told = "the disk is full" in ended.stderr and ended.returncode != 0
        say("one process fails", "its message, and an end of both", told, said=ended.stderr[-1000:], seconds=seconds)


def say(name: str, expected: str, holds: bool, **found: Any) -> None:
    print(json.dumps(row(name, expected, holds, **found)), flush=True)


def launched(options: Options, folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Two processes of torchrun, that have ended, and their seconds."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__]
    command, began = [*start, "--folder", str(folder), "--device", options.device, *words], time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        ended = subprocess.CompletedProcess(command, 1, "", f"no end after {LIMIT} s")
    return ended, round(time.monotonic() - began, 1)


def losses(folder: Path) -> list[float]:
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line["nats_per_dim"] for line in lines if "nats_per_dim" in line]


def work(folder: Path, device: str) -> None:
    """Train each of RUNS, and one that ends at half of its steps and is resumed."""
    several = "RANK" in os.environ
    if several:  # once: torch may hang where a group of the same processes is made anew
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    for name, changes in RUNS.items():
        trained(folder / name, device, **changes)
    trained(folder / "resumed", device, steps=STEPS // 2)
    trained(folder / "resumed", device, resume=True)
    if several:
        dist.destroy_process_group()


def fail(folder: Path, device: str) -> None:
    update, made = torch.optim.Adam.step, []

    def failing(*given: Any, **also: Any) -> Any:
        made.append(1)
        if len(made) == 5:
            raise OSError("the disk is full")
        return update(*given, **also)

    if os.environ["RANK"] == "1":
        torch.optim.Adam.step = failing  # type: ignore[method-assign]
    trained(folder, device)


def trained(folder: Path, device: str, resume: bool = False, **changes: Any) -> None:
    model = replace(NAMED["digits"]().model, dropout=0.0, dim=32, heads=2)
    usual = {"steps": STEPS, "batch_size": 8, "log_every": 1, "warmup_steps": 1, "save_every": STEPS // 2}
    config = TrainConfig(device=device, precision="float32", compile=False, **{**usual, **changes})
    torch.manual_seed(0)
    folder.parent.mkdir(parents=True, exist_ok=True)
    train(AxialTransformer(model), examples(model), config, folder, resume=resume)


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
