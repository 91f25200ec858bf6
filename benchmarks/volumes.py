"""Bits/value of volumes and spectra: general codecs, and models that never saw the values. JSON on the last line.

    python benchmarks/volumes.py halves --data scans --out halves
    axial train halves/head.npy
    python benchmarks/volumes.py table --data scans --runs runs

`halves` writes the first half of each set, along its slowest axis. `table` compares what codes the second half:

    JPEG XL          effort 9, each slice by itself; along the axis with the smallest sum
    ... differences  the same of differences between slices, modulo 256 or 65,536
    JPEG 2000        lossless, each slice by itself, along the slowest axis of the volume
    zstd, blosc      the whole half: level 19; level 9 after a shuffle of bits
    model            -log2 p of the run RUNS/NAME. Its weights, as 32-bit numbers, have a column of their own.

A set is an array in .npy or a scan, of integers. Blocks of the model's shape cover it; the last ones along an axis are
moved back to fit. A value counts once, in the first block that has it: all before it in a block are known by then.
"""

import json
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.likelihood.bits import bits_map
from axial_transformers.models import AxialTransformer
from command_line import run_command

SUFFIXES = ".npy", ".nii", ".nii.gz", ".tif", ".tiff", ".dcm"
Whole = NDArray[np.integer]


def sets_in(data: Path) -> dict[str, Path]:
    """Return the sets in a folder, or one file, by name."""
    paths = sorted(data.iterdir()) if data.is_dir() else [data]
    found = {path.name.split(".")[0]: path for path in paths if path.name.endswith(SUFFIXES)}
    if not found:
        raise SystemExit(f"{data} has no {', '.join(SUFFIXES)}")
    return found


def values_in(path: Path) -> Whole:
    """Return the values of a set, slowest axis first."""
    if path.suffix == ".npy":
        return np.load(path)
    from axial_transformers.data.scans import read_scan

    return np.asarray(read_scan(path).values)


def parts_of(values: Whole) -> tuple[Whole, Whole]:
    """Return the first and the second half along the slowest axis that has more than one slice."""
    while len(values) == 1:
        values = values[0]
    middle = len(values) // 2
    return values[:middle], values[middle:]


def unsigned(values: Whole) -> Whole:
    """Return integers from 0 on, in 8 or 16 bits, in which all codecs take them."""
    found = values.astype(np.int64) - min(0, int(values.min()))
    return found.astype(np.min_scalar_type(found.max()))


def slices(volumes: Whole, axis: int) -> Whole:
    """Return the slices [N, H, W] of volumes [V, D, H, W] along an axis of a volume."""
    ahead = np.ascontiguousarray(np.moveaxis(volumes, axis + 1, 1))
    return ahead.reshape(-1, *ahead.shape[2:])


def differences(volumes: Whole, axis: int) -> Whole:
    """Return the first slice of each volume, and the differences between slices; they wrap around half the range."""
    ahead, half = np.moveaxis(volumes, axis + 1, 1), volumes.dtype.type(np.iinfo(volumes.dtype).max // 2 + 1)
    changes = np.concatenate([ahead[:, :1], ahead[:, 1:] - ahead[:, :-1] + half], axis=1)
    return changes.reshape(-1, *changes.shape[2:])


def codecs(values: Whole, effort: int) -> dict[str, float]:
    """Return the bits/value of general codecs; none without imagecodecs."""
    try:
        import imagecodecs
    except ImportError:
        return {}

    def jpeg_xl(planes: Whole) -> int:
        return sum(len(imagecodecs.jpegxl_encode(plane, lossless=True, effort=effort)) for plane in planes)

    volumes = values.reshape(-1, *(1,) * (3 - values.ndim), *values.shape[-3:])
    axes = range(3 if volumes.shape[1] > 1 else 1)
    whole = values.tobytes()
    sizes = {
        "JPEG XL": min(jpeg_xl(slices(volumes, axis)) for axis in axes),
        "JPEG XL, differences": min(jpeg_xl(differences(volumes, axis)) for axis in axes),
        "JPEG 2000": sum(len(imagecodecs.jpeg2k_encode(x, reversible=True)) for x in slices(volumes, 0)),
        "zstd": len(imagecodecs.zstd_encode(whole, level=19)),
        "blosc": len(imagecodecs.blosc_encode(whole, 9, compressor="zstd", shuffle=2, typesize=values.itemsize)),
    }
    return {name: 8 * size / values.size for name, size in sizes.items()}


def starts(size: int, block: int) -> list[int]:
    """Return where blocks begin along an axis: one after the other, the last one moved back."""
    if size < block:
        raise SystemExit(f"the model's blocks are {block} long, this axis has {size}")
    return [*range(0, size - block, block), size - block]


def model_bits(net: AxialTransformer, values: Whole, batch: int = 8) -> NDArray[np.float32]:
    """Return the bits of every value [*A]; axes before those of the model's blocks are examples."""
    block = net.config.shape
    examples = values.reshape(-1, *values.shape[-len(block) :])
    found = np.full(examples.shape, np.nan, np.float32)
    places = [
        (example, tuple(slice(start, start + size) for start, size in zip(corner, block)))
        for example, *corner in product(range(len(examples)), *map(starts, examples.shape[1:], block))
    ]
    for first in range(0, len(places), batch):
        chosen = places[first : first + batch]
        x = torch.from_numpy(np.stack([examples[example][window] for example, window in chosen]).astype(np.int64))
        for (example, window), bits in zip(chosen, bits_map(net, x[..., None])[..., 0].numpy()):
            here = found[example][window]
            here[...] = np.where(np.isnan(here), bits, here)
    return found.reshape(values.shape)


def halves(data: Path, out: Path) -> None:
    """Write the first half of each set."""
    out.mkdir(parents=True, exist_ok=True)
    for name, path in sets_in(data).items():
        first = parts_of(values_in(path))[0]
        np.save(out / f"{name}.npy", first)
        print(f"{out / name}.npy: {' x '.join(map(str, first.shape))}, {first.dtype}")


def table(data: Path, runs: Path = Path("runs"), small: bool = False) -> None:
    """Print a row for each set.

    Args:
        runs: a folder with a run for each set, of its name; without one, its row has codecs alone.
        small: take only a corner of each set, and the fastest JPEG XL.
    """
    rows = {}
    for name, path in sets_in(data).items():
        second = parts_of(values_in(path))[1]
        if not np.issubdtype(second.dtype, np.integer):
            continue
        second = second[tuple(slice(16) for _ in second.shape)] if small else second
        row = codecs(unsigned(second), effort=1 if small else 9)
        if (run := runs / name).is_dir():
            start, net = time.monotonic(), AxialTransformer.from_pretrained(run)
            row["model"] = float(model_bits(net, second).mean(dtype=np.float64))
            row["weights"] = 8 * (run / "model.safetensors").stat().st_size / second.size
            row["seconds"] = time.monotonic() - start
            if best := min(row.get("JPEG XL", 0), row.get("JPEG XL, differences", 0)):
                row["saved, %"] = 100 * (1 - row["model"] / best)
        rows[name] = row
        print(f"{name} {second.shape}: " + ", ".join(f"{key} {value:.3f}" for key, value in row.items()), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(halves, table)
