"""The choice of what computes an attention: the first backend of a list that does not refuse.

    q, k, v, options -> AttentionCall
                             |
              engine_attention     on a CPU: lines are read where they lie in memory
                             | refuses: a GPU, equation 4, windows, dropout, all but float32 and bfloat16,
                             |          long lines, torch.func, exported graphs
              engine_relative      the same for equation 4 of Axial-DeepLab
                             | refuses: all else, a GPU; dtypes, lines and graphs as above
              triton_attention     masks and biases along short lines on a GPU; off until a GPU has run it
                             | refuses: no mask, bias or window; lines of more than 256 positions, heads wider than 64
              sdpa                 torch's scaled_dot_product_attention; on a GPU, the first that does not refuse
                             | refuses: equation 4, torch.func; on a CPU also dropout, short lines, gradients of a bias
              torch_attention      matrix product, softmax, matrix product: any number of derivatives, any graph
                             | refuses: equation 4
              torch_relative       equation 4 by products and sums; it refuses all else
                             |
                             v
                 [B, *A, heads, value_dim]

A backend is a file with two functions: `refuses(call)` returns why not, or None, and `run(call)` computes; NaN and
infinities of absent positions do not count. To see the reasons, print `explain(call)`, or set the logger
`axial_transformers.ops.backends` to DEBUG.
"""

import logging
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from axial_transformers.ops import (
    engine_attention,
    engine_relative,
    sdpa,
    torch_attention,
    torch_relative,
    triton_attention,
)
from axial_transformers.ops.attention_call import AttentionCall, normalised


class Backend(Protocol):
    """A module with these two functions, which computes some calls."""

    __name__: str

    def refuses(self, call: AttentionCall) -> str | None:
        """Return why it does not take a call, or None."""

    def run(self, call: AttentionCall) -> Float[Tensor, "b *a n w"]:
        """Compute a call that `refuses` does not refuse: [B, *A, heads, value_dim], in the dtype of v."""


BACKENDS: tuple[Backend, ...] = (
    engine_attention,
    engine_relative,
    triton_attention,
    sdpa,
    torch_attention,
    torch_relative,
)
LOG = logging.getLogger(__name__)


def attend(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call by the first backend that does not refuse.

    If a dilation splits `axis` into two (`normalised`), the result has one axis again, of the old length.
    """
    call = normalised(call)
    out = choose(call).run(call)
    if call.length is None:
        return out
    return out.flatten(call.axis, call.axis + 1).narrow(call.axis, 0, call.length)


def choose(call: AttentionCall) -> Backend:
    """Return the backend of a call."""
    if not torch.compiler.is_compiling() and LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("attention of %s along axis %d:\n%s", [*call.q.shape], call.axis, explain(call))
    for backend in BACKENDS:
        if not backend.refuses(call):
            return backend
    raise AssertionError("torch_attention takes all calls without tables, torch_relative those with")


def explain(call: AttentionCall) -> str:
    """Return a line for each backend: why it refuses a call, or that it takes it. The first that takes it runs."""
    reasons = {backend.__name__.rpartition(".")[2]: backend.refuses(call) for backend in BACKENDS}
    return "\n".join(f"{name}: {f'refuses: {why}' if why else 'takes it'}" for name, why in reasons.items())
