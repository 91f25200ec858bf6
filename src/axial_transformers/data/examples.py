"""Examples: integer values, channels last, with names and labels."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of one split of a source; `examples[indices]` selects some of them, `len(examples)` counts them.

    Raises:
        ValueError: the parts do not fit together.
    """

    values: NDArray[np.uint8]
    """[N, *A, C], each value below `num_values`."""

    names: Sequence[str]
    """N names: paths within the folder, or positions in the arrays."""

    labels: NDArray[np.int64] | None = None
    """[N] classes, 0 ... num_classes - 1; None if the source has no labels."""

    class_names: tuple[str, ...] | None = None
    """Names of all classes of the source, also of those without an example here."""

    num_values: int = 256
    """Number of values that a site can take."""

    uint16: bool = False
    """True if the channels are the bytes of 16-bit ones: high byte and low byte of the first, of the second, ..."""

    skipped: tuple[str, ...] = ()
    """A line about each record or file of the source that was left out, whatever its split."""

    def __post_init__(self) -> None:
        if self.values.dtype != np.uint8 or self.values.ndim < 3:
            raise ValueError(f"values must be uint8 [N, *A, C], not {self.values.dtype} {list(self.values.shape)}")
        if len(self.names) != len(self.values):
            raise ValueError(f"{len(self.names)} names for {len(self.values)} examples")
        if self.labels is not None and self.labels.shape != (len(self.values),):
            raise ValueError(f"labels of shape {list(self.labels.shape)} for {len(self.values)} examples")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: slice | Sequence[int] | NDArray[np.integer | np.bool_]) -> "Examples":
        """The chosen examples; a slice shares memory with these."""
        chosen = np.arange(len(self))[indices]
        return Examples(
            values=self.values[indices],
            names=[self.names[i] for i in chosen],
            labels=None if self.labels is None else self.labels[indices],
            class_names=self.class_names,
            num_values=self.num_values,
            uint16=self.uint16,
            skipped=self.skipped,
        )

    def part(self, chosen: slice) -> "Examples":
        """Consecutive examples; copied if they are fewer than half, so that the others need not stay in memory."""
        numbers = range(len(self))[chosen]
        return self[chosen if 2 * len(numbers) >= len(self) else numbers]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes *A of one example, outermost first."""
        return self.values.shape[1:-1]

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return int(self.values.shape[-1])

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the source; None where it has no labels."""
        return None if self.class_names is None else len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal over names, labels, shape, type and bytes of these examples, in their order."""
        head = {
            "names": list(self.names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "shape": self.values.shape,
            "dtype": "uint8",
            "num_values": self.num_values,
            "uint16": self.uint16,
        }
        digest = hashlib.sha256(json.dumps(head).encode() + b"\0")
        for start in range(0, len(self), 1024):
            digest.update(np.ascontiguousarray(self.values[start : start + 1024]).data)
        return digest.hexdigest()


class GrowingArray:
    """Values [N, ...] collected part by part in one block of memory, so that none is held twice."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self._bytes = bytearray()

    def add(self, part: NDArray[np.uint8]) -> None:
        """Appends [n, ...]; the first part sets the shape."""
        assert self.shape in (None, part.shape[1:])
        self.shape = part.shape[1:]
        self._bytes.extend(np.ascontiguousarray(part).data.cast("B"))

    def cut(self, count: int) -> None:
        """Keeps the first `count` of what was added."""
        if count == 0:
            self.shape = None
        del self._bytes[count * math.prod(self.shape or (0,)) :]

    def values(self) -> NDArray[np.uint8]:
        """Everything added so far, [N, ...]."""
        assert self.shape is not None
        return np.frombuffer(self._bytes, np.uint8).reshape(-1, *self.shape)
