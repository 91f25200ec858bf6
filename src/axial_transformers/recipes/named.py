"""The recipes with a name: digits, Fashion-MNIST, photographs, downsampled ImageNet and videos.

Bits/dim of ImageNet compare only on the same version; the published ones are of the old one (49,999 validation images).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.custom import MUON, OF_DATA, ModelOfData
from axial_transformers.training import RunConfig, TrainConfig

NOT_YET_MEASURED = "not yet measured"


class Hardware(NamedTuple):
    """One device for a step of a recipe; more devices share the batch."""

    device: Literal["cpu", "cuda"]
    gigabytes: float
    """Its memory (1e9 bytes); of a CPU, what a step adds to the process."""

    def __str__(self) -> str:
        return f"one CPU, {self.gigabytes:g} GB" if self.device == "cpu" else f"one GPU of {self.gigabytes:g} GB"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a whole run, and the likelihood that it reaches. Call it for the settings."""

    name: str
    title: str
    """What it trains, on what."""
    reaches: str = NOT_YET_MEASURED
    """Bits/dim; or `NOT_YET_MEASURED`."""
    fits: Hardware
    """A machine for a step."""
    settings: RunConfig
    trained_on: str | None = None
    """Fingerprint of the training part of the model of this name in the package."""

    def __call__(self) -> RunConfig:
        """Return the settings, in the run's own folder."""
        return replace(self.settings, recipe=self.name, out=Path("runs") / self.name)


GPU = Hardware("cuda", 80)
"""Parts of a batch are as few as fit there without recomputing blocks."""

TRAINING_PART = "7a572e2bb7ed6ffdfdfa058a9129fa4dd668ffcf06a7ac4e8b248388115eeb09"
"""Fingerprint of the 54,000 images of Fashion-MNIST on which the model in the package was trained."""

PIXELS = AxialTransformerConfig(
    shape=(32, 32),
    channels=3,
    layout="pixels",
    values="ordinal",
    centred=True,
    activity=True,
    rotary=100.0,
    dim=64,
    heads=2,
    mlp_ratio=2 / 3,
    gated_convolutions=1,
    outer_layers=2,
    inner_layers=1,
)
"""Ordinal values, centred on a prediction, in units of an activity; a position has all channels of a pixel."""

WIDER = replace(PIXELS, dim=96, heads=3, gated_convolutions=2)
GRAY = replace(WIDER, channels=1, layout="channels")
"""For photographs and gray images: wider, and with more convolutions."""

TILES = DataConfig(size=32, cut="tiles", offsets="random", mode="rgb")

PHOTOS = replace(
    MUON,
    batch_size=4,
    learning_rate=1e-2,
    muon_learning_rate=1e-2,
    warmup_steps=400,
    horizontal_flip=True,
    save_every=500,
    sample_every=1_000_000,
)
"""Tiles of photographs."""

CLIPS = replace(
    MUON,
    batch_size=1,
    warmup_steps=100,
    horizontal_flip=True,
    log_every=10,
    evaluate_every=250,
    sample_every=1_000_000,
    save_every=250,
)

PAPER = AxialTransformerConfig(
    shape=(32, 32), channels=3, dim=2048, heads=16, mlp_ratio=1.0, encoder_layers=8, outer_layers=8, inner_layers=4
)
"""Feedforward blocks have the width of the model, as in the released code; the paper also says 1 to 4 times."""
PAPER_64 = replace(PAPER, shape=(64, 64))

ADDED = (
    "model.layout", "model.values", "model.centred", "model.activity", "model.gated_convolutions",
    "model.outer_layers", "model.inner_layers", "model.num_classes", "training.label_dropout",
    "model.dim", "model.heads", "training.learning_rate",
)  # fmt: skip
"""What the paper does not have, or has in one way only; and what the recipe `paper` states."""

PUBLISHED = TrainConfig(as_released=True, evaluate_every=10_000, sample_every=10_000, save_every=2_000)
"""The default, about 200,000 steps (section 4 of the paper), with the rest as in the released code."""


def imagenet(name: str, what: str, model: AxialTransformerConfig, accumulate: int, paper: str = "") -> Recipe:
    """Return the published training of a model of 32x32 or 64x64 images; `paper` is the likelihood that it states."""
    size = model.shape[0]
    training = replace(PUBLISHED, learning_rate=1e-4 if size == 32 else 2e-4, accumulate=accumulate)
    return Recipe(
        name=name,
        title=f"ImageNet {size}x{size}, {what}",
        reaches=NOT_YET_MEASURED + (f" (the paper: {paper} bits/dim, old version of the data)" if paper else ""),
        fits=GPU,
        settings=RunConfig(data=DataConfig(size=size, mode="rgb"), model=model, training=training),
    )


