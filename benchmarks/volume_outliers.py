"""AUROC of defects that are put into blocks of a volume: bits under a model, IForest, ECOD. JSON on the last line.

    pip install -e '.[benchmarks]'
    python benchmarks/volume_outliers.py runs/head scans/head.nii.gz

The run saw the first half of the volume only (`volumes.py halves`). Blocks of the second half get one defect each, by
turns of all kinds and contrasts, or none. Contrasts are in units of the volume's standard deviation.

    blob    a ball of radius 3 is brighter by the contrast
    line    a row of the last axis is darker by the contrast
    noise   a cube of 6 values a side has normal noise added, its standard deviation the contrast

Scores of a value: its bits; the mean bits of the 3^3 values around it; and PyOD's detectors on cubes of 4 values a
side, less their mean, fitted to the first half: each value has the score of its cube. A block has the mean of its
values' bits, their largest smoothed bits, or the largest score of its cubes.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from axial_transformers.likelihood.outliers import auroc
from axial_transformers.models import AxialTransformer
from command_line import run_command
from volumes import Whole, model_bits, parts_of, values_in

KINDS = "blob", "line", "noise"
CUBE = 4
Scores = NDArray[np.float64]
Detector = Callable[[Whole], Scores]


def blocks_of(values: Whole, block: tuple[int, ...]) -> Whole:
    """Return the whole blocks [N, *block] of values, one after the other."""
    counts = [size // side for size, side in zip(values.shape[-len(block) :], block)]
    whole = tuple(slice(count * side) for count, side in zip(counts, block))
    kept = np.stack([part[whole] for part in values.reshape(-1, *values.shape[-len(block) :])])
    parts = kept.reshape(-1, *(number for pair in zip(counts, block) for number in pair))
    axes = range(1, parts.ndim)
    return parts.transpose(0, *axes[::2], *axes[1::2]).reshape(-1, *block)


def defect(kind: str, block: Whole, size: float, random: np.random.Generator) -> tuple[Whole, NDArray[np.bool_]]:
    """Return a block [D, H, W] with a defect, in the range of its type, and where it is."""
    distances = np.indices(block.shape) - np.reshape([random.integers(side) for side in block.shape], (3, 1, 1, 1))
    change = np.full(block.shape, size)
    if kind == "blob":
        where = (distances**2).sum(axis=0) <= 9
    elif kind == "line":
        where, change = (distances[:2] == 0).all(axis=0), -change
    else:
        where, change = (np.abs(distances + 0.5) < 3).all(axis=0), random.normal(0, size, block.shape)
    return np.where(where, np.rint(block + change), block), where


def smoothed(scores: Scores) -> Scores:
    """Return the mean over the 3^3 values around each one of [N, D, H, W]; values outside a block repeat its border."""
    for axis in range(1, scores.ndim):
        ends = [(int(axis == each),) * 2 for each in range(scores.ndim)]
        padded, size = np.pad(scores, ends, mode="edge"), scores.shape[axis]
        scores = np.mean([padded.take(range(step, step + size), axis) for step in range(3)], axis=0)
    return scores


def cubes_of(blocks: Whole) -> Scores:
    """Return the cubes [N, 64] of blocks, less their mean."""
    cubes = blocks_of(blocks, (CUBE,) * 3).reshape(-1, CUBE**3).astype(np.float64)
    return cubes - cubes.mean(axis=1, keepdims=True)


def detectors(train: Whole, count: int, random: np.random.Generator) -> dict[str, Detector]:
    """Return PyOD's detectors, fitted to some cubes of the training half; none without PyOD."""
    if find_spec("pyod") is None:
        return {}
    from pyod.models.ecod import ECOD
    from pyod.models.iforest import IForest

    cubes = cubes_of(train)
    chosen = cubes[random.choice(len(cubes), min(count, len(cubes)), replace=False)]

    def of(model: IForest | ECOD) -> Detector:
        model.fit(chosen)

        def scores(blocks: Whole) -> Scores:
            found = model.decision_function(cubes_of(blocks))
            sides = [size // CUBE for size in blocks.shape[1:]]
            spread = found.reshape(len(blocks), *sides)
            for axis in range(1, 4):
                spread = spread.repeat(CUBE, axis)
            return spread

        return scores

    return {"IForest": of(IForest(random_state=0)), "ECOD": of(ECOD())}


def main(model: str, source: Path, contrasts: tuple[float, ...] = (0.5, 1.0), count: int = 700) -> None:
    """Print a row for each kind of defect and contrast.

    Args:
        count: blocks that are looked at, evenly spaced.
    """
    net, random = AxialTransformer.from_pretrained(model), np.random.default_rng(0)
    train, test = parts_of(values_in(source))
    blocks = blocks_of(test, net.config.shape)
    blocks = blocks[blocks.reshape(len(blocks), -1).std(axis=1) > 0.1 * train.std()]  # the object, not the air
    blocks = blocks[np.linspace(0, len(blocks) - 1, min(count, len(blocks))).astype(int)]
    cases = [None, *((kind, contrast) for kind in KINDS for contrast in contrasts)]
    case_of = random.permutation(np.arange(len(blocks)) % len(cases))
    where = np.zeros(blocks.shape, bool)
    low, high = net.config.lowest, net.config.highest
    for i, number in enumerate(case_of):
        if (case := cases[number]) is not None:
            changed, where[i] = defect(case[0], blocks[i], case[1] * train.std(), random)
            blocks[i] = changed.clip(low, high)
    bits = model_bits(net, blocks).astype(np.float64)
    of_values = {"bits": bits, "smoothed bits": smoothed(bits)}
    of_values |= {name: scores(blocks) for name, scores in detectors(train, 20_000, random).items()}
    rows = []
    for number, case in enumerate(cases):
        if case is None:
            continue
        mine, clean = case_of == number, case_of == 0
        row: dict[str, object] = {"defect": case[0], "contrast": case[1], "blocks": int(mine.sum())}
        for name, scores in of_values.items():
            of_blocks = (np.mean if name == "bits" else np.max)(scores, axis=(1, 2, 3))
            row[f"value, {name}"] = auroc(scores[mine][~where[mine]], scores[mine][where[mine]])
            row[f"block, {name}"] = auroc(of_blocks[clean], of_blocks[mine])
        rows.append(row)
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(main)
