"""Steps of weights, so that weights and data together take the fewest bits.

A weight becomes a multiple of the step of its row. A larger step saves bits of weights, and costs bits of data:

    bits of a weight                         constant - log2(step)
    bits of the data, for each weight        n h step^2 / (24 log 2)

n is the number of examples, h the mean square of the gradient of an example's nats (the diagonal of the Fisher
information), and step^2 / 12 the mean square of a rounding error. The sum is least where step^2 = 12 / (n h). h is an
estimate: so the steps of all rows are multiplied by one number, which is chosen by what weights and data really take.

Inputs of a layer are alike, so a weight can take back what the rounding of another one does (Frantar et al. 2022,
"GPTQ", equation 3). Weights of a row are rounded in order. Rounding makes weight j smaller by e, and changes those that
follow:

    w_k <- w_k - e U_jk / U_jj        U'U = H^-1, U upper triangular; H is the sum of g g' over gradients g of rows

So an error costs 1 / U_jj^2 in place of H_jj: h above becomes smaller by the ratio of their means, and steps larger.

For few data that sum is least without a model. So only steps count that add at most MAX_LOSS to the bits/dim.
"""

import copy
from collections.abc import Mapping, Sequence
from math import inf, isfinite, prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.embedded_model import (
    NUMBERS,
    STEP_CODES,
    Steps,
    in_rows,
    nearest_codes,
    pack,
    step_sizes,
    unpack,
)
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.likelihood.bits import bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.arguments import Images
from axial_transformers.progress import Progress, renamed

SAMPLE, VALUES_OF_SAMPLE = 512, 1 << 19
"""Examples by which steps are chosen, and values of these, at most; but at least 32 examples."""
DAMPING = 0.01
"""Part of the mean square of gradients that is added to each square."""
MAX_WIDTH = 1024
"""Weights of a row, at most, that take back each other's errors: H has its square."""
MULTIPLIERS = tuple(2 ** (i / 4) for i in (8, 4, 2, 0, -1, -2, -3, -4, -6, -8, -10, -12, -16, -20, -24))
"""Factors of the steps that are tried, up to the first one from 1/2 on that keeps the model good enough."""
MULTIPLIERS_OF_CHANGES = (8, 4, 2, 1, 1 / 2)
"""Factors for changes of a model, which are few numbers."""
MAX_LOSS = 0.1
"""Part of the bits/dim of the sample that rounding may add. Of other data of the kind it adds about as much."""
TOLERANCE = 3e-4
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
    some = _sample_numbers(len(images), of_image)
    of_sample = conditioning.of(some)

    def bits_by(model: AxialTransformer) -> float:
        return bits_per_dim(model, sample, *of_sample).mean().item()

    with torch.inference_mode(False), torch.enable_grad(), without_dropout(model):
        sample = torch.cat([torch.as_tensor(images[i : i + 1], device="cpu") for i in some])
        model = copy.deepcopy(model).cpu().float().requires_grad_()
        if base:
            _freeze_unchanged(model, base)
        exact = bits_by(model)
        if not isfinite(exact):
            raise ValueError("the model's bits/dim are not finite: its weights cannot be used to compress")
        costs = _costs(model, sample, of_sample, len(images), progress)
        tried: list[_Tried] = []
        multipliers = MULTIPLIERS_OF_CHANGES if base else MULTIPLIERS
        for multiplier in renamed(progress, "rounding the weights: steps tried")(multipliers):
            steps = _steps(model, base, costs, multiplier)
            candidate, content = pack(_with_errors_taken_back(model, base, costs, steps), steps, base)
            bits = bits_by(candidate)
            size = len(content) + bits * of_image * len(images) / 8
            is_good = bits - exact <= MAX_LOSS * exact
            tried.append(_Tried(size, is_good, content))
            if is_good and multiplier <= 1 / 2:
                break
        best = _smallest(tried)
        by_base = bits_by(base) * of_image * len(images) / 8 if base else inf
    return Rounded(unpack(best.content, base), best.content, best.size, by_base)  # what readers will get


