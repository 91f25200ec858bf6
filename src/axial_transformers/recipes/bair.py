"""BAIR robot pushing (Ebert et al. 2017): clips of 16 frames of 64x64, the first one given."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe
from axial_transformers.training import TrainConfig


def bair() -> Recipe:
    """The paper's model of video: frames are channels, the first frame is known."""
    return Recipe(
        title="BAIR robot pushing, 16 frames of 64x64, the first one given",
        reaches=f"{NOT_YET_MEASURED} (the paper: 1.29 bits/dim)",
        data=DataConfig(frames=16),
        model=AxialTransformerConfig(
            shape=(16, 64, 64),
            channels=3,
            layout="frames",
            known_channels=3,
            dim=2048,
            heads=16,
            encoder_layers=8,
            outer_layers=8,
            inner_layers=4,
        ),
        training=TrainConfig(
            steps=500_000,
            batch_size=64,
            learning_rate=2e-4,
            precision="bfloat16",
            evaluate_precision="bfloat16",
            evaluate_every=10_000,
            sample_every=10_000,
            save_every=2_000,
        ),
    )
