"""Compare the bits/dim of small ordinal models with the entropy of simulated 16-bit fields.

    python experiments/fields.py

A field is simulated value by value, in raster order: value = mean + noise. The mean is a rounded sum over earlier
neighbours. The noise is a logistic variable, rounded; its scale is a function of earlier values. So -log2 p of a field
is known. Its mean over held-out fields estimates the entropy, and the models' bits/dim are of the same fields.

    linear     the scale is 8
    bursts     the scale grows with the noise of the left and the upper neighbour
    edges      the scale grows with the difference of these neighbours
    channels   the scale is 8; the mean of the second and the third channel has a share of the noise of the one before

The first value of a channel is uniform over 32,768. Prints a line for each kind; the last line is JSON.
"""

import json
import time
from math import log2
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.data import examples_from
from axial_transformers.likelihood.evaluation import bits_of_each
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, train
from of_benchmarks import run_command

Whole = NDArray[np.int64]
Numbers = NDArray[np.float64]

NUM_VALUES, FIRST_VALUES, SCALE = 1 << 16, 1 << 15, 8.0
MEAN, SHARE = (0.75, 0.75, -0.5), 0.7
"""Coefficients of the left neighbour, the upper one and the one before that; and of noise, for the next channel."""
CHANNELS = {"linear": 1, "bursts": 1, "edges": 1, "channels": 3}


def scale_of(kind: str, x: Whole, size: Whole, i: int, j: int) -> Numbers | float:
    """Return the scale of the noise at a position, by example [N]; missing neighbours have no noise."""
    if kind == "bursts":
        return 1 + (size[:, i, j - 1, 0] * (j > 0) + size[:, i - 1, j, 0] * (i > 0)) / 5.0
    if kind == "edges" and i and j:
        return 1 + np.abs(x[:, i, j - 1, 0] - x[:, i - 1, j, 0]) / 4.0
    return SCALE


def mean_of(x: Whole, noise: Whole, i: int, j: int, channel: int) -> Whole:
    """Return the mean at a position behind the first, by example [N]."""
    left, above, before = x[:, i, j - 1, channel], x[:, i - 1, j, channel], x[:, i - 1, j - 1, channel]
    inner = MEAN[0] * left + MEAN[1] * above + MEAN[2] * before if i and j else left if j else above
    of_noise = SHARE * noise[:, i, j, channel - 1] if channel else 0.0
    return (np.floor(inner + 0.5) + np.floor(of_noise + 0.5)).astype(np.int64)


def simulate(kind: str, count: int, side: int, seed: int) -> tuple[Whole, Whole, Numbers]:
    """Return fields [N, side, side, C], their noise, and -log2 p of each field per value [N]."""
    random = np.random.default_rng(seed)
    x, noise = np.zeros((2, count, side, side, CHANNELS[kind]), np.int64)
    bits = np.zeros(count)
    for i, j, channel in np.ndindex(x.shape[1:]):
        here = (slice(None), i, j, channel)
        if i == j == 0:
            x[here] = (NUM_VALUES - FIRST_VALUES) // 2 + random.integers(FIRST_VALUES, size=count)
            bits += log2(FIRST_VALUES)
            continue
        scale = scale_of(kind, x, np.abs(noise), i, j)
        noise[here] = np.rint(scale * random.logistic(size=count))
        x[here] = mean_of(x, noise, i, j, channel) + noise[here]
        size = np.abs(noise[here])  # of two distribution functions near 0, the difference is accurate
        upper, lower = (1 / (1 + np.exp((size + step) / scale)) for step in (-0.5, 0.5))
        bits -= np.log2(upper - lower)
    assert 0 <= x.min() <= x.max() < NUM_VALUES
    return x, noise, bits / x[0].size


def without_context(noise: Whole) -> float:
    """Return the bits/dim of a model that knows the means, and has one distribution of noise for all positions."""
    later = noise.reshape(len(noise), -1, noise.shape[-1])[:, 1:]
    shares = np.unique(later, return_counts=True)[1] / later.size
    return float((log2(FIRST_VALUES) - later.shape[1] * (shares * np.log2(shares)).sum()) / (later.shape[1] + 1))


def measure(kind: str, side: int, count: int, held_out: int, dim: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a model trained on simulated fields: bits/dim of held-out ones."""
    (fields, *_), (test, noise, known) = (simulate(kind, *of) for of in ((count, side, 0), (held_out, side, 1)))
    config = AxialTransformerConfig(
        shape=(side, side), channels=CHANNELS[kind], layout="columns" if CHANNELS[kind] > 1 else "channels",
        num_values=NUM_VALUES, values="ordinal", centred=True, dim=dim, heads=max(1, dim // 16), mlp_ratio=2.0,
        encoder_layers=0, outer_layers=4, inner_layers=3, convolution=2, rotary=100.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model, start = AxialTransformer(config), time.process_time()
    with TemporaryDirectory() as folder:
        train(model, examples_from(fields, num_values=NUM_VALUES), TrainConfig(**settings), Path(folder) / "run")
        seconds = time.process_time() - start
        found = bits_of_each(AxialTransformer.from_pretrained(Path(folder) / "run"), torch.from_numpy(test)).numpy()
    above = 100 * (found - known) / known.mean()
    return {
        "kind": kind, "entropy": known.mean(), "without context": without_context(noise), "model": found.mean(),
        "percent above": above.mean(), "standard error": above.std(ddof=1) / len(above) ** 0.5,
        "parameters": sum(parameter.numel() for parameter in model.parameters()), "CPU seconds": round(seconds),
    }  # fmt: skip


def main(
    kinds: tuple[str, ...] = tuple(CHANNELS), steps: int = 600, dim: int = 32, side: int = 16, count: int = 4000,
    held_out: int = 300, batch: int = 8, rate: float = 0.02,
) -> None:  # fmt: skip
    """Measure kinds of fields."""
    torch.set_num_threads(1)
    settings = {
        "steps": steps, "batch_size": batch, "optimizer": "muon", "learning_rate": rate, "longest_warmup": 200,
        "schedule": "linear", "ema_decay": 0.999, "device": "cpu", "compile": False, "save_every": steps,
    }  # fmt: skip
    rows = []
    for kind in kinds:
        rows.append(measure(kind, side, count, held_out, dim, settings))
        shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()}
        print(", ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(main)
