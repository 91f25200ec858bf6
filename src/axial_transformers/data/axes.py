"""Axes of arrays: read from a word such as NCHW, or recognised."""

from collections.abc import Sequence
from pathlib import Path

_LETTERS = "CTDHWL"
_FEW = (3, 4)  # channels of pictures, with alpha


def check_axes(axes: str | None, channels_last: bool | None) -> None:
    """Raises ValueError unless `axes` names axes of an array, such as NCHW, and nothing else places the channels."""
    if axes is None:
        return
    if channels_last is not None:
        raise ValueError(f"axes={axes} says where the channels are: leave out channels_last")
    others = axes[1:]
    if axes[:1] != "N" or len(set(others)) < len(others) or set(others) - set(_LETTERS) or not set(others) - {"C"}:
        raise ValueError(
            f"axes={axes} is not N followed by different letters of C (channels), T (frames), D, H, W (depth, height,"
            " width) and L (length), such as NHWC, NCHW, NTHWC or NL"
        )


def channel_axis(
    where: Path | str, shape: Sequence[int], axes: str | None = None, channels_last: bool | None = None
) -> int | None:
    """The axis of an array [N, ..] that is its channels; None: it has none.

    Without `axes` and `channels_last` it is the last one of 5 axes or more, and of 4 axes if it is at most 4 long.

    Raises:
        ValueError: a shape that is not of these axes, or has no examples, or too few or many axes, or two readings.
    """
    count = len(shape)
    if axes is not None:
        if len(axes) != count:
            raise ValueError(f"{where} has shape {list(shape)}, not the {len(axes)} axes of axes={axes}")
        channels = axes.index("C") if "C" in axes else None
    else:
        last = channels_last
        if last is None:
            last = count >= 5 or (count == 4 and 1 <= shape[-1] <= 4)
            if readings := _two_readings(shape):
                raise ValueError(f"{where} has shape {list(shape)}: it may be {' or '.join(readings)}; say which")
        channels = count - 1 if last else None
    of_channels = channels is not None
    if not 2 + of_channels <= count <= 5 + of_channels or 0 in shape:
        raise ValueError(
            f"{where} has shape {list(shape)}: [N, H, W], [N, H, W, C] or [N, T, H, W, C] without zeros is needed"
        )
    return channels


def _two_readings(shape: Sequence[int]) -> list[str]:
    """Readings of a shape whose channels probably lie elsewhere than recognised; none where one is plain."""
    if len(shape) == 4:
        _, second, third, last = shape
        if second in _FEW and third == last > 4:
            return [f"images of {second} channels (axes=NCHW)", f"clips of {second} frames (axes=NTHW)"]
        if 5 <= last <= 16 and min(second, third) > last:
            return [f"images of {last} channels (axes=NHWC)", f"clips of {second} frames, {last} wide (axes=NTHW)"]
    if len(shape) == 5 and shape[3] == shape[4] > 4 and (shape[1] in _FEW or shape[2] in _FEW):
        second, third = shape[1:3]
        before, frames = ("NTCHW", second) if third in _FEW else ("NCTHW", third)
        channels = third if third in _FEW else second
        return [
            f"clips of {frames} frames and {channels} channels (axes={before})",
            f"clips of {second} frames and {shape[4]} channels (axes=NTHWC)",
        ]
    return []
