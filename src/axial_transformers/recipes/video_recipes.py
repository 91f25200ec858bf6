"""Videos: BAIR robot pushing as in the paper, and short clips."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import GPU, NOT_YET_MEASURED, Machine, Recipe, published_training
from axial_transformers.training import TrainConfig


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


def clips32() -> Recipe:
    """Time is the outermost axis; channels are interleaved along the columns."""
    return Recipe(
        title="clips of 16 frames of 32x32, time as an axis",
        reaches="1.985 bits/dim on 15 test clips, 35 % below JPEG XL (one core, 109 minutes; docs/results.md)",
        fits=Machine("cpu", 2),
        data=DataConfig(size=32, fit="crop"),
        model=AxialTransformerConfig(
            shape=(16, 32, 32),
            channels=3,
            layout="columns",
            dim=64,
            heads=2,
            mlp_ratio=2.0,
            outer_layers=(3, 2),
            inner_layers=2,
            dropout=0.05,
        ),
        training=_clips_training(steps=2_400, batch_size=1, learning_rate=3e-3),
    )


def clips32_frames() -> Recipe:
    """The paper's model of video: frames are channels, the first frame is known."""
    return Recipe(
        title="clips of 16 frames of 32x32, frames as channels",
        reaches="2.547 bits/dim on 15 test clips, 16 % below JPEG XL (one core, 53 minutes; docs/results.md)",
        fits=Machine("cpu", 1.5),
        data=DataConfig(size=32, fit="crop"),
        model=AxialTransformerConfig(
            shape=(16, 32, 32),
            channels=3,
            layout="frames",
            known_channels=3,
            dim=128,
            heads=4,
            mlp_ratio=2.0,
            encoder_layers=2,
            outer_layers=2,
            inner_layers=2,
            dropout=0.05,
        ),
        training=_clips_training(steps=2_000, batch_size=16, learning_rate=1.5e-3),
    )


def _clips_training(steps: int, batch_size: int, learning_rate: float) -> TrainConfig:
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        longest_warmup=100,
        schedule="cosine",
        ema_decay=0.99,
        compile="bfloat16",
        horizontal_flip=True,
        log_every=10,
        evaluate_every=250,
        sample_every=1_000_000,
        save_every=250,
    )
