"""One shard of very many tiny records: time and memory of its index, of the order, and of a whole epoch in that order.

    python benchmarks/shards.py --records 10000000 --folder /somewhere/with/11/GB
    python benchmarks/shards.py --records 10000000 --simulated

The shard is a real tar file of 4x4 pictures, each of which holds its number. The epoch's order is that of training;
every record must come exactly once, at the position that the order for (seed, position) gives. Simulated, there is an
index but no tar file: a record is computed from its position instead of being read and decoded; everything else is the
same. After each stage: its seconds, the memory of this process beyond that at the beginning (without mapped files,
whose pages the system can reclaim), and the peak of its resident memory so far. The last line is JSON.
"""

import json
import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from cyclopts import Parameter
from numpy.typing import NDArray

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.shards.index import ROW, Form, ShardIndex
from axial_transformers.data.shards.shard_examples import Records, ShardExamples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import batches, example_indices
from axial_transformers.training.processes import Processes
from command_line import run_command

SIDE = 4
HEAD = f"P5 {SIDE} {SIDE} 255\n".encode()


def content_of(i: int) -> bytes:
    return i.to_bytes(8, "little").ljust(SIDE * SIDE, b"\0")


def write_shard(path: Path, records: int) -> None:
    """Record i is a picture that begins with the eight bytes of i."""
    member = tarfile.TarInfo()
    member.size = len(HEAD) + SIDE * SIDE
    with path.open("wb") as file:
        for i in range(records):
            member.name = f"{i:09d}.pgm"
            file.write(member.tobuf(tarfile.USTAR_FORMAT) + (HEAD + content_of(i)).ljust(tarfile.BLOCKSIZE, b"\0"))
        file.write(bytes(2 * tarfile.BLOCKSIZE))


class Simulated(Records):
    """The reader of a simulated shard."""

    def _read(self, shard: ShardIndex, row: int) -> NDArray[np.uint8]:
        start = int(shard.rows[row]["start"])
        number = start // (2 * tarfile.BLOCKSIZE)
        return np.frombuffer(content_of(number), np.uint8).reshape(SIDE, SIDE, 1)


def simulated_shard(folder: Path, records: int) -> data.Examples:
    """The examples of a shard as `write_shard` writes it, of which only the index exists."""
    rows = np.zeros(records, ROW)
    rows["header"] = 2 * tarfile.BLOCKSIZE * np.arange(records)
    rows["start"] = rows["header"] + tarfile.BLOCKSIZE
    rows["size"] = len(HEAD) + SIDE * SIDE
    rows.tofile(folder / "rows.bin")
    form = Form("gray", (SIDE, SIDE, 1), labelled=False)
    mapped = np.memmap(folder / "rows.bin", ROW, "r")
    forms, known = {form: "none"}, ValueRange(0, 255)
    shard = ShardIndex(folder / "none.tar", mapped, digest="", forms=forms, range=known, bad=[], state=(0, 0))
    values = cast(NDArray[np.uint8], Simulated([shard], form, known, DataConfig(), 0, records))
    return ShardExamples(values=values, names=range(records), num_values=256)  # type: ignore[arg-type]


def anonymous_memory() -> int:
    """Resident bytes of this process, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


class Metrics:
    """Seconds and memory of each stage."""

    def __init__(self) -> None:
        self.base, self.all = anonymous_memory(), dict[str, float]()

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        seconds, held = round(time.monotonic() - start, 1), (anonymous_memory() - self.base) / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        self.all |= {f"{stage}_seconds": seconds, f"{stage}_held_MB": round(held, 1), f"{stage}_peak_MB": round(peak)}
        print(f"{stage}: {seconds} s, holds {held:.1f} MB more than at first, peak {peak:.0f} MB", flush=True)


def indexed(folder: Path, records: int, metrics: Metrics) -> data.Examples:
    """A real shard, whose index is made, then read."""
    path = folder / "tiny.tar"
    with metrics.of("writing"):
        write_shard(path, records)
    with metrics.of("index"):
        data.load(path, split="all")
    with metrics.of("index_again"):
        return data.load(path, split="all")


def measure(
    folder: Path, records: int, positions: int, batch_size: int, workers: int, simulated: bool
) -> dict[str, float]:
    metrics = Metrics()
    metrics.all["base_MB"] = round(metrics.base / 1e6, 1)
    examples = simulated_shard(folder, records) if simulated else indexed(folder, records, metrics)
    assert len(examples) == records
    with metrics.of("order"):
        example_indices(0, records, np.arange(1))
    config = TrainConfig(batch_size=batch_size, workers=workers)
    come, wrong = np.zeros(records, bool), 0
    with metrics.of("epoch"):
        running = batches(examples, range(1), None, config, Processes(torch.device("cpu")), first_step=0)
        for start in range(0, positions, batch_size):
            here = np.arange(start, min(start + batch_size, positions))
            values = next(running).values[: len(here)].numpy()
            numbers = values.reshape(len(values), -1)[:, :8].copy().view("<i8")[:, 0]
            wrong += int((numbers != example_indices(0, records, here)).sum())
            come[numbers] = True
        running.close()
    assert come.sum() == positions, "a record came twice"
    assert not wrong, f"{wrong} records came at another position than theirs"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        **metrics.all,
        "largest_worker_resident_MB": round(largest / 1e6),
        "records": records,
        "positions": positions,
        "workers": workers,
        "simulated": simulated,
    }


def main(
    records: Annotated[int, Parameter(help="how many records the shard has, of a kilobyte each")] = 1_000_000,
    folder: Annotated[Path | None, Parameter(help="where the shard and its index lie meanwhile")] = None,
    positions: Annotated[
        int | None, Parameter(help="how many of the epoch's first are running; all if not given")
    ] = None,
    batch_size: int = 1024,
    workers: int = 2,
    simulated: Annotated[bool, Parameter(help="compute records instead of writing and reading a shard")] = False,
) -> None:
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        os.environ["XDG_CACHE_HOME"] = temporary
        metrics = measure(Path(temporary), records, min(positions or records, records), batch_size, workers, simulated)
        print(json.dumps(metrics))


if __name__ == "__main__":
    run_command(main)
