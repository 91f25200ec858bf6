"""Steps of weights, so that weights and data together take the fewest bits.

A weight becomes a multiple of the step of its row. A larger step saves bits of weights, and costs bits of data:

    bits of a weight                         constant - log2(step)
    bits of the data, for each weight        n h step^2 / (24 log 2)

n is the number of examples, h the mean square of the gradient of an example's nats (the diagonal of the Fisher
information), and step^2 / 12 the mean square of a rounding error. The sum is least where step^2 = 12 / (n h). Rounding
errors are not independent of each other, and h is an estimate: so the steps of all rows are multiplied by one number,
which is chosen by what weights and data really take.

For few data that sum is least without a model. So only steps count that add at most MAX_LOSS to the bits/dim.
"""

import copy
from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.embedded_model import (
    NUMBERS,
    STEP_CODES,
    Steps,
    nearest_codes,
    pack,
    unpack,
)
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.likelihood.bits import bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.arguments import Images
from axial_transformers.progress import Progress, renamed

SAMPLE, VALUES_OF_SAMPLE = 512, 1 << 19
"""Examples by which steps are chosen, and values of these, at most; but at least 32 examples."""
TOGETHER = 4
"""Examples in a gradient. The square of their sum is about the sum of their squares."""
MULTIPLIERS = tuple(2 ** (i / 4) for i in (8, 4, 2, 0, -1, -2, -3, -4, -6, -8, -10, -12, -16, -20, -24))
"""Factors of the steps that are tried, up to the first one from 1/2 on that keeps the model good enough."""
MULTIPLIERS_OF_CHANGES = (8, 4, 2, 1, 1 / 2)
"""Factors for changes of a model, which are few numbers."""
MAX_LOSS = 0.1
"""Part of the bits/dim of the sample that rounding may add. Of other data of the kind it adds about as much."""
TOLERANCE = 1e-3
"""Smaller steps are chosen where weights and data take at most this part more: the model changes less."""


class Rounded(NamedTuple):
    """A model for an archive."""

    model: AxialTransformer
    """Codes the data."""
    content: bytes
    """The model, from `embedded_model.pack`."""
    expected: float
    """Bytes of model and images together, by a sample."""
    by_base: float = inf
    """Bytes of the images by the base as it is, by the same sample."""


def rounded(
    model: AxialTransformer,
    images: Images,
    conditioning: Conditioning,
    progress: Progress = iter,
    base: AxialTransformer | None = None,
) -> Rounded:
    """Return the model whose weights take the fewest bits together with images [N, *A, C], and which stays good.

    Args:
        conditioning: labels of the images.
        base: the changes of this model are rounded, in place of the weights (`embedded_model.differs_in_weights`).
        progress: wraps the loops over gradients, and over the multipliers of steps.
    """
    if not len(images):
        raise ValueError("there are no images, for which a model could be rounded: leave out embed")
    of_image = prod(model.config.shape) * model.config.channels
    count = min(SAMPLE, max(32, VALUES_OF_SAMPLE // of_image), len(images))
    some = np.unique(np.linspace(0, len(images) - 1, count).astype(int)).tolist()
    of_sample = conditioning.of(some)
    with torch.inference_mode(False), torch.enable_grad(), without_dropout(model):
        sample = torch.cat([torch.as_tensor(images[i : i + 1], device="cpu") for i in some])
        model = copy.deepcopy(model).cpu().float().requires_grad_()
        if base is not None:
            _freeze_unchanged(model, base)
        suitable = _suitable_steps(model, sample, of_sample, len(images), progress)
        exact = bits_per_dim(model, sample, *of_sample).mean().item()
        tried: list[_Tried] = []
        multipliers = MULTIPLIERS if base is None else MULTIPLIERS_OF_CHANGES
        for multiplier in renamed(progress, "rounding the weights: steps tried")(multipliers):
            steps = _steps(model, base, suitable, multiplier)
            candidate, content = pack(model, steps, base)
            bits = bits_per_dim(candidate, sample, *of_sample).mean().item()
            size = len(content) + bits * of_image * len(images) / 8
            is_good = bits - exact <= MAX_LOSS * exact
            tried.append(_Tried(size, is_good, steps))
            if is_good and multiplier <= 1 / 2:
                break
        best = _smallest(tried)
        _, content = pack(model, best.steps, base)
        by_base = inf
        if base is not None:
            by_base = bits_per_dim(base, sample, *of_sample).mean().item() * of_image * len(images) / 8
    return Rounded(unpack(content, base), content, best.size, by_base)  # what readers will get


class _Tried(NamedTuple):
    size: float
    """Bytes of model and images together, by a sample."""
    is_good: bool
    """True if rounding loses at most MAX_LOSS of the bits/dim."""
    steps: Steps


def _smallest(tried: Sequence[_Tried]) -> _Tried:
    """Return the last of those that are good and about the smallest; without a good one, the last."""
    good = [one for one in tried if one.is_good] or tried[-1:]
    least = min(one.size for one in good)
    return [one for one in good if one.size <= least * (1 + TOLERANCE)][-1]


def _freeze_unchanged(model: AxialTransformer, base: AxialTransformer) -> None:
    """Freeze the weights that are those of the base: they need no steps."""
    before = base.state_dict()
    for name, weight in model.named_parameters():
        weight.requires_grad_(not torch.equal(weight, before[name]))


def _suitable_steps(
    model: AxialTransformer, sample: Tensor, conditioning: Conditioning, count: int, progress: Progress
) -> dict[str, NDArray[np.float64]]:
    """Return the steps [rows] of trained tensors: sqrt(12 / (n h)), with the mean h of a row."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    generator = torch.Generator().manual_seed(0)
    of_slice = prod(model.layout.shape) * model.layout.depth
    batches = range(0, len(sample), TOGETHER)
    for start in renamed(progress, "rounding the weights: batches of gradients")(batches):
        batch = slice(start, start + TOGETHER)
        loss = random_slice_loss(model, sample[batch], *conditioning.of(batch), generator=generator)
        gradients = torch.autograd.grad(loss * of_slice * len(sample[batch]), [*weights.values()], allow_unused=True)
        for square, gradient in zip(squares.values(), gradients):
            if gradient is not None:
                square += gradient.square()
    scale = count * len(model.slices) / len(sample)
    return {
        name: (12 / (scale * _rows(square).mean(1).double() + 1e-30)).sqrt().numpy() for name, square in squares.items()
    }


def _steps(
    model: AxialTransformer,
    base: AxialTransformer | None,
    suitable: Mapping[str, NDArray[np.float64]],
    multiplier: float,
) -> Steps:
    """Return codes of the suitable steps times a multiplier.

    The estimate holds for small changes only. So a step is at most twice the root mean square of its row, times the
    multiplier. It is at least what the largest weight needs.
    """
    codes: dict[str, NDArray[np.int64]] = {}
    for name, steps in suitable.items():
        rows = _rows(model.get_parameter(name).detach()).double()
        if base is not None:
            rows = rows - _rows(base.get_parameter(name).detach()).double()
        least = rows.abs().amax(1).numpy() * 2.1 / NUMBERS + 2.0**-40
        most = 2 * rows.square().mean(1).sqrt().numpy()
        sizes = np.maximum(least, multiplier * np.minimum(steps, most))
        codes[name] = np.clip(nearest_codes(sizes * 2.0**43), 0, STEP_CODES - 1)
    return codes


def _rows(weight: Tensor) -> Tensor:
    """Return a weight as rows along its first axis; a vector is one row."""
    return weight.flatten(1) if weight.ndim > 1 else weight[None]
