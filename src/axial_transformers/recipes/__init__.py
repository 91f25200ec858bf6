"""Recipes: the settings of whole runs, and the bits/dim that each reaches."""

from axial_transformers.recipes.custom import custom, in_blocks, of_own_data, suited, tiled
from axial_transformers.recipes.named import NAMED, NOT_YET_MEASURED, Hardware, Recipe

__all__ = ["NAMED", "NOT_YET_MEASURED", "Hardware", "Recipe", "custom", "in_blocks", "of_own_data", "suited", "tiled"]
