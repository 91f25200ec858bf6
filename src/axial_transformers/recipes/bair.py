"""BAIR robot pushing (Ebert et al. 2017): clips of 16 frames of 64x64, the first one given."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.published import GPU, published_training
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe


def bair() -> Recipe:
    """The paper's model of video: frames are channels, the first frame is known.

    Of each video of 30 frames, training takes 16 at a random offset, evaluation the first 16.
    """
    return Recipe(
        title="BAIR robot pushing, 16 frames of 64x64, the first one given",
        reaches=f"{NOT_YET_MEASURED} (the paper: 1.29 bits/dim)",
        fits=GPU,
        data=DataConfig(frames=16, offsets="random", validation_fraction=0.02),
        model=AxialTransformerConfig(
            shape=(16, 64, 64),
            channels=3,
            layout="frames",
            known_channels=3,
            dim=2048,
            heads=16,
            mlp_ratio=1.0,
            encoder_layers=8,
            outer_layers=8,
            inner_layers=4,
        ),
        training=published_training(learning_rate=2e-4, accumulate=8),
    )
