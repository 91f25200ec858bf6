"""Conditioning of a model: class labels and external features."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor


class Conditioning(NamedTuple):
    """Labels and external conditioning of a batch; None where there are none."""

    label: Integer[Tensor, " b"] | None = None
    """[B] classes."""
    cond: Float[Tensor, "b *a d"] | None = None
    """[B, *A, D]."""

    @property
    def kinds(self) -> int:
        """1 if there is a label, plus 2 if there is an external conditioning."""
        return (self.label is not None) + 2 * (self.cond is not None)

    def of(self, rows: slice | list[int]) -> "Conditioning":
        """The conditioning of the examples `rows`."""
        return Conditioning(*(None if part is None else part[rows] for part in self))

    def repeated(self, count: int) -> "Conditioning":
        """The conditioning with every example repeated `count` times in succession."""
        return Conditioning(*(None if part is None else part.repeat_interleave(count, dim=0) for part in self))


def labels_of(label: Integer[Tensor, " b"] | int | None, batch: int) -> Integer[Tensor, " b"] | None:
    """Labels [B] as they are, or one class, an int, as the labels of all `batch` examples."""
    return torch.full((batch,), label) if isinstance(label, int) else label


UNCONDITIONAL = Conditioning()
