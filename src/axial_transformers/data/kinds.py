"""The kind of data: what messages call an example, and whether it is shown as an image, a clip or a volume."""

from typing import Any

KINDS = {
    "image": "images",
    "clip": "clips",
    "volume": "volumes",
    "series": "series: values over time",
    "sequence": "sequences: symbols in order",
    "row": "rows of a table",
    "token array": "tokens: symbols without order",
}
"""What an example is called, and what the data is."""
MAX_COLUMNS = 32
"""Longest example of one axis that is a row of a table, where `DataConfig.axes` says nothing."""
NARROW = 8
"""Most codebooks or measurements at a time: the other axis, at least four times as long, is then time."""
_BYTE = 256


def is_clip(axes: int, num_values: int = _BYTE, letters: str | None = None) -> bool:
    """Return True if examples of three axes are clips: one is T or, without letters, they have at most 256 values."""
    named = (letters or "").replace("C", "")[-3:]  # earlier axes are of examples
    return axes == 3 and ("T" in named if named else num_values <= _BYTE)


def kind_of(model: Any, letters: str | None = None) -> str:
    """Return what an example is called, one of `KINDS`.

    Args:
        model: the configuration of a model of the data: its shape, channels, lowest, highest and has_order.
        letters: of the axes, as in `DataConfig.axes`.
    """
    stated, shape, axes = {*(letters or "")} - {*"NC"}, model.shape, len(model.shape)
    width = model.highest - model.lowest + 1
    numbers = model.has_order
    symbols = not numbers and width > _BYTE
    if axes > 2 and (stated or not symbols):
        return "clip" if is_clip(axes, width, letters) else "volume"
    narrow = model.channels == 1 and min(shape) <= NARROW and max(shape) >= 4 * min(shape)
    if axes == 2 and ("H" in stated or not (narrow or symbols or stated)):
        return "image"
    if axes == 1 and shape[0] <= MAX_COLUMNS and not stated:
        return "row"
    if numbers:
        return "series"
    return "token array" if axes > 1 or symbols else "sequence"
