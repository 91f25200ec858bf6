"""The recipes with a name: digits, Fashion-MNIST, photographs, downsampled ImageNet and videos.

Bits/dim of ImageNet compare only on the same version; the published ones are of the old one (49,999 validation images).
"""

from dataclasses import replace
from typing import Any

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines import BlockTransformerConfig, ImageTransformerConfig, SparseTransformerConfig
from axial_transformers.recipes.custom import OF_DATA, ModelOfData
from axial_transformers.recipes.recipe import GPU, NOT_YET_MEASURED, Hardware, published_training, recipe
from axial_transformers.training import RunConfig, TrainConfig


@recipe(
    title="handwritten digits, 8x8, bundled with the package",
    reaches="1.716 bits/dim on the 297 test images, labels not given (axial demo, 2 cores, 2026-11-22)",
    fits=Hardware("cpu", 0.5),
)
def digits() -> RunConfig:
    """Return a class-conditional model that is also unconditional: training hides six of seven labels."""
    return RunConfig(
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
            optimizer="muon",
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


@recipe(
    title="Fashion-MNIST, 28x28, on one CPU core",
    reaches="2.712 bits/dim on the 10,000 test images (0.7 core-hours, 2026-11-24)",
    fits=Hardware("cpu", 0.7),
)
def fashion_mnist() -> RunConfig:
    """Return a model for about 40 minutes of a CPU core that multiplies bfloat16."""
    return RunConfig(
        model=AxialTransformerConfig(
            shape=(28, 28),
            rotary=100.0,
            convolution=2,
            dim=128,
            heads=4,
            mlp_ratio=1.0,
            outer_layers=4,
            inner_layers=4,
        ),
        training=TrainConfig(
            steps=8_000,
            batch_size=8,
            optimizer="muon",
            learning_rate=1e-2,
            muon_learning_rate=0.015,
            muon_weight_decay=0.05,
            longest_warmup=200,
            schedule="linear",
            ema_decay=0.999,
            compile="bfloat16",
            evaluate_every=1_000,
            sample_every=1_600,
        ),
    )


@recipe(
    title="Fashion-MNIST, 28x28, wider, on one CPU core",
    reaches="2.686 bits/dim on the 10,000 test images (1.6 core-hours, 2026-11-24)",
    fits=Hardware("cpu", 0.9),
)
def fashion_mnist_wide() -> RunConfig:
    """Return a wider model, for about 100 minutes."""
    run = fashion_mnist()
    return replace(
        run, model=replace(run.model, dim=160, heads=5, mlp_ratio=2.0), training=replace(run.training, steps=10_500)
    )


@recipe(
    title="Fashion-MNIST, 28x28, on a GPU",
    reaches=NOT_YET_MEASURED,
    fits=Hardware("cuda", 16),
)
def fashion_mnist_gpu() -> RunConfig:
    """Return a wider model, for a GPU."""
    return RunConfig(
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


@recipe(
    title="photographs of any size, cut into 32x32 tiles",
    reaches="1.679 bits/dim on tiles of 3 photographs; JPEG XL: 2.058 (varied copies, 1.7 core-hours)",
    fits=Hardware("cpu", 1),
)
def photos32() -> RunConfig:
    """Return a model of 32x32 tiles of RGB photographs: ordinal values, centred on a prediction."""
    return RunConfig(
        data=DataConfig(size=32, fit="tiles", offsets="random", mode="rgb"),
        model=AxialTransformerConfig(
            shape=(32, 32),
            channels=3,
            layout="columns",
            values="ordinal",
            centred=True,
            max_log_precision=5.0,  # with which its number was reached
            rotary=100.0,
            convolution=2,
            dim=96,
            heads=3,
            mlp_ratio=2.0,
            outer_layers=4,
            inner_layers=2,
        ),
        training=TrainConfig(
            steps=3_500,
            batch_size=4,
            optimizer="muon",
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


@recipe(
    title="the paper's model, as large as suits your data",
    reaches="3.925 bits/dim on 200 images of Fashion-MNIST (88 s of CPU time on 1,800, 2026-11-26)",
    fits=Hardware("cpu", 0.4),
)
def paper() -> RunConfig:
    """Return the paper's model without later additions, and its training; the data decide shape, width and batch."""
    model = ModelOfData(rotary=None, convolution=0, mlp_ratio=1.0, encoder_layers=None, inner_layers=2)
    training = TrainConfig(steps=6_000, evaluate_every=250, sample_every=250, save_every=250)
    own = ("layout", "values", "centred", "convolution", "outer_layers", "num_classes")
    closed = {"training.label_dropout", *(f"model.{name}" for name in own)}
    data = tuple(name for name in OF_DATA if name not in closed)
    return RunConfig(validate_on=250, model=model, training=training, open=data)


@recipe(
    title="ImageNet 32x32, the paper's model",
    reaches=f"{NOT_YET_MEASURED} (the paper: 3.76 bits/dim, old version of the data)",
    fits=GPU,
)
def imagenet32() -> RunConfig:
    """Return the paper's model, trained as in the released code."""
    return imagenet_run(_paper(32), accumulate=2)


@recipe(
    title="ImageNet 64x64, the paper's model",
    reaches=f"{NOT_YET_MEASURED} (the paper: 3.44 bits/dim, old version of the data)",
    fits=GPU,
)
def imagenet64() -> RunConfig:
    """Return the paper's model, trained as in the released code."""
    return imagenet_run(_paper(64), accumulate=8)


@recipe(title="ImageNet 32x32, the released configuration", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet32_released() -> RunConfig:
    """Return the released configuration."""
    return imagenet_run(_released(32, dim=1536, dropout=0.04), accumulate=2)


@recipe(title="ImageNet 64x64, the released configuration", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet64_released() -> RunConfig:
    """Return the released configuration."""
    return imagenet_run(_released(64, dim=2048, dropout=0.0), accumulate=8)


def imagenet_run(model: AxialTransformerConfig, accumulate: int) -> RunConfig:
    """Return a model of 32x32 or 64x64 images and the published training."""
    size = model.shape[0]
    return RunConfig(
        data=DataConfig(size=size, mode="rgb"),
        model=model,
        training=published_training(learning_rate=1e-4 if size == 32 else 2e-4, accumulate=accumulate),
    )


def _paper(size: int) -> AxialTransformerConfig:
    """8 encoder, 8 outer and 4 inner layers; 16 heads of width 128; hidden size 2048.

    Feedforward blocks also have this width, as in the released code; the paper also says 1 to 4 times.
    """
    return AxialTransformerConfig(
        shape=(size, size),
        channels=3,
        dim=2048,
        heads=16,
        mlp_ratio=1.0,
        encoder_layers=8,
        outer_layers=8,
        inner_layers=4,
    )


def _released(size: int, dim: int, dropout: float) -> AxialTransformerConfig:
    return AxialTransformerConfig(
        shape=(size, size),
        channels=3,
        dim=dim,
        heads=16,
        mlp_ratio=1.0,
        encoder_layers=8,
        outer_layers=8,
        inner_layers=8,
        dropout=dropout,
    )


@recipe(title="ImageNet 32x32, a Transformer over the raster", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet32_transformer() -> RunConfig:
    """Return a Transformer over the positions in raster order."""
    return imagenet_run(AxialTransformerConfig(layout="raster", **_other_model(32)), accumulate=4)


@recipe(title="ImageNet 32x32, Image Transformer", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet32_image_transformer() -> RunConfig:
    """Return blocks of 256 positions, which also attend to the 256 positions before."""
    return imagenet_run(ImageTransformerConfig(block=256, memory=256, **_other_model(32)), accumulate=8)


@recipe(title="ImageNet 32x32, Block Transformer", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet32_block_transformer() -> RunConfig:
    """Return bands of four rows and strips of four columns in turn, 384 positions each."""
    return imagenet_run(BlockTransformerConfig(blocks=((4, 96), (32, 12)), **_other_model(32)), accumulate=4)


@recipe(title="ImageNet 64x64, Strided Sparse Transformer", reaches=NOT_YET_MEASURED, fits=GPU)
def imagenet64_sparse_transformer() -> RunConfig:
    """Return a model with half of the heads on the last row of positions, half on one column."""
    return imagenet_run(SparseTransformerConfig(**_other_model(64)), accumulate=32)


def _other_model(size: int) -> dict[str, Any]:
    """20 layers as in the paper's models (8 + 8 + 4), with as many parameters except the position table."""
    return {"shape": (size, size), "channels": 3, "dim": 2048, "heads": 16, "mlp_ratio": 1.0, "inner_layers": 20}


@recipe(
    title="BAIR robot pushing, 16 frames of 64x64, the first one given",
    reaches=f"{NOT_YET_MEASURED} (the paper: 1.29 bits/dim)",
    fits=GPU,
)
def bair() -> RunConfig:
    """Return the paper's model of video: frames are channels, the first frame is known.

    Training takes 16 of 30 frames at a random offset, evaluation the first 16.
    """
    return RunConfig(
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


@recipe(
    title="clips of 16 frames of 32x32, time as an axis",
    reaches="1.320 bits/dim on 15 test clips, 37 % below x264 (one core, 0.7 core-hours)",
    fits=Hardware("cpu", 2.5),
)
def clips32() -> RunConfig:
    """Return a model whose outermost axis is time, with channels interleaved along the columns."""
    return RunConfig(
        data=DataConfig(size=32, fit="crop"),
        model=AxialTransformerConfig(
            shape=(16, 32, 32),
            channels=3,
            layout="columns",
            values="ordinal",
            centred=True,
            max_log_precision=5.0,  # with which its number was reached
            rotary=100.0,
            convolution=2,
            dim=64,
            heads=2,
            mlp_ratio=2.0,
            outer_layers=(3, 2),
            inner_layers=2,
            dropout=0.05,
        ),
        training=TrainConfig(
            steps=480,
            batch_size=1,
            optimizer="muon",
            learning_rate=5e-3,
            longest_warmup=100,
            schedule="linear",
            ema_decay=0.999,
            compile="bfloat16",
            horizontal_flip=True,
            log_every=10,
            evaluate_every=250,
            sample_every=1_000_000,
            save_every=250,
        ),
    )


@recipe(
    title="clips of 16 frames of 32x32, frames as channels",
    reaches="2.547 bits/dim on 15 test clips, 21 % above x264 (one core, 53 minutes)",
    fits=Hardware("cpu", 1.5),
)
def clips32_frames() -> RunConfig:
    """Return the paper's model of video."""
    return RunConfig(
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
        training=TrainConfig(
            steps=2_000,
            batch_size=16,
            learning_rate=1.5e-3,
            longest_warmup=100,
            schedule="cosine",
            ema_decay=0.99,
            compile="bfloat16",
            horizontal_flip=True,
            log_every=10,
            evaluate_every=250,
            sample_every=1_000_000,
            save_every=250,
        ),
    )
