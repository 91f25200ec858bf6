"""Images of examples, grids, heat maps, movies, and HTML pages."""

from axial_transformers.pictures.display import Look, Palette, for_display, marks_for_display
from axial_transformers.pictures.grids import image_grid
from axial_transformers.pictures.saving import MOVIES, save_clips, save_grid, save_images, save_movie

__all__ = [
    "MOVIES",
    "Look",
    "Palette",
    "for_display",
    "image_grid",
    "marks_for_display",
    "save_clips",
    "save_grid",
    "save_images",
    "save_movie",
]
