"""How well both scores find images that were changed, and whether bits go with PNG's bits. A row for each change.

    python experiments/outlier_scores.py fashion_mnist fashion_mnist_test.npz --others mnist_t10k.npz
    python experiments/outlier_scores.py photos32 photos/test

AUROC of the changed images (or of others) against the same number of unchanged ones, by bits/dim and by the
complexity-corrected score; and the rank correlation by which `axial score` chooses, where a twentieth is changed.
"""

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from axial_transformers.data import DataConfig, load
from axial_transformers.likelihood.outliers import auroc, correlation, score
from axial_transformers.models import AxialTransformer
from of_benchmarks import run_command

Pixels = NDArray[np.uint8]
Change = Callable[[Pixels, np.random.Generator, int], NDArray[np.integer]]


def square(x: Pixels, random: np.random.Generator, highest: int) -> Pixels:
    """Put noise into a square of a third of the sides."""
    side = len(x) // 3
    row, column = random.integers(0, len(x) - side + 1, 2)
    x = x.copy()
    x[row : row + side, column : column + side] = random.integers(0, highest + 1, (side, side, x.shape[-1]))
    return x


def through(change: Callable[[Image.Image], Image.Image]) -> Change:
    """Return a change of Pillow images."""
    return lambda x, *_: np.asarray(change(Image.fromarray(x.squeeze()))).reshape(x.shape)


def as_jpeg(picture: Image.Image) -> Image.Image:
    """Return the image after JPEG at quality 20."""
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=20)
    return Image.open(stream)


CHANGES: dict[str, Change] = {
    "square of noise": square,
    "noise everywhere": lambda x, random, highest: np.rint(x + random.normal(0, highest / 16, x.shape)).astype(int),
    "blurred": through(lambda picture: picture.filter(ImageFilter.GaussianBlur(1.5))),
    "JPEG": through(as_jpeg),
    "negative": lambda x, _, highest: highest - x,
    "upside down": lambda x, *_: x[::-1],
}


def main(model: str, source: str, others: str | None = None, count: int = 200) -> None:
    """Print the rows.

    Args:
        others: images that are all odd.
        count: images of each kind, evenly spaced.
    """
    net, random = AxialTransformer.from_pretrained(model), np.random.default_rng(0)
    high, options = net.config.highest, DataConfig(size=net.config.shape[0], fit="tiles")
    usual = load(source, options, "test" if source == "digits" else "all").spread(2 * count)[:].values
    kept, given = usual[::2], usual[1::2]
    odd = {name: np.stack([change(x, random, high) for x in given]).clip(0, high) for name, change in CHANGES.items()}
    odd |= {others: load(others, options, "all").spread(count)[:].values} if others else {}
    typical = score(net, kept)
    for name, values in odd.items():
        found = score(net, values.astype(np.uint8))
        assert typical.corrected is not None
        assert found.corrected is not None
        few = slice(max(1, len(kept) // 20))
        bits = np.concatenate([typical.bits, found.bits[few]])
        png = bits - np.concatenate([typical.corrected, found.corrected[few]])
        by_bits, by_corrected = auroc(typical.bits, found.bits), auroc(typical.corrected, found.corrected)
        related = correlation(bits, png)
        print(f"{name:16} bits {by_bits:.3f}  corrected {by_corrected:.3f}  correlation {related:.2f}", flush=True)


if __name__ == "__main__":
    run_command(main)
