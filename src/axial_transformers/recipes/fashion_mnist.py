"""Fashion-MNIST (Xiao et al. 2017): 28x28 gray images of ten kinds of clothing."""

from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Machine, Recipe
from axial_transformers.training import TrainConfig


def fashion_mnist() -> Recipe:
    """A model that trains in about forty minutes on one CPU core that multiplies bfloat16 natively."""
    return Recipe(
        title="Fashion-MNIST, 28x28, about forty minutes on one CPU core",
        reaches="2.737 bits/dim on the 10,000 test images (36 minutes of one core, 2026-11-22)",
        fits=Machine("cpu", 1),
        model=AxialTransformerConfig(shape=(28, 28), dim=128, heads=4, mlp_ratio=1.0, outer_layers=4, inner_layers=4),
        training=TrainConfig(
            steps=3_200,
            batch_size=16,
            optimiser="muon",
            learning_rate=5e-3,
            longest_warmup=200,
            schedule="linear",
            ema_decay=0.999,
            compile="bfloat16",
            evaluate_every=1_000,
            sample_every=1_600,
        ),
    )


def fashion_mnist_gpu() -> Recipe:
    """A wider model, for a GPU."""
    return Recipe(
        title="Fashion-MNIST, 28x28, on a GPU",
        reaches=NOT_YET_MEASURED,
        fits=Machine("cuda", 16),
        model=AxialTransformerConfig(shape=(28, 28), dim=256, heads=8, outer_layers=8, inner_layers=4, dropout=0.1),
        training=TrainConfig(
            steps=60_000,
            batch_size=128,
            learning_rate=5e-4,
            longest_warmup=1_000,
            schedule="cosine",
            ema_decay=0.9995,
        ),
    )
