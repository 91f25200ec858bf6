"""The published training, and the machine that the large recipes are set for."""

from axial_transformers.recipes.recipe import Machine
from axial_transformers.training import TrainConfig

GPU = Machine("cuda", 80)
"""Parts of a batch (`accumulate`) are as few as fit there without computing blocks again."""


def published_training(learning_rate: float, accumulate: int) -> TrainConfig:
    """About 200,000 steps (section 4 of the paper); the rest as in the released code.

    That is what `as_released` states.
    """
    return TrainConfig(
        steps=200_000,
        batch_size=64,
        accumulate=accumulate,
        learning_rate=learning_rate,
        longest_warmup=5_000,
        clip_norm=1.0,
        ema_decay=0.99995,
        as_released=True,
        evaluate_every=10_000,
        sample_every=10_000,
        save_every=2_000,
    )
