"""Heat maps: the bits of each site as a colour.

The colours go from 0 to the bits of a site whose values are all as likely (rounded up), for all examples alike.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.captions import with_scale
from axial_transformers.data.colours import HEAT, Pixels, colour, sheet
from axial_transformers.data.contact_sheet import as_row, enlargement, gap_of, image_grid
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.models import AxialTransformer


def heat_map(model: AxialTransformer, example: NDArray[np.integer]) -> Image.Image:
    """The bits of an example [*A, C], averaged over channels, with the scale of the colours; frames side by side.

    Raises:
        ValueError: an example of more than three axes.
    """
    heat = heat_colours(model, torch.from_numpy(example[None]))
    picture = sheet(heat, columns=1, scale=enlargement(heat.shape[2], heat.shape[1]))
    return with_scale(picture, HEAT, hottest(model), "bits")


def under_examples(
    model: AxialTransformer, x: torch.Tensor, label: torch.Tensor | None = None, uint16: bool = False
) -> Image.Image:
    """Examples x [B, *A, C], and below each its heat map: images in one row, clips and sequences below each other.

    Raises:
        ValueError: examples of more than three axes.
    """
    heat = heat_colours(model, x, label)
    columns = len(x) if x.ndim == 4 else 1
    scale = enlargement(columns * heat.shape[2], heat.shape[1] * (len(x) // columns)) if x.ndim > 3 else None
    gap = gap_of(scale or 1)
    strips = list[Image.Image]()
    for start in range(0, len(x), columns):
        part = slice(start, start + columns)
        shown = image_grid(x[part].numpy(), columns, scale, model.config.num_values, uint16)
        bits = sheet(heat[part], columns, scale or 1, gap)
        height = bits.height if scale else max(12, shown.height // 8)
        strips += [shown, bits.resize((shown.width - 2 * gap, height), Image.Resampling.NEAREST)]
    page = Image.new("RGB", (strips[0].width, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        page.paste(strip, ((page.width - strip.width) // 2, top), strip if strip.mode == "RGBA" else None)
        top += strip.height
    return with_scale(page, HEAT, hottest(model), "bits")


def hottest(model: AxialTransformer) -> int:
    """The bits that the last of the colours stands for: those of a site whose values are all as likely, rounded up."""
    return math.ceil(math.log2(model.config.num_values))


def heat_colours(model: AxialTransformer, x: torch.Tensor, label: torch.Tensor | None = None) -> Pixels:
    """The bits of each site of examples [B, *A, C], averaged over channels, as colours uint8 [B, H, W, 4].

    Frames are side by side.

    Raises:
        ValueError: examples of more than three axes.
    """
    axes = x.ndim - 2
    if not 1 <= axes <= 3:
        raise ValueError(f"heat maps are for sequences, images and clips, not for {axes} axes")
    bits = bits_map(model, x, label).mean(dim=-1).cpu().numpy()
    if axes == 3:
        bits = np.concatenate(list(bits.swapaxes(0, 1)), axis=2)
    if axes == 1:
        bits = np.stack([as_row(each) for each in bits])
    return colour(bits / hottest(model), HEAT)
