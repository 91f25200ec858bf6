"""Recipes: whole configurations, each a Python function that states the number it reaches."""

from collections.abc import Callable
from textwrap import wrap

from axial_transformers.recipes.custom import custom, tiled
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
    photos32,
)
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Hardware, Recipe

NAMED: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (
        digits,
        fashion_mnist,
        fashion_mnist_wide,
        fashion_mnist_gpu,
        photos32,
        imagenet32,
        imagenet32_released,
        imagenet64,
        imagenet64_released,
        imagenet32_transformer,
        imagenet32_image_transformer,
        imagenet32_block_transformer,
        imagenet64_sparse_transformer,
        bair,
        clips32,
        clips32_frames,
    )
}
"""The recipes with a name; `custom` is for any other data."""

__all__ = ["NAMED", "NOT_YET_MEASURED", "Hardware", "Recipe", "custom", "tiled", *NAMED]


def listed() -> str:
    """Return all recipes in 80 columns."""
    indent, lines = " " * 4, []
    for name, make in NAMED.items():
        recipe = make()
        lines.append(f"  {name}")
        for text in (f"{recipe.title}; fits {recipe.fits}", recipe.reaches):
            lines += wrap(text, 80, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)
