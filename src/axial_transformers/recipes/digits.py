"""Handwritten digits, 8x8, 17 values: trained in minutes on a laptop."""

from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import Machine, Recipe
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
