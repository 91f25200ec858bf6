"""The data, model and machine of a run in numbers, for train.json and the screen."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from axial_transformers.processor import processor_name

WIDTH = 62
"""Characters of a list before it is cut: a line with its title then fits into 80 columns."""


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


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that a run was begun or resumed on."""

    processor: str
    device: str
    """The one that trains: "cpu", or the name of a GPU."""
    processes: int
    """Processes that train together, each with a device or with threads of its own."""
    threads: int
    """Threads of each process."""
    system: str
    torch_version: str
    python_version: str

    @classmethod
    def found(cls, device: torch.device, processes: int) -> Self:
        """This machine."""
        return cls(
            processor=processor_name(),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            processes=processes,
            threads=torch.get_num_threads(),
            system=platform.platform(),
            torch_version=torch.__version__,
            python_version=platform.python_version(),
        )


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


def splits(found: Understanding, validate_on: int) -> str:
    """The number of examples of each split."""
    evaluated = f" ({validate_on:,} are evaluated)" if validate_on < found.validation else ""
    test = "no test part" if found.test is None else f"{found.test:,} test"
    return f"{found.train:,} train, {found.validation:,} validation{evaluated}, {test}"


def each(found: Understanding, shape: Sequence[int], num_values: int) -> str:
    """Axes, channels and values of an example, with their names."""
    axes = " x ".join(f"{name} {length}" for name, length in zip(found.axes, shape, strict=True))
    channels = "1 channel" if len(found.channels) == 1 else f"{len(found.channels)} channels"
    return f"{axes}, {channels} ({_shortened(found.channels)}), values 0..{num_values - 1}"


def classes(names: Sequence[str] | None) -> str:
    """The number of classes and the names of the first ones."""
    return "none" if names is None else f"{len(names)}: {_shortened(names)}"


def _shortened(names: Sequence[str]) -> str:
    """Names with commas, as many as fit into a line."""
    text = ", ".join(names[:WIDTH])
    return text if len(text) <= WIDTH - 8 else text[: text.rfind(",", 0, WIDTH - 8)] + ", ..."
