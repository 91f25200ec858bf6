"""Pictures of the trained model's samples, completions and bits per pixel."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from axial_transformers.data import Examples
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures.display import DRAWN, HEAT, INK, Pixels, colour, unseen
from axial_transformers.pictures.grids import sheet

CLASSES = 10
KNOWN_ROWS = 4
COMPLETIONS = 4
TOGETHER = 64
"""Images whose bits are computed at once."""
HOTTEST = 6.0
"""Bits of a pixel at the upper end of the colours."""

Pictures = dict[str, Image.Image]


def figures(model: AxialTransformer, others: Examples, test: Examples) -> Pictures:
    """All pictures of the page by name; `others` are the images that are not in the test part."""
    generator = torch.Generator().manual_seed(0)
    return {
        "samples": sheet(_ink(sample(model, 60, generator=generator)), columns=CLASSES),
        "classes": sheet(_ink(_of_every_class(model, generator)), columns=CLASSES),
        **_nearest(model, others, generator),
        **_completions(model, test, generator),
        **_bits(model, test),
    }


def _of_every_class(model: AxialTransformer, generator: torch.Generator) -> Tensor:
    return sample(model, label=torch.arange(CLASSES).repeat(5), generator=generator)


def _nearest(model: AxialTransformer, others: Examples, generator: torch.Generator) -> Pictures:
    """Samples, and for each the image with the smallest sum of squared differences from it."""
    drawn = sample(model, 10, generator=generator).numpy()
    difference = drawn[:, None].astype(np.int64) - others.values.astype(np.int64)
    closest = (difference**2).sum(axis=(2, 3, 4)).argmin(axis=1)
    return {
        "drawn": sheet(_ink(drawn), columns=len(drawn)),
        "nearest": sheet(_ink(others.values[closest]), columns=len(drawn)),
    }


def _completions(model: AxialTransformer, test: Examples, generator: torch.Generator) -> Pictures:
    """The upper halves of ten test images, completions of them, and the whole images."""
    truth = _one_of_each_class(test)
    filled = complete(model, truth, rows=KNOWN_ROWS, count=COMPLETIONS, generator=generator)
    filled = filled.unflatten(0, (CLASSES, COMPLETIONS)).transpose(0, 1).flatten(0, 1)  # a column for each image
    drawn = np.arange(8)[:, None] >= KNOWN_ROWS + np.zeros(8, int)
    return {
        "given": sheet(unseen(_ink(truth), drawn), columns=CLASSES),
        "completions": sheet(np.where(drawn[..., None], colour(_levels(filled), DRAWN), _ink(filled)), columns=CLASSES),
        "truth": sheet(_ink(truth), columns=CLASSES),
    }


def _bits(model: AxialTransformer, test: Examples) -> Pictures:
    """Bits of every pixel: of ten test images, and the mean over all of them."""
    chosen = _one_of_each_class(test)
    parts = torch.from_numpy(test.values).split(TOGETHER)  # as many as in an evaluation: no kernel is compiled
    mean = torch.cat([bits_map(model, part) for part in parts]).mean(dim=0, keepdim=True)
    return {
        "bits_of": sheet(_ink(chosen), columns=CLASSES),
        "bits": sheet(_heat(bits_map(model, chosen)), columns=CLASSES),
        "bits_mean": sheet(_heat(mean), columns=1, scale=24),
    }


def _one_of_each_class(test: Examples) -> Tensor:
    """The first test image of every class [10, 8, 8, 1]."""
    assert test.labels is not None
    _, first = np.unique(test.labels, return_index=True)
    return torch.from_numpy(test.values[first])


def _levels(values: Tensor | NDArray[np.uint8]) -> NDArray[np.floating]:
    """Digits [N, 8, 8, 1] as levels 0..1 [N, 8, 8]."""
    return np.asarray(values)[..., 0] / 16


def _ink(values: Tensor | NDArray[np.uint8]) -> Pixels:
    return colour(_levels(values), INK)


def _heat(bits: Tensor) -> Pixels:
    return colour(bits[..., 0].numpy() / HOTTEST, HEAT)
