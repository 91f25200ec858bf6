"""Images: handwritten digits, Fashion-MNIST and photographs."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Machine, Recipe
from axial_transformers.training import TrainConfig


def digits() -> Recipe:
    """A class-conditional model that is also unconditional, since six of seven labels are hidden in training."""
    return Recipe(
        title="handwritten digits, 8x8, bundled with the package",
        reaches="1.716 bits/dim on the 297 test images, labels not given (axial demo, 2 cores, 2026-11-22)",
        fits=Machine("cpu", 0.5),
        source="digits",
        model=AxialTransformerConfig(
            shape=(8, 8),
            num_values=17,
            num_classes=10,
            dim=64,
            heads=4,
            outer_layers=4,
            inner_layers=2,
            dropout=0.15,
        ),
        training=TrainConfig(
            steps=1_250,
            batch_size=64,
            optimiser="muon",
            learning_rate=5e-3,
            longest_warmup=100,
            schedule="linear",
            ema_decay=0.99,
            distribution_augmentation=0.6,
            shift_augmentation=0.5,
            label_dropout=0.85,
            evaluate_every=100,
            save_every=400,
            sample_every=400,
        ),
    )


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


def photos32() -> Recipe:
    """RGB photographs of any size, as 32x32 tiles: a model of their differences from a prediction by neighbours."""
    return Recipe(
        title="photographs of any size, cut into 32x32 tiles",
        reaches="1.640 bits/dim on tiles of 3 photographs, a fifth below JPEG XL (34 minutes, one core)",
        fits=Machine("cpu", 1),
        data=DataConfig(size=32, fit="tiles", offsets="random", mode="rgb"),
        model=AxialTransformerConfig(
            shape=(32, 32),
            channels=3,
            layout="columns",
            prediction="neighbours_and_channels",
            signed_differences=True,
            rotary=100.0,
            dim=96,
            heads=3,
            mlp_ratio=2.0,
            outer_layers=4,
            inner_layers=2,
        ),
        training=TrainConfig(
            steps=4_500,
            batch_size=4,
            optimiser="muon",
            learning_rate=5e-3,
            longest_warmup=150,
            schedule="linear",
            ema_decay=0.999,
            horizontal_flip=True,
            compile="bfloat16",
            evaluate_every=1_000,
            save_every=500,
            sample_every=2_000,
        ),
    )
