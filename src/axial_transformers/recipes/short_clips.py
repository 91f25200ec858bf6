"""Video clips of 16 RGB frames, the first one given: time as an axis, or frames as channels as in the paper."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import Machine, Recipe
from axial_transformers.training import TrainConfig


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
        training=_training(steps=2_400, batch_size=1, learning_rate=3e-3),
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
        training=_training(steps=2_000, batch_size=16, learning_rate=1.5e-3),
    )


def _training(steps: int, batch_size: int, learning_rate: float) -> TrainConfig:
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
