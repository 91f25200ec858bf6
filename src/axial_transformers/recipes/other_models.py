"""Downsampled ImageNet by the other models of table 1: each of 20 layers of width 2048, the size of the axial ones."""

from typing import Any

from axial_transformers.baselines import BlockTransformerConfig, ImageTransformerConfig, SparseTransformerConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes.imagenet import imagenet_recipe
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Recipe


def imagenet32_transformer() -> Recipe:
    """A Transformer over the sites in raster order, every one of which attends to all before it."""
    model = AxialTransformerConfig(layout="raster", **_size(32))
    return imagenet_recipe(model, "a Transformer over the raster", NOT_YET_MEASURED, accumulate=4)


def imagenet32_image_transformer() -> Recipe:
    """Blocks of 256 sites, each of which attends to the 256 before it as well."""
    model = ImageTransformerConfig(block=256, memory=256, **_size(32))
    return imagenet_recipe(model, "Image Transformer", NOT_YET_MEASURED, accumulate=8)


def imagenet32_block_transformer() -> Recipe:
    """Bands of four rows and strips of four columns in turn, 384 sites each."""
    model = BlockTransformerConfig(blocks=((4, 96), (32, 12)), **_size(32))
    return imagenet_recipe(model, "Block Transformer", NOT_YET_MEASURED, accumulate=4)


def imagenet64_sparse_transformer() -> Recipe:
    """Half of the heads attend to the last row of sites, half to one column."""
    return imagenet_recipe(
        SparseTransformerConfig(**_size(64)), "Strided Sparse Transformer", NOT_YET_MEASURED, accumulate=32
    )


def _size(size: int) -> dict[str, Any]:
    """20 layers as in the paper's models (8 + 8 + 4), with as many parameters but for the table of positions."""
    return {"shape": (size, size), "channels": 3, "dim": 2048, "heads": 16, "mlp_ratio": 1.0, "inner_layers": 20}
