"""Recipes: the settings of whole runs, each a Python function that states the number it reaches."""

from textwrap import wrap

from axial_transformers.recipes.custom import custom, in_blocks, of_own_data, suited, tiled
from axial_transformers.recipes.named import (
    bair,
    clips32,
    clips32_frames,
    digits,
    fashion_mnist,
    fashion_mnist_gpu,
    fashion_mnist_wide,
    imagenet32,
    imagenet32_block_transformer,
    imagenet32_image_transformer,
    imagenet32_released,
    imagenet32_transformer,
    imagenet64,
    imagenet64_released,
    imagenet64_sparse_transformer,
    paper,
    photos32,
)
from axial_transformers.recipes.recipe import NAMED, NOT_YET_MEASURED, Hardware, Recipe

__all__ = [
    "NAMED",
    "NOT_YET_MEASURED",
    "Hardware",
    "Recipe",
    "bair",
    "clips32",
    "clips32_frames",
    "custom",
    "digits",
    "fashion_mnist",
    "fashion_mnist_gpu",
    "fashion_mnist_wide",
    "imagenet32",
    "imagenet32_block_transformer",
    "imagenet32_image_transformer",
    "imagenet32_released",
    "imagenet32_transformer",
    "imagenet64",
    "imagenet64_released",
    "imagenet64_sparse_transformer",
    "in_blocks",
    "of_own_data",
    "paper",
    "photos32",
    "suited",
    "tiled",
]


def listed() -> str:
    """Return all recipes in 80 columns."""
    indent, lines = " " * 4, []
    for name, recipe in NAMED.items():
        lines.append(f"  {name}")
        for text in (f"{recipe.title}; fits {recipe.fits}", recipe.reaches):
            lines += wrap(text, 80, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)
