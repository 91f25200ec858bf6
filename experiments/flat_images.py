"""Draw 300 colour images of 32x32, with one to three flat shapes on a plain ground; print the bits/dim of PNG.

python experiments/flat_images.py OUT
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from of_benchmarks import run_command

COUNT, SIDE = 300, 32


def flat_image(random: np.random.Generator) -> Image.Image:
    """Return rectangles and ellipses of random colours on a plain ground."""
    image = Image.new("RGB", (SIDE, SIDE), ink(random))
    draw = ImageDraw.Draw(image)
    for _ in range(int(random.integers(1, 4))):
        x, y = map(int, random.integers(0, 24, 2))
        width, height = map(int, random.integers(5, 16, 2))
        shape = draw.rectangle if random.random() < 0.5 else draw.ellipse
        shape((x, y, min(SIDE - 1, x + width), min(SIDE - 1, y + height)), fill=ink(random))
    return image


def ink(random: np.random.Generator) -> tuple[int, ...]:
    """Return a random colour."""
    return tuple(map(int, random.integers(0, 256, 3)))


def main(out: Path) -> None:
    """Write the images.

    Args:
        out: a new folder.
    """
    out.mkdir()
    random, size = np.random.default_rng(0), 0
    for number in range(COUNT):
        image, file = flat_image(random), BytesIO()
        image.save(file, "PNG")
        (out / f"{number:03}.png").write_bytes(file.getvalue())
        size += len(file.getvalue())
    print(f"PNG: {8 * size / (COUNT * SIDE * SIDE * 3):.3f} bits/dim")


if __name__ == "__main__":
    run_command(main)
