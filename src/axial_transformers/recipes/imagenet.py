"""Downsampled ImageNet, as in the paper, as in the authors' released code, and by the other models of table 1.

Bits/dim are comparable only on the same version of the data: the published ones are of the old version, which has
49,999 validation images.
"""

from typing import Any

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines import BlockTransformerConfig, ImageTransformerConfig, SparseTransformerConfig
from axial_transformers.recipes.recipe import GPU, NOT_YET_MEASURED, Recipe, published_training


def imagenet32() -> Recipe:
    """The paper's model of 32x32 images, trained as in the released code."""
    reaches = f"{NOT_YET_MEASURED} (the paper: 3.76 bits/dim, old version of the data)"
    return imagenet_recipe(_paper(32), "the paper's model", reaches, accumulate=2)


def imagenet64() -> Recipe:
    """The paper's model of 64x64 images, trained as in the released code."""
    reaches = f"{NOT_YET_MEASURED} (the paper: 3.44 bits/dim, old version of the data)"
    return imagenet_recipe(_paper(64), "the paper's model", reaches, accumulate=8)


def imagenet32_released() -> Recipe:
    """The released configuration for 32x32 images."""
    model = _released(32, dim=1536, dropout=0.04)
    return imagenet_recipe(model, "the released configuration", NOT_YET_MEASURED, accumulate=2)


def imagenet64_released() -> Recipe:
    """The released configuration for 64x64 images."""
    model = _released(64, dim=2048, dropout=0.0)
    return imagenet_recipe(model, "the released configuration", NOT_YET_MEASURED, accumulate=8)


def imagenet_recipe(model: AxialTransformerConfig, origin: str, reaches: str, accumulate: int) -> Recipe:
    """A model of 32x32 or 64x64 images and the published training, which differs in the learning rate only."""
    size = model.shape[0]
    return Recipe(
        title=f"ImageNet {size}x{size}, {origin}",
        reaches=reaches,
        fits=GPU,
        data=DataConfig(size=size, mode="rgb"),
        model=model,
        training=published_training(learning_rate=1e-4 if size == 32 else 2e-4, accumulate=accumulate),
    )


def _paper(size: int) -> AxialTransformerConfig:
    """8 encoder, 8 outer and 4 inner layers; 16 heads of width 128; "hidden size 2048" throughout.

    That is the width of the feedforward blocks, too, as in the released code: 0.505 B parameters. The paper also says
    that their width is 1 to 4 times that of the model; 4 times (`mlp_ratio=4`) has 1.009 B.
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
    """8 layers in each part, and a feedforward block as wide as the model."""
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


def imagenet32_transformer() -> Recipe:
    """A Transformer over the sites in raster order, every one of which attends to all before it."""
    model = AxialTransformerConfig(layout="raster", **_other_model(32))
    return imagenet_recipe(model, "a Transformer over the raster", NOT_YET_MEASURED, accumulate=4)


def imagenet32_image_transformer() -> Recipe:
    """Blocks of 256 sites, each of which attends to the 256 before it as well."""
    model = ImageTransformerConfig(block=256, memory=256, **_other_model(32))
    return imagenet_recipe(model, "Image Transformer", NOT_YET_MEASURED, accumulate=8)


def imagenet32_block_transformer() -> Recipe:
    """Bands of four rows and strips of four columns in turn, 384 sites each."""
    model = BlockTransformerConfig(blocks=((4, 96), (32, 12)), **_other_model(32))
    return imagenet_recipe(model, "Block Transformer", NOT_YET_MEASURED, accumulate=4)


def imagenet64_sparse_transformer() -> Recipe:
    """Half of the heads attend to the last row of sites, half to one column."""
    return imagenet_recipe(
        SparseTransformerConfig(**_other_model(64)), "Strided Sparse Transformer", NOT_YET_MEASURED, accumulate=32
    )


def _other_model(size: int) -> dict[str, Any]:
    """20 layers as in the paper's models (8 + 8 + 4), with as many parameters but for the table of positions."""
    return {"shape": (size, size), "channels": 3, "dim": 2048, "heads": 16, "mlp_ratio": 1.0, "inner_layers": 20}
