"""Exact bits/dim of a data set."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Protocol

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.likelihood.bits import bits_per_dim, ordered_sum
from axial_transformers.machine import arithmetic
from axial_transformers.models.arguments import Images
from axial_transformers.models.axial_transformer import AxialTransformer
from axial_transformers.progress import Progress


class Fill(Protocol):
    """A way to compute parts, perhaps in several processes."""

    def __call__(self, whole: Tensor, parts: Iterable[slice], compute: Callable[[slice], Tensor], /) -> Tensor:
        """Set whole[part] = compute(part) for every part."""


def fill(
    whole: Tensor,
    parts: Iterable[slice],
    compute: Callable[[slice], Tensor],
) -> Tensor:
    """Set whole[part] to compute(part) in turn, and return `whole`."""
    for part in parts:
        whole[part] = compute(part)
    return whole


def batches(
    count: int,
    size: int,
    progress: Progress = iter,
) -> Iterator[slice]:
    """Yield slices of `size` of `count` items."""
    for start in progress(range(0, count, size)):
        yield slice(start, start + size)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Bits/dim of a data set under a model."""

    bits_per_dim: float
    """Mean over images of -log2 p(image) / generated positions."""
    standard_error: float
    """Standard deviation over images / sqrt(N); NaN for a single image."""
    images: int
    """Number of images N."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def evaluate(
    model: AxialTransformer,
    x: Integer[Tensor, "n *a c"] | Images,
    label: Integer[Tensor, " n"] | None = None,
    **options: Any,
) -> Evaluation:
    """Return the exact bits/dim of x [N, *A, C]; keywords and errors as of `bits_of_each`."""
    return summarise(bits_of_each(model, x, label, **options))


def bits_of_each(
    model: AxialTransformer,
    x: Integer[Tensor, "n *a c"] | Images,
    label: Integer[Tensor, " n"] | None = None,
    *,
    batch_size: int = 64,
    given_frames: int = 0,
    progress: Progress = iter,
    fill: Fill = fill,
) -> Float[Tensor, " n"]:
    """Return the exact bits/dim of each image of x [N, *A, C]: [N] float64 on the CPU.

    Matrix products have the dtype of the weights or of `torch.autocast`, never TF32.

    Args:
        batch_size: number of images at once.
        given_frames: number of frames at the start of a clip that do not count.
        progress: wraps the loop over batches, for a progress bar.
        fill: computes the batches, such as `Processes.fill`.

    Raises:
        ValueError: no images, others than the model's, or another number of labels.
    """
    if len(x) == 0:
        raise ValueError("no images to evaluate")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    if label is not None and len(label) != len(x):
        raise ValueError(f"{len(label)} labels for {len(x)} images")

    def compute(batch: slice) -> Float[Tensor, " b"]:
        images = torch.as_tensor(x[batch], device="cpu")
        labels = None if label is None else label[batch]
        with arithmetic(model.device, tf32=False):
            return bits_per_dim(model, images, labels, given_frames=given_frames).cpu()

    bits = torch.zeros(len(x), dtype=torch.float64, device="cpu")
    return fill(bits, batches(len(x), batch_size, progress), compute)


def summarise(bits: Float[Tensor, " n"]) -> Evaluation:
    """Return mean and standard error of bits/dim [N]."""
    count = len(bits)
    mean = ordered_sum(bits) / count
    variance = ordered_sum((bits - mean) ** 2) / (count - 1)  # NaN of a single image
    return Evaluation(bits_per_dim=mean.item(), standard_error=sqrt(variance.item() / count), images=count)