_RECIPES = [
    Recipe(
        name="digits",
        title="handwritten digits, 8x8, bundled with the package",
        reaches="1.716 bits/dim on the 297 test images, labels not given (axial demo, 2 cores, 2026-11-22)",
        fits=Hardware("cpu", 0.5),
        settings=RunConfig(
            source="digits",
            model=AxialTransformerConfig(
                shape=(8, 8), num_values=17, num_classes=10, dim=64, outer_layers=4, inner_layers=2, dropout=0.15
            ),
            training=replace(
                MUON,
                steps=1_250,
                warmup_steps=100,
                ema_decay=0.99,
                distribution_augmentation=0.6,
                shift_augmentation=0.5,
                label_dropout=0.85,  # class-conditional, and unconditional too
                evaluate_every=100,
                save_every=400,
                sample_every=400,
            ),
        ),
    ),
    Recipe(
        name="fashion_mnist",
        title="Fashion-MNIST, 28x28, on one CPU core",
        reaches="2.714 bits/dim on the 10,000 test images (1.5 core-hours in two runs, 2026-11-28)",
        fits=Hardware("cpu", 0.7),
        settings=RunConfig(
            model=replace(GRAY, shape=(28, 28)),
            training=replace(
                MUON,
                steps=8_000,
                batch_size=8,
                learning_rate=1e-2,
                muon_learning_rate=1e-2,
                muon_weight_decay=0.05,
                sample_every=1_600,
            ),
        ),
        trained_on=TRAINING_PART,
    ),
    Recipe(
        name="fashion_mnist_gpu",
        title="Fashion-MNIST, 28x28, on a GPU",
        fits=Hardware("cuda", 16),
        settings=RunConfig(
            model=AxialTransformerConfig(shape=(28, 28), dim=256, heads=8, outer_layers=8, dropout=0.1),
            training=TrainConfig(
                steps=60_000,
                batch_size=128,
                learning_rate=5e-4,
                warmup_steps=1_000,
                schedule="cosine",
                ema_decay=0.9995,
            ),
        ),
    ),
    Recipe(
        name="photos32",
        title="photographs of any size, cut into 32x32 tiles",
        reaches="1.630 bits/dim on tiles of 3 photographs; JPEG XL, one sheet: 1.774 (three runs, 6.2 core-hours)",
        fits=Hardware("cpu", 1),
        settings=RunConfig(
            data=TILES,
            model=WIDER,
            training=replace(PHOTOS, steps=44_000),
        ),
    ),
    Recipe(
        name="gray_photos32",
        title="gray photographs of any size, cut into 32x32 tiles",
        reaches="2.565 bits/dim on tiles of 3 photographs; JPEG XL, one sheet: 2.799 (varied copies, 0.6 core-hours)",
        fits=Hardware("cpu", 1),
        settings=RunConfig(
            data=replace(TILES, mode="gray"),
            model=GRAY,
            training=replace(PHOTOS, steps=20_000),
        ),
    ),
    Recipe(
        name="paper",
        title="the paper's model, small enough to learn your data in minutes",
        reaches="2.936 bits/dim on 250 validation images of Fashion-MNIST (25 minutes of a core, 2026-11-28)",
        fits=Hardware("cpu", 0.4),
        settings=RunConfig(
            validate_on=250,
            model=ModelOfData(dim=32, heads=2, rotary=None, mlp_ratio=1.0, encoder_layers=None, inner_layers=2),
            training=TrainConfig(
                steps=6_000,
                learning_rate=3e-3,
                warmup_steps=50,
                schedule="linear",
                ema_decay=0.999,
                evaluate_every=250,
                sample_every=250,
                save_every=250,
            ),
            open=tuple(name for name in OF_DATA if name not in ADDED),
        ),
    ),
    imagenet("imagenet32", "the paper's model", PAPER, accumulate=2, paper="3.76"),
    imagenet("imagenet64", "the paper's model", PAPER_64, accumulate=8, paper="3.44"),
    imagenet(
        "imagenet32_released",
        "the released configuration",
        replace(PAPER, dim=1536, inner_layers=8, dropout=0.04),
        accumulate=2,
    ),
    imagenet("imagenet64_released", "the released configuration", replace(PAPER_64, inner_layers=8), accumulate=8),
    Recipe(
        name="bair",  # frames are channels; training takes 16 of 30 frames at a random offset, evaluation the first 16
        title="BAIR robot pushing, 16 frames of 64x64, the first one given",
        reaches=f"{NOT_YET_MEASURED} (the paper: 1.29 bits/dim)",
        fits=GPU,
        settings=RunConfig(
            data=DataConfig(frames=16, offsets="random", validation_fraction=0.02),
            model=replace(PAPER, shape=(16, 64, 64), layout="frames", known_channels=3),
            training=replace(PUBLISHED, learning_rate=2e-4, accumulate=8),
        ),
    ),
    Recipe(
        name="clips32",
        title="clips of 16 frames of 32x32, time as an axis",
        reaches="1.264 bits/dim on 15 test clips, 40 % below x264 (one core, 0.7 core-hours)",
        fits=Hardware("cpu", 2.5),
        settings=RunConfig(
            data=DataConfig(size=32, cut="crop"),
            model=replace(PIXELS, shape=(16, 32, 32), outer_layers=(3, 2), dropout=0.05),
            training=replace(CLIPS, steps=1_300, learning_rate=1e-2, muon_learning_rate=1e-2),
        ),
        trained_on="7a7763151010b51574a66055a880b53d8761ca85706735ae39da282a5fb86c91",
    ),
    Recipe(
        name="clips32_frames",  # the paper's model of video
        title="clips of 16 frames of 32x32, frames as channels",
        reaches="2.547 bits/dim on 15 test clips, 21 % above x264 (one core, 53 minutes)",
        fits=Hardware("cpu", 1.5),
        settings=RunConfig(
            data=DataConfig(size=32, cut="crop"),
            model=AxialTransformerConfig(
                shape=(16, 32, 32),
                channels=3,
                layout="frames",
                known_channels=3,
                mlp_ratio=2.0,
                encoder_layers=2,
                outer_layers=2,
                inner_layers=2,
                dropout=0.05,
            ),
            training=replace(
                CLIPS,
                steps=2_000,
                batch_size=16,
                optimizer="adam",
                learning_rate=1.5e-3,
                schedule="cosine",
                ema_decay=0.99,
            ),
        ),
    ),
]
NAMED = {recipe.name: recipe for recipe in _RECIPES}
"""The recipes by name; `custom` is for any other data."""
