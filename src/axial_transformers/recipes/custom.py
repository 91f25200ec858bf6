"""The recipe for any other data: its model has the shape of the data."""

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig


def custom(examples: Examples) -> Recipe:
    """A small model of the examples' shape, channels, values and classes.

    Each outer decoder has two layers per axis that it covers, the channel encoder one per axis.
    """
    axes = len(examples.shape)
    return Recipe(
        title="a small model of your own data",
        reaches=NOT_YET_MEASURED,
        model=AxialTransformerConfig(
            shape=examples.shape,
            channels=examples.channels,
            num_values=examples.num_values,
            num_classes=examples.num_classes,
            dim=128,
            heads=4,
            mlp_ratio=2.0,
            encoder_layers=axes if examples.channels > 1 else 0,
            outer_layers=tuple(2 * (axes - level) for level in range(axes - 1)),
            inner_layers=3,
        ),
        training=TrainConfig(
            steps=20_000,
            batch_size=16,
            learning_rate=5e-4,
            longest_warmup=500,
            schedule="cosine",
            ema_decay=0.999,
            label_dropout=0.1 if examples.num_classes else 0.0,
            evaluate_every=1_000,
            sample_every=2_000,
        ),
    )
