"""Train on nine kinds of data by their defaults within a time limit, and look at each model. JSON on the last line.

    pip install -e '.[scientific]'
    python benchmarks/own_data.py DATA

DATA has photos/train/ and fashion_mnist_train.npz; the MRI is of the package nibabel, and the others are made here:

    CT        a skull-like phantom with noise, int16, as NIfTI
    clips     discs that move over a gradient
    weather   temperatures [1500, 48, 96] in float32, which the printed command rounds
    DNA       a Markov chain of order two
    table     nine columns that depend on each other
    audio     tones with overtones and noise, int16

Each row: steps and seconds of `axial train SOURCE --training.minutes MINUTES`, and bits/dim of up to 100 validation
examples. Then it samples, scores and, with --archives, compresses and restores the source.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from nibabel.testing import data_path
from numpy.typing import NDArray

from axial_transformers.data.scans import Scan, write_scan
from command_line import run_command

KINDS = ("photographs", "arrays of images", "CT", "MRI", "clips", "weather", "DNA", "table", "audio")
AXIAL = sys.executable, "-c", "import sys; from axial_transformers.cli import main; main(sys.argv[1:])"


def ct(random: np.random.Generator) -> NDArray[np.int16]:
    z, y, x = np.ogrid[-1:1:108j, -1:1:256j, -1:1:256j]
    radius = np.sqrt((z / 0.9) ** 2 + (y / 0.8) ** 2 + (x / 0.7) ** 2)
    tissue = 40 + 25 * (np.sin(9 * y) * np.cos(7 * x) * np.sin(5 * z) > 0.2)
    density = np.select([radius < 0.9, radius < 1], [tissue, 900.0], -1000.0)
    return (density + random.normal(0, np.where(radius < 1.05, 12, 4))).clip(-1024, 3071).astype(np.int16)


def clips(random: np.random.Generator) -> NDArray[np.uint8]:
    found = np.empty((200, 8, 32, 32, 3), np.uint8)
    rows, columns = np.mgrid[:32, :32]
    for clip in found:
        (row, column), (down, right) = random.uniform(6, 26, 2), random.uniform(-1.5, 1.5, 2)
        colour = random.integers(80, 255, 3)
        for t, frame in enumerate(clip):
            frame[:] = 30 + 2 * rows[..., None] + random.integers(0, 4, (32, 32, 3))
            frame[(rows - row - t * down) ** 2 + (columns - column - t * right) ** 2 < 25] = colour
    return found


def weather(random: np.random.Generator) -> NDArray[np.float32]:
    t, latitude, longitude = np.ogrid[:1500, -1:1:48j, 0 : 2 * np.pi : 96j]
    waves = 8 * np.sin(longitude + t / 20) + 6 * latitude * np.cos(2 * longitude - t / 7)
    kernel = np.exp(-(np.arange(-5, 6) ** 2) / 8)
    noise = np.apply_along_axis(np.convolve, 2, random.normal(size=(1500, 48, 96)), kernel, "same")
    return (288 - 40 * latitude**2 + waves + noise).astype(np.float32)


def dna(random: np.random.Generator) -> NDArray[np.uint8]:
    chances, found = random.dirichlet(np.ones(4), (4, 4)).cumsum(-1), random.integers(0, 4, (5000, 200))
    for i in range(2, 200):
        found[:, i] = (random.random((5000, 1)) > chances[found[:, i - 2], found[:, i - 1]][:, :3]).sum(1)
    return found.astype(np.uint8)


def table(random: np.random.Generator) -> NDArray[np.int64]:
    age, visits = random.integers(18, 90, 5000), random.poisson(4, 5000)
    weight = (3 * age + random.normal(0, 20, 5000)).clip(0).astype(int)
    others = random.integers(0, 2, 5000), random.integers(0, 7, 5000), random.poisson(300, 5000)
    return np.stack([age, visits, weight, (age // 10) ** 2, visits > 4, *others, 2020 - age], axis=1)


def audio(random: np.random.Generator) -> NDArray[np.int16]:
    turns = 2 * np.pi * random.uniform(100, 600, (200, 1)) * np.arange(2000) / 8000 + random.uniform(0, 6, (200, 1))
    return (8000 * np.sin(turns) + 2000 * np.sin(2 * turns) + random.normal(0, 100, turns.shape)).astype(np.int16)


def source_of(kind: str, data: Path, folder: Path) -> Path:
    """Return the data of a kind, made in a folder where it is not in `data`."""
    random = np.random.default_rng(0)
    if kind == "photographs":
        return data / "photos/train"
    if kind == "arrays of images":
        return data / "fashion_mnist_train.npz"
    if kind == "MRI":
        return Path(str(data_path)) / "example4d.nii.gz"
    if kind == "CT":
        values = ct(random)
        write_scan(folder / "ct.nii.gz", values, Scan(values, "DHW"))
        return folder / "ct.nii.gz"
    makers: dict[str, Callable[[np.random.Generator], NDArray[Any]]] = {
        "clips": clips,
        "weather": weather,
        "DNA": dna,
        "table": table,
        "audio": audio,
    }
    np.save(folder / f"{kind}.npy", makers[kind](random))
    return folder / f"{kind}.npy"


def axial(*words: object) -> str:
    """Run a command; return all that it prints, also where it fails."""
    done = subprocess.run([*AXIAL, *map(str, words)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def trained(source: Path, run: Path, minutes: float) -> tuple[Path, str, float]:
    """Train; where an error prints a line of Python, run that first. Return the source, the output and the seconds."""
    for _ in range(2):
        start = time.monotonic()
        said = axial("train", source, "--training.minutes", minutes, "--out", run)
        seconds = time.monotonic() - start
        if not (line := re.search(r"python -c '(.*?)'", said)):
            return source, said, seconds
        subprocess.run([sys.executable, "-c", line[1]], check=True)
        source = source.with_name(f"{source.stem}-rounded.npy")
    raise SystemExit(said)


def looked_at(kind: str, data: Path, folder: Path, minutes: float, archives: bool) -> dict[str, object]:
    """Return the row of a kind of data."""
    run = folder / "run"
    source, said, seconds = trained(source_of(kind, data, folder), run, minutes)
    if not (ending := re.search(r"at step ([\d,]+)", said)):
        raise SystemExit(f"{kind}: {said}")
    printed = axial("evaluate", run, "--split", "validation", "--limit", 100, "--json")
    bits = json.loads(printed[: printed.index("}") + 1])
    row = {"kind": kind, "steps": int(ending[1].replace(",", "")), "seconds": round(seconds, 1)}
    row |= {"bits_per_dim": round(bits["bits_per_dim"], 3), "compiled": "kernels compiled" in said}
    for words in (["sample", run, "--count", 4, "--output", folder / "samples.png"], ["score", run, "--limit", 4]):
        if "error" in (printed := axial(*words)).lower():
            raise SystemExit(f"{kind}: {printed}")
    if archives:
        (size,) = re.findall(r"archive ([\d,]+) bytes", axial("compress", run, source, folder / "a.axl", "--force"))
        back = folder / f"back{''.join(source.suffixes)}"
        axial("decompress", run, folder / "a.axl", back)
        row["archive"] = int(size.replace(",", "")) if back.exists() else None
    return row


def main(data: Path, kinds: tuple[str, ...] = KINDS, minutes: float = 1.0, archives: bool = False) -> None:
    """Print a row for each kind.

    Args:
        data: the folder described above.
        kinds: those to try.
        minutes: time limit of each.
        archives: compress and restore each source, too.
    """
    rows = []
    for kind in kinds:
        with TemporaryDirectory() as folder:
            rows.append(looked_at(kind, data, Path(folder), minutes, archives))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(main)
