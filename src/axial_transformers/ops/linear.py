"""A linear layer by the fastest library for the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops.operators import cpu_operator
from axial_transformers.ops.processor import product_rates
from axial_transformers.ops.torch_private import HAS_ONEDNN, is_transformed, onednn_linear

PAYS_FROM = 2**24
NARROWEST = 16
"""Least rows, inputs and outputs: below, oneDNN is slow."""

Library = Literal["torch", "oneDNN with a bias", "oneDNN"]
"""For float32 on a CPU. torch copies a bias into every row: oneDNN may be faster with one only."""

_stated = ContextVar[Library | None]("_stated", default=None)


def linear(
    x: Float[Tensor, "*s i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "*s o"]:
    """Return x W^T + b, in float32 by oneDNN where faster; any number of derivatives."""
    if _onednn_pays(x, weight, biased=bias is not None):
        out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return F.linear(x, weight, bias)


def _onednn_pays(x: Tensor, weight: Tensor, biased: bool = False) -> bool:
    return (
        x.dtype == weight.dtype == torch.float32
        and not torch.compiler.is_exporting()  # comparing sizes would fix them in the exported graph
        and not is_transformed()
        and x.device.type == weight.device.type == "cpu"
        and x.numel() * len(weight) >= PAYS_FROM
        and min(x.shape[:-1].numel(), *weight.shape) >= NARROWEST
        and not torch.is_autocast_enabled("cpu")
        and HAS_ONEDNN
        and library() in ("oneDNN", "oneDNN with a bias" if biased else "oneDNN")
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def library() -> Library:
    """Return the stated library, or else the faster one by this process's measurement."""
    if stated := _stated.get():
        return stated
    if not HAS_ONEDNN:
        return "torch"
    rates = product_rates()
    return "oneDNN" if rates.onednn_is_faster else "oneDNN with a bias" if rates.onednn_keeps_up else "torch"


@contextmanager
def stated_library(name: Library) -> Iterator[None]:
    """State the library within a context: rounding differs, and measurements vary."""
    token = _stated.set(name)
    try:
        yield
    finally:
        _stated.reset(token)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows, grads = x.flatten(0, -2), grad.flatten(0, -2)
        d_weight = None
        if needs_weight:  # faster with the smaller size as rows
            wider = len(weight) > weight.shape[1]
            d_weight = linear(rows.mT, grads.mT).mT if wider else linear(grads.mT, rows.mT)
        d_x = linear(grads, weight.mT).view(x.shape) if needs_x else None
        return d_x, d_weight, grads.sum(dim=0) if needs_bias else None


@cpu_operator("axial_transformers::linear", fake=lambda x, weight, bias: x.new_empty(len(x), len(weight)))
def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    bias = None if bias is None else bias.contiguous()
    return onednn_linear(_dense(x), _dense(weight), bias)


def _dense(matrix: Tensor) -> Tensor:
    """Make rows or columns contiguous: oneDNN would be a hundred times slower."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()
