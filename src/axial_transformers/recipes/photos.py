"""A folder of photographs, cut into tiles."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Machine, Recipe
from axial_transformers.training import TrainConfig


def photos32() -> Recipe:
    """RGB photographs of any size, as 32x32 tiles."""
    return Recipe(
        title="photographs of any size, cut into 32x32 tiles",
        reaches=NOT_YET_MEASURED,
        fits=Machine("cpu", 2),
        data=DataConfig(size=32, fit="tiles", mode="rgb"),
        model=AxialTransformerConfig(
            shape=(32, 32),
            channels=3,
            dim=128,
            heads=4,
            mlp_ratio=2.0,
            encoder_layers=2,
            outer_layers=4,
            inner_layers=2,
        ),
        training=TrainConfig(
            steps=30_000,
            batch_size=16,
            learning_rate=5e-4,
            longest_warmup=500,
            schedule="cosine",
            ema_decay=0.999,
            horizontal_flip=True,
        ),
    )
