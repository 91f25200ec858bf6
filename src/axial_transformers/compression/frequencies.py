"""Probabilities to integer frequencies: the same ones, whichever of two ways computed the probabilities.

The cumulative distribution F of the values 0..V-1 is rounded to a grid of 2^24 steps:

    c_i = 1 + i + round((2^24 - 2 - V) F_i),    i = 0..V,    frequency of value i: c_{i+1} - c_i >= 1

The first and the last step belong to no value: a stream that points there is damaged.

Error bound. Let two ways to compute a model (a parallel pass, step-by-step decoding, other batches, threads or
instructions) give logits that differ by at most e. The odds of each F_i then differ by a factor of at most exp(2 e),
and F_i, a logistic function of the log-odds with a slope of at most 1/4, by at most e / 2; exponentials and sums in
float64 add less than 2 V 2^-53. Coding value i depends on c_i and c_{i+1} alone. Where neither lies within 2^24 GUARD
steps of a rounding boundary, and

    e / 2 + 2 V 2^-53 < GUARD = 2^-41,

both ways give the same two integers. Every other value is `ambiguous`: the encoder writes it as an escape, beside the
stream. For V = 256 that holds up to e = 7e-13, over twenty times what is measured in float64 (docs/compression.md).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PRECISION = 24
"""Bits of the grid: constriction codes with frequencies that sum to 2^24."""

GUARD = 2.0**-41
"""Largest difference in cumulative probability between two ways to compute it; nearer boundaries are ambiguous."""


class Intervals(NamedTuple):
    """Intervals [lower, lower + frequency) of the grid, one for each value; whether they are ambiguous."""

    lower: Int[Tensor, "*s"]
    frequency: Int[Tensor, "*s"]
    ambiguous: Bool[Tensor, "*s"]


def frequencies(logits: Float[Tensor, "*s v"], precision: int = PRECISION) -> Int[Tensor, "*s v"]:
    """Integer frequencies of all values: int64 [.., V], each at least 1; their sum is 2^precision - 2.

    Raises:
        ValueError: logits that are not finite.
    """
    ends = torch.arange(logits.shape[-1] + 1, device=logits.device)
    return _rounded(_on_grid(logits, ends.expand(*logits.shape[:-1], -1), precision)).diff(dim=-1)


def intervals(logits: Float[Tensor, "*s v"], values: Int[Tensor, "*s"], precision: int = PRECISION) -> Intervals:
    """The interval of each value [..] under its logits float64 [.., V].

    Raises:
        ValueError: logits that are not finite.
    """
    ends = _on_grid(logits, torch.stack([values, values + 1], dim=-1), precision)
    ambiguous = (ends - ends.floor() - 0.5).abs() < GUARD * 2.0**precision
    lower, upper = _rounded(ends).unbind(-1)
    return Intervals(lower, upper - lower, ambiguous.any(-1))


def _on_grid(logits: Float[Tensor, "*s v"], i: Int[Tensor, "*s e"], precision: int) -> Float[Tensor, "*s e"]:
    """The c_i before rounding, for i [.., E] in 0..V; exactly integers at 0 and at V, however computed."""
    sums = (logits - logits.amax(dim=-1, keepdim=True)).exp().cumsum(dim=-1)
    total = sums[..., -1:]
    if not total.isfinite().all():
        raise ValueError("the model's logits are not finite: its weights cannot be used to compress")
    cumulative = torch.where(i > 0, sums.gather(-1, (i - 1).clamp(min=0)) / total, 0.0)
    return 1 + i + cumulative * (2**precision - 2 - logits.shape[-1])


def _rounded(on_grid: Float[Tensor, "*s e"]) -> Int[Tensor, "*s e"]:
    return (on_grid + 0.5).floor().long()
