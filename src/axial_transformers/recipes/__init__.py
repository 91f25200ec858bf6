"""Recipes: the settings of whole runs, and the bits/dim that each reaches."""

from textwrap import wrap

from axial_transformers.recipes.custom import custom, in_blocks, of_own_data, suited, tiled
from axial_transformers.recipes.named import NAMED
from axial_transformers.recipes.recipe import NOT_YET_MEASURED, Hardware, Recipe

__all__ = ["NAMED", "NOT_YET_MEASURED", "Hardware", "Recipe", "custom", "in_blocks", "of_own_data", "suited", "tiled"]


def listed() -> str:
    """Return all recipes in 80 columns."""
    indent, lines = " " * 4, []
    for name, recipe in NAMED.items():
        lines.append(f"  {name}")
        for text in (f"{recipe.title}; fits {recipe.fits}", recipe.reaches):
            lines += wrap(text, 80, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)
