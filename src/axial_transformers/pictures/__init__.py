"""What people look at: images of examples, grids, heat maps, movies, and the elements of HTML pages."""

from axial_transformers.pictures.completions import completion_sheet, save_completions
from axial_transformers.pictures.display import Palette, can_be_shown, for_display, marks_for_display, window_of
from axial_transformers.pictures.grids import image_grid
from axial_transformers.pictures.saving import (
    require_output,
    save_clips,
    save_examples,
    save_grid,
    save_images,
    save_picture,
)

__all__ = [
    "Palette",
    "can_be_shown",
    "completion_sheet",
    "for_display",
    "image_grid",
    "marks_for_display",
    "require_output",
    "save_clips",
    "save_completions",
    "save_examples",
    "save_grid",
    "save_images",
    "save_picture",
    "window_of",
]
