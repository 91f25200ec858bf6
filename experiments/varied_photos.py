"""Photographs as other cameras and files would show them: training data of `photos32` and `gray_photos32`.

    python experiments/varied_photos.py photos/train varied/ --copies 24
    python experiments/varied_photos.py photos_debian/ varied/ --copies 12     # those of wallpapers.py
    python experiments/varied_photos.py photos_budgie/ varied/ --copies 12     # these trained gray_photos32
    python experiments/varied_photos.py photos_elementary/ varied/ --copies 12
    python experiments/varied_photos.py photos_pop/ varied/ --copies 12
    for photos in photos/train photos_*; do
        python experiments/varied_photos.py $photos varied/ --copies 25 --sharp    # and these photos32
    done

Cameras and files differ in sharpness, contrast, noise, and in how finely they store colour. The first copy of a
photograph is itself. Two of three others are smaller, down to a quarter of the side. Seven of ten have another contrast
and brightness, stronger or weaker colours, colours at a half to a quarter of the resolution, or noise.

Sharp copies look like scanned film, which many scanners sharpen: they are smaller, an unsharp mask makes their details
stronger, and seven of ten store colours at half the resolution.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import DataConfig, load
from axial_transformers.progress import bar
from of_benchmarks import run_command

Pixels = NDArray[np.float64]

LUMA_AND_CHROMA = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
"""From red, green and blue, as in JPEG files."""
FINGERPRINTS: dict[Literal["rgb", "gray"], str] = {
    "rgb": "17e91b29f4d334272ce7f1f1fbd202200f14d86a1a49b3c1e7643fffce410409",
    "gray": "16687d4d8b2b51b3e58261883333ca300d9e7b92ba5a8b64bd2141abb7373b9e",
}
"""Of the training tiles of these commands with seed 0, of which the first three trained the gray model."""
FILTERS = (Image.Resampling.LANCZOS, Image.Resampling.BOX, Image.Resampling.BICUBIC)


def resized(plane: Pixels, size: tuple[int, int], by: Image.Resampling) -> Pixels:
    """A plane [H, W] at another size (height, width)."""
    image = Image.fromarray(plane.astype(np.float32)).resize(size[::-1], by)
    return np.asarray(image, np.float64)


def smaller(photo: Pixels, generator: np.random.Generator) -> Pixels:
    """The photograph [H, W, 3] at its size, or, twice as often, at one down to a quarter of the side."""
    by = FILTERS[generator.integers(len(FILTERS))]
    factor = 1 + 3 * generator.random()
    if generator.random() < 1 / 3:
        return photo
    height, width, channels = photo.shape
    size = round(height / factor), round(width / factor)
    return np.stack([resized(photo[..., channel], size, by) for channel in range(channels)], axis=-1)


def of_another_camera(photo: Pixels, generator: np.random.Generator) -> Pixels:
    """The photograph with other brightness, contrast, colours and noise; its values may leave 0..255."""
    planes = photo @ LUMA_AND_CHROMA.T
    luma, chroma = planes[..., 0], planes[..., 1:]
    size = luma.shape
    luma[:] = (luma - 128) * np.exp(generator.uniform(-0.35, 0.35)) + 128 + generator.uniform(-25, 25)
    chroma *= np.exp(generator.uniform(-0.7, 0.5))
    if generator.random() < 0.7:
        factor = generator.choice([1.5, 2, 3, 4])
        coarse = max(8, round(size[0] / factor)), max(8, round(size[1] / factor))
        for plane in (0, 1):
            few = resized(chroma[..., plane], coarse, Image.Resampling.BOX)
            chroma[..., plane] = resized(few, size, Image.Resampling.BICUBIC)
    if generator.random() < 0.7:
        luma += generator.normal(size=size) * generator.uniform(0, 2.2)
    if generator.random() < 0.5:
        chroma += generator.normal(size=chroma.shape) * generator.uniform(0, 0.8)
    return planes @ np.linalg.inv(LUMA_AND_CHROMA).T


def varied(photo: Pixels, generator: np.random.Generator) -> Pixels:
    """The photograph [H, W, 3], often smaller, often of another camera."""
    changed = smaller(photo, generator)
    return of_another_camera(changed, generator) if generator.random() < 0.7 else changed


def blurred(plane: Pixels) -> Pixels:
    """The plane [H, W] with each pixel the mean of its neighbours, weighted 1 2 1 along both axes."""
    for axis in (0, 1):
        border = [(0, 0), (0, 0)]
        border[axis] = 1, 1
        wide = np.pad(plane, border, mode="edge")
        before, here, after = (wide.take(np.arange(plane.shape[axis]) + step, axis) for step in range(3))
        plane = (before + 2 * here + after) / 4
    return plane


def sharpened(photo: Pixels, generator: np.random.Generator) -> Pixels:
    """A smaller photograph with sharper luma, often with coarse colours; its values may leave 0..255."""
    factor = generator.uniform(1.5, 4)
    by = FILTERS[generator.integers(len(FILTERS))]
    size = tuple(max(40, round(side / factor)) for side in photo.shape[:2])
    planes = np.stack([resized(photo[..., channel], size, by) for channel in range(3)], axis=-1) @ LUMA_AND_CHROMA.T
    luma, chroma = planes[..., 0], planes[..., 1:]
    luma[:] = (luma - 128) * np.exp(generator.uniform(-0.1, 0.5)) + 128 + generator.uniform(-25, 25)
    chroma *= np.exp(generator.uniform(-0.8, 0.2))
    amount = generator.uniform(0.2, 1.6)
    soft = blurred(luma)
    if generator.random() < 0.5:
        soft = blurred(blurred(soft))
    luma += amount * (luma - soft) + generator.normal(size=size) * generator.uniform(0, 2)
    if generator.random() < 0.7:
        coarse = tuple(-(-side // 2) for side in size)
        for plane in (0, 1):
            step = generator.choice([1, 1.4, 2])
            few = np.rint(resized(chroma[..., plane], coarse, Image.Resampling.BOX) / step) * step
            chroma[..., plane] = resized(few, size, Image.Resampling.BILINEAR)
    else:
        chroma += generator.normal(size=chroma.shape) * generator.uniform(0, 1)
    return planes @ np.linalg.inv(LUMA_AND_CHROMA).T


def main(photos: Path, out: Path, *, copies: int = 24, sharp: bool = False, seed: int = 0) -> None:
    """Write copies of photographs as PNG files.

    Args:
        photos: a folder of photographs.
        out: a folder, to which the copies are added.
        copies: of each photograph, itself included; sharp ones do not include it.
        sharp: write sharp copies.
        seed: of the random choices.
    """
    paths = sorted(path for path in photos.iterdir() if path.is_file())
    out.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for path in bar("photographs")(paths):
        with Image.open(path) as image:
            photo = np.asarray(image.convert("RGB"), np.float64)
        for copy in range(copies):
            changed = photo
            if sharp:
                changed = sharpened(photo, generator)
            elif copy:
                changed = varied(photo, generator)
            pixels = np.clip(np.rint(changed), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(out / f"{path.stem}_{'sharp_' if sharp else ''}{copy:02}.png")
    for mode, known in FINGERPRINTS.items():
        tiles = DataConfig(size=32, cut="tiles", offsets="random", mode=mode, test_fraction=0)
        found = load(out, tiles, "train").fingerprint
        print(f"{mode}, fingerprint {found}: {'the' if found == known else 'not the'} data of the shipped model")


if __name__ == "__main__":
    run_command(main)
