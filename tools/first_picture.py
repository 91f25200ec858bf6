"""The image at the top of README and of the home page: samples beside completions, tiles of equal size in one grid.

.venv/bin/python tools/first_picture.py fashion_mnist_test.npz
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import axial_transformers as axial
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.display import for_display, with_alpha
from axial_transformers.pictures.grids import above, contact_sheet, gap_of

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "first_picture.png"
ROWS, DRAWN, SCALE, APART = 6, 4, 2, 12
"""Rows of both grids, completions in a row, the enlargement of a tile, and the pixels between the grids."""


def main() -> None:
    """Draw 36 samples of seed 0, and the lower halves of the first six test images, and write both side by side."""
    model = axial.AxialTransformer.from_pretrained("fashion_mnist")
    with np.load(sys.argv[1]) as arrays:
        images = torch.from_numpy(arrays["images"][:ROWS, ..., None])
    samples = axial.sample(model, ROWS * (DRAWN + 2), seed=0)
    filled = axial.complete(model, images, rows=14, count=DRAWN, seed=0)
    known = np.zeros(images.shape[1:], bool)
    known[:14] = True
    tiles = with_alpha(for_display(samples.numpy()))
    grid = Image.fromarray(contact_sheet(tiles, DRAWN + 2, SCALE, gap_of(SCALE)))
    left = above(grid, [("samples", 0.5)])
    right = completion_sheet(images.numpy(), known, filled.numpy(), scale=SCALE, strips=False)
    assert left.size == right.size
    both = Image.new("RGB", (2 * left.width + APART, left.height), "white")
    both.paste(left, (0, 0))
    both.paste(right, (left.width + APART, 0))
    both.save(IMAGE, optimize=True)
    print(IMAGE, both.size, IMAGE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
