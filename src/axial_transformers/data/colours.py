"""Colours of figures, and contact sheets on a transparent background, for light and for dark pages."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data.contact_sheet import contact_sheet

Pixels = NDArray[np.uint8]

INK = ("#14171f", "#4b5160", "#a6a8ad", "#f6f3ea")
DRAWN = ("#14171f", "#6b3f12", "#d9822b", "#ffd9a0")
HEAT = ("#14171f", "#3b1f6b", "#a3306f", "#ef6a3a", "#fce58a")
UNSEEN = "#8b93a340"


def colour(levels: NDArray[np.floating], stops: tuple[str, ...]) -> Pixels:
    """Levels 0..1 of any shape [...] as colours uint8 [..., 4], interpolated between the stops."""
    places = np.linspace(0, 1, len(stops))
    anchors = np.array([_rgba(stop) for stop in stops], dtype=float)
    channels = [np.interp(np.clip(levels, 0, 1), places, anchors[:, c]) for c in range(4)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def unseen(pixels: Pixels, where: NDArray[np.bool_], cover: str = UNSEEN) -> Pixels:
    """Pixels [..., H, W, 4] of which those where a mask [H, W] is true are covered."""
    return np.where(where[..., None], np.array(_rgba(cover), np.uint8), pixels)


def sheet(tiles: Pixels, columns: int, scale: int = 6, gap: int = 6) -> Image.Image:
    """Tiles [N, H, W, 4] as one picture, each `scale` times enlarged, on a transparent background."""
    return Image.fromarray(contact_sheet(tiles, columns, scale, gap))


def _rgba(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(f"{text[1:]}ff"[:8]))
