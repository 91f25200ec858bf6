"""Downsampled ImageNet, as in the paper and as in the authors' released code.

Bits/dim are comparable only on the same version of the data: the published ones are of the old version, which has
49,999 validation images.
"""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig


def imagenet32() -> Recipe:
    """The paper's model of 32x32 images, trained as in the released code."""
    reaches = f"{NOT_YET_MEASURED} (the paper: 3.76 bits/dim, old version of the data)"
    return _recipe(_paper(32), "the paper's model", reaches, learning_rate=1e-4)


def imagenet64() -> Recipe:
    """The paper's model of 64x64 images, trained as in the released code."""
    reaches = f"{NOT_YET_MEASURED} (the paper: 3.44 bits/dim, old version of the data)"
    return _recipe(_paper(64), "the paper's model", reaches, learning_rate=2e-4)


def imagenet32_released() -> Recipe:
    """The released configuration for 32x32 images."""
    model = _released(32, dim=1536, dropout=0.04)
    return _recipe(model, "the released configuration", NOT_YET_MEASURED, learning_rate=1e-4)


def imagenet64_released() -> Recipe:
    """The released configuration for 64x64 images."""
    model = _released(64, dim=2048, dropout=0.0)
    return _recipe(model, "the released configuration", NOT_YET_MEASURED, learning_rate=2e-4)


def _paper(size: int) -> AxialTransformerConfig:
    """8 encoder, 8 outer and 4 inner layers; 16 heads of width 128."""
    return AxialTransformerConfig(
        shape=(size, size), channels=3, dim=2048, heads=16, encoder_layers=8, outer_layers=8, inner_layers=4
    )


def _released(size: int, dim: int, dropout: float) -> AxialTransformerConfig:
    """8 layers in each part, and a feedforward block as wide as the model."""
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


def _recipe(model: AxialTransformerConfig, origin: str, reaches: str, learning_rate: float) -> Recipe:
    """The published training, which differs in the learning rate only; the number of steps is not published."""
    size = model.shape[0]
    return Recipe(
        title=f"ImageNet {size}x{size}, {origin}",
        reaches=reaches,
        data=DataConfig(size=size, mode="rgb"),
        model=model,
        training=TrainConfig(
            steps=1_000_000,
            batch_size=64,
            learning_rate=learning_rate,
            longest_warmup=5_000,
            clip_norm=1.0,
            ema_decay=0.99995,
            precision="bfloat16",
            evaluate_precision="bfloat16",
            evaluate_every=10_000,
            sample_every=10_000,
            save_every=2_000,
        ),
    )