def _sample_numbers(count: int, of_image: int) -> list[int]:
    """Return which of so many images, of so many values each, choose the steps; they are spread evenly."""
    most = min(SAMPLE, max(32, VALUES_OF_SAMPLE // of_image), count)
    return np.unique(np.linspace(0, count - 1, most).astype(int)).tolist()


class _Tried(NamedTuple):
    size: float
    """Bytes of model and images together, by a sample."""
    is_good: bool
    """True if rounding loses at most MAX_LOSS of the bits/dim."""
    content: bytes
    """The model, from `embedded_model.pack`."""


class _Cost(NamedTuple):
    """What errors of a tensor's weights cost."""

    steps: NDArray[np.float64]
    """Suitable steps of its rows [R]."""
    taken_back: NDArray[np.float64] | None
    """U_jk / U_jj [K, K], by which an error of weight j changes weight k of its row; None: by nothing."""


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


def _costs(
    model: AxialTransformer, sample: Tensor, conditioning: Conditioning, count: int, progress: Progress
) -> dict[str, _Cost]:
    """Return what errors cost, of each trained tensor."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    squares = {name: torch.zeros_like(in_rows(weight)) for name, weight in weights.items()}
    products = {}
    for name, square in squares.items():
        width = square.shape[1]
        if width <= MAX_WIDTH:
            products[name] = square.new_zeros(width, width, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    of_slice = prod(model.layout.shape) * model.layout.depth
    for i in renamed(progress, "rounding the weights: gradients")(range(len(sample))):
        example = slice(i, i + 1)
        loss = random_slice_loss(model, sample[example], *conditioning.of(example), generator=generator)
        gradients = torch.autograd.grad(loss * of_slice, [*weights.values()], allow_unused=True)
        for name, gradient in zip(weights, gradients):
            if gradient is None:
                continue
            rows = in_rows(gradient)
            squares[name] += rows.square()
            if name in products:
                products[name] += rows.T @ rows
    scale = count * len(model.slices) / len(sample)
    costs = {}
    for name, square in squares.items():
        h = scale * square.mean(1).double()
        taken_back = None
        if name in products:
            taken_back, ratio = _taken_back(products[name], len(sample) * len(square))
            h *= ratio
        costs[name] = _Cost((12 / (h + 1e-30)).sqrt().numpy(), taken_back)
    return costs


def _taken_back(products: Tensor, count: int) -> tuple[NDArray[np.float64], float]:
    """Return U_jk / U_jj [K, K], and the mean of 1 / U_jj^2 over that of H_jj.

    Args:
        products: H [K, K], without the corrections below.
        count: of the gradients in it. Few tell little about pairs of weights, so entries for pairs become smaller.
    """
    squares = products.diagonal()
    known = count / (count + len(squares))
    h = known * products + torch.diag((1 - known) * squares + DAMPING * squares.mean() + 1e-30)
    u = torch.linalg.cholesky(torch.linalg.inv(h), upper=True)
    of_itself = u.diagonal()
    ratio = of_itself.pow(-2).mean() / h.diagonal().mean()
    return (u / of_itself[:, None]).numpy(), ratio.item()


def _with_errors_taken_back(
    model: AxialTransformer, base: AxialTransformer | None, costs: Mapping[str, _Cost], codes: Steps
) -> AxialTransformer:
    """Return the model with weights that are multiples of their steps; those of a row take back each other's errors.

    With a base, changes of it are such multiples.
    """
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, cost in costs.items():
            if cost.taken_back is None:
                continue
            weight = changed.get_parameter(name)
            before = _exact_rows(base, name).numpy()
            rows = _exact_rows(model, name).numpy() - before
            steps = step_sizes(codes[name])
            for j, factors in enumerate(cost.taken_back):
                exact = rows[:, j].copy()
                rows[:, j] = np.rint(exact / steps) * steps
                rows[:, j + 1 :] -= np.outer(exact - rows[:, j], factors[j + 1 :])
            weight.copy_(torch.from_numpy(rows + before).view(weight.shape))
    return changed


def _steps(
    model: AxialTransformer,
    base: AxialTransformer | None,
    costs: Mapping[str, _Cost],
    multiplier: float,
) -> Steps:
    """Return codes of the suitable steps times a multiplier.

    The estimate holds for small changes only. So a step is at most twice the root mean square of its row, times the
    multiplier. It is at least what the largest weight needs.
    """
    codes: dict[str, NDArray[np.int64]] = {}
    for name, cost in costs.items():
        rows = _exact_rows(model, name) - _exact_rows(base, name)
        least = rows.abs().amax(1).numpy() * 2.1 / NUMBERS + 2.0**-40
        most = 2 * rows.square().mean(1).sqrt().numpy()
        sizes = np.maximum(least, multiplier * np.minimum(cost.steps, most))
        codes[name] = np.clip(nearest_codes(sizes * 2.0**43), 0, STEP_CODES - 1)
    return codes


def _exact_rows(model: AxialTransformer | None, name: str) -> Tensor:
    """Return a weight in float64, as rows; 0 without a model."""
    return in_rows(model.get_parameter(name).detach().double()) if model else torch.zeros(())
