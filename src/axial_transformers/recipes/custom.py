"""The recipe for any other data: its model has the shape of the data."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from statistics import median_low
from typing import TYPE_CHECKING, Literal

import numpy as np

from axial_transformers.data import DataConfig, Examples
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig

if TYPE_CHECKING:
    import torch

MAX_WHOLE = 64
"""Longest side of images that are modelled whole by default."""
MAX_CLIP = 63
TILE = 32
MIN_GAIN = 1.0
"""Least gain of a prediction, in bits a value without context."""
LOG2 = log(2)
LOOKED_AT = 1 << 20


def tiled(options: DataConfig, sizes: Sequence[tuple[int, ...]], tile: int = TILE) -> DataConfig:
    """Return the options, with tiles of this side for large or different sizes unless the user set a size."""
    if options.size is not None or options.fit != "exact" or not sizes:
        return options
    largest = MAX_WHOLE if len(sizes[0]) == 2 else MAX_CLIP
    sides = [size[-2:] for size in sizes]
    one_small_size = len(set(sides)) == 1 and max(sides[0]) <= largest
    if one_small_size or median_low(min(size) for size in sides) < tile:
        return options
    return replace(options, size=tile, fit="tiles")


def custom(examples: Examples) -> Recipe:
    """Return a small model of the examples' shape, channels, values and classes.

    Interleaved channels make a prefix of the first axis, such as the upper rows, a prefix of the generation order.
    """
    axes, prediction = len(examples.shape), prediction_for(examples)
    return Recipe(
        title="a small model of your own data",
        reaches=NOT_YET_MEASURED,
        model=AxialTransformerConfig(
            shape=examples.shape,
            channels=examples.channels,
            layout="columns" if examples.channels > 1 else "channels",
            num_values=examples.num_values,
            num_classes=examples.num_classes,
            prediction=prediction,
            signed_differences=prediction != "none",
            rotary=100.0,
            convolution=2 if axes < 4 else 1,
            dim=128,
            heads=4,
            mlp_ratio=2.0,
            encoder_layers=0,
            outer_layers=tuple(2 * (axes - level) for level in range(axes - 1)),
            inner_layers=3,
        ),
        training=TrainConfig(
            steps=20_000,
            batch_size=4 if examples.channels > 1 else 16,
            optimizer="muon",
            learning_rate=5e-3,
            longest_warmup=200,
            schedule="linear",
            ema_decay=0.999,
            label_dropout=0.1 if examples.num_classes else 0.0,
            evaluate_every=250,
            sample_every=250,
            save_every=250,
        ),
    )


def prediction_for(examples: Examples) -> Literal["none", "neighbours", "neighbours_and_channels"]:
    """Return the prediction with clearly less entropy, or none."""
    import torch

    from axial_transformers.models.prediction import Predictor

    count = max(1, min(len(examples), LOOKED_AT // examples.values[:1].size))
    spread = np.linspace(0, len(examples) - 1, count).astype(np.int64)
    values, x = examples.num_values, torch.from_numpy(examples.values[spread])
    least = _entropy(x, values) - MIN_GAIN
    found: Literal["none", "neighbours", "neighbours_and_channels"] = "none"
    if (of_positions := _entropy(Predictor(values, False, False).differences(x), values)) <= least:
        found, least = "neighbours", of_positions
    if examples.channels > 1 and _entropy(Predictor(values, True, False).differences(x), values) < least:
        found = "neighbours_and_channels"
    return found


def _entropy(x: "torch.Tensor", values: int) -> float:
    import torch

    counts = [x[..., c].flatten().bincount(minlength=values) for c in range(x.shape[-1])]
    shares = torch.stack(counts).double() / (x.numel() // x.shape[-1])
    return -torch.xlogy(shares, shares).sum(1).mean().item() / LOG2
