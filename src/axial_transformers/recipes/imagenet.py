"""Downsampled ImageNet, as in the paper and as in the authors' released code.

Its bits/dim are comparable only between equal versions of the data: the published ones are of the old one, with 49,999
validation images.
"""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig


def imagenet32() -> Recipe:
    """The paper's model of 32x32 images, trained as the released code does."""
    return Recipe(
        title="ImageNet 32x32, the paper's model",
        reaches=f"{NOT_YET_MEASURED} (the paper: 3.76 bits/dim, old version of the data)",
        data=DataConfig(size=32, mode="rgb"),
        model=_paper(32),
        training=_training(learning_rate=1e-4),
    )


def imagenet64() -> Recipe:
    """The paper's model of 64x64 images, trained as the released code does."""
    return Recipe(
        title="ImageNet 64x64, the paper's model",
        reaches=f"{NOT_YET_MEASURED} (the paper: 3.44 bits/dim, old version of the data)",
        data=DataConfig(size=64, mode="rgb"),
        model=_paper(64),
        training=_training(learning_rate=2e-4),
    )


def imagenet32_released() -> Recipe:
    """The released configuration for 32x32 images."""
    return Recipe(
        title="ImageNet 32x32, the released configuration",
        reaches=NOT_YET_MEASURED,
        data=DataConfig(size=32, mode="rgb"),
        model=_released(32, dim=1536, dropout=0.04),
        training=_training(learning_rate=1e-4),
    )


def imagenet64_released() -> Recipe:
    """The released configuration for 64x64 images."""
    return Recipe(
        title="ImageNet 64x64, the released configuration",
        reaches=NOT_YET_MEASURED,
        data=DataConfig(size=64, mode="rgb"),
        model=_released(64, dim=2048, dropout=0.0),
        training=_training(learning_rate=2e-4),
    )


def _paper(size: int) -> AxialTransformerConfig:
    """8 encoder, 8 outer and 4 inner layers; 16 heads, each 128 wide."""
    return AxialTransformerConfig(
        shape=(size, size), channels=3, dim=2048, heads=16, encoder_layers=8, outer_layers=8, inner_layers=4
    )


def _released(size: int, dim: int, dropout: float) -> AxialTransformerConfig:
    return AxialTransformerConfig(
        shape=(size, size),
        channels=3,
        dim=dim,
        heads=16,
        mlp_ratio=1.0,
        encoder_layers=8,
        outer_layers=8,
        inner_layers=8,
        dropout=dropout,
    )


def _training(learning_rate: float) -> TrainConfig:
    """Both published settings but for the step size; the number of updates is not published."""
    return TrainConfig(
        steps=1_000_000,
        batch_size=64,
        learning_rate=learning_rate,
        warmup_steps=5_000,
        clip_norm=1.0,
        ema_decay=0.99995,
        precision="bfloat16",
        evaluate_every=10_000,
        sample_every=10_000,
        save_every=2_000,
    )
