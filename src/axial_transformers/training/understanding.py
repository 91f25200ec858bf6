"""The data, model and machine of a run in numbers, for train.json and the screen."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Understanding:
    """The data as it was understood when a run was begun, and the costs that were expected then."""

    train: int
    """Examples that train."""
    validation: int
    """Examples that validate, of which training evaluates at most `Origin.validate_on`."""
    test: int | None
    """Examples that test; None: the source has no such part."""
    axes: tuple[str, ...]
    """Names of the axes, outermost first."""
    channels: tuple[str, ...]
    """Names of the channels."""
    parameters: int
    """Numbers that are learned."""
    memory_bytes: int | None
    """Estimated memory that a step needs on each device; None: not estimated."""
    seconds: float | None
    """Estimated time of all steps, without evaluations; None: not estimated."""


NAMES = {"T": "frame", "D": "depth", "H": "height", "W": "width", "L": "position"}
"""Names of axes by the letters of `DataConfig.axes`."""


def axis_names(axes: int, letters: str | None = None) -> tuple[str, ...]:
    """Names of the axes of an example by their letters if the user gave them, otherwise by their number."""
    if letters is not None and len(stated := [letter for letter in letters if letter in NAMES]) == axes:
        return tuple(NAMES[letter] for letter in stated)
    usual = {1: ("position",), 2: ("height", "width"), 3: ("frame or depth", "height", "width")}
    return usual.get(axes, tuple(f"axis {i}" for i in range(1, axes + 1)))


def channel_names(channels: int, uint16: bool) -> tuple[str, ...]:
    """Names of an example's channels by their number; those of 16-bit data are the bytes of its channels."""
    if uint16:
        return tuple(f"{byte} of {name}" for name in channel_names(channels // 2, False) for byte in ("high", "low"))
    return {1: ("gray",), 3: ("red", "green", "blue")}.get(channels, tuple(f"channel {i}" for i in range(channels)))
