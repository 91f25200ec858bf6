"""Short clips of video, 16 RGB frames, the first one given: time as an axis, and the paper's frames as channels."""

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.recipe import Recipe
from axial_transformers.training import TrainConfig


def clips32() -> Recipe:
    """Time is the outermost axis, channels are interleaved along the row."""
    return Recipe(
        title="clips of 16 frames of 32x32, time as an axis",
        reaches="2.62 bits/dim on 15 test clips, 13.6 % below JPEG XL (38 minutes of a core; docs/results.md)",
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
        training=_training(steps=1_700, batch_size=1, learning_rate=3e-3, horizontal_flip=True),
    )


def clips32_frames() -> Recipe:
    """The paper's way: frames are channels, the first frame is known."""
    return Recipe(
        title="clips of 16 frames of 32x32, frames as channels",
        reaches="2.77 bits/dim on 15 test clips, 8.6 % below JPEG XL (16 minutes of a core; docs/results.md)",
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
        training=_training(steps=1_000, batch_size=16, learning_rate=1.5e-3, horizontal_flip=False),
    )


def _training(steps: int, batch_size: int, learning_rate: float, horizontal_flip: bool) -> TrainConfig:
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup_steps=100,
        schedule="cosine",
        ema_decay=0.99,
        precision="bfloat16",
        compile=True,
        horizontal_flip=horizontal_flip,
        log_every=10,
        evaluate_every=250,
        sample_every=1_000_000,
        save_every=250,
    )
