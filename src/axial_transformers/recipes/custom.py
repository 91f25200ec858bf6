"""The recipe for any other data: its model has the shape of the data."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from axial_transformers.data import DataConfig, Examples
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig

LARGEST_WHOLE = 64
"""Pictures whose sides are all of one length of at most so many pixels are modelled whole unless told."""
TILE = 32


def tiled(options: DataConfig, sizes: Sequence[tuple[int, int]]) -> DataConfig:
    """The options, with tiles for pictures of large or different sizes where the user has set no size.

    Args:
        options: as the user has set them.
        sizes: width and height of the pictures; none: the data is of another kind.
    """
    if options.size is not None or options.fit != "exact" or not sizes:
        return options
    one_small_size = len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_WHOLE
    if one_small_size or median_low(min(size) for size in sizes) < TILE:
        return options
    return replace(options, size=TILE, fit="tiles")


def custom(examples: Examples) -> Recipe:
    """A small model of the examples' shape, channels, values and classes.

    Channels are interleaved along the last axis: a prefix of the first axis, such as the upper rows of an image, is
    then a prefix of the generation order, and each step trains on all channels. Each outer decoder has two layers per
    axis that it covers.
    """
    axes = len(examples.shape)
    return Recipe(
        title="a small model of your own data",
        reaches=NOT_YET_MEASURED,
        model=AxialTransformerConfig(
            shape=examples.shape,
            channels=examples.channels,
            layout="columns" if examples.channels > 1 else "channels",
            num_values=examples.num_values,
            num_classes=examples.num_classes,
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
            learning_rate=5e-4,
            longest_warmup=500,
            schedule="cosine",
            ema_decay=0.999,
            label_dropout=0.1 if examples.num_classes else 0.0,
            evaluate_every=250,
            sample_every=250,
            save_every=250,
        ),
    )
