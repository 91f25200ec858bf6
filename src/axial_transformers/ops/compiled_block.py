"""Transformer blocks and likelihoods without gradients on a CPU, each in one kernel of `kernels.transformer_blocks`.

A line is read and written once a block: between its layers, its activations stay in a core's cache, and nothing is
allocated.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.kernels.threads import parallel_ranges
from axial_transformers.ops.compiled_attention import rotations_of_lines
from axial_transformers.ops.kernel_choice import HAS_NUMBA
from axial_transformers.ops.operators import cpu_operator

WEIGHTS = (
    *("attention_norm.weight", "attention_norm.bias", "qkv.weight", "qkv.bias", "out.weight", "out.bias"),
    *("feedforward_norm.weight", "feedforward_norm.bias", "expand.weight", "expand.bias"),
    *("contract.weight", "contract.bias"),
)
"""The weights of a block, in the order in which its module has them."""
PAYS_FROM = 2**19
"""Numbers in x from which a kernel pays: for fewer, torch takes milliseconds; compiling takes 15 s, once. Half of
`likelihood.bits.PART`, since parts of a large batch have more than that."""
LONGEST = 2**17
"""Numbers in a line up to which its activations stay in a core's cache."""


def pays(x: Float[Tensor, "b *a d"]) -> bool:
    """Whether the kernels can take x and are faster: float32 on a CPU, large, no gradient wanted, not traced."""
    return (
        not torch.compiler.is_compiling()
        and HAS_NUMBA
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.numel() >= PAYS_FROM
        and max(x.shape[1:-1]) * x.shape[-1] <= LONGEST
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


def transformer_block(
    x: Float[Tensor, "b *a d"],
    weights: Sequence[Tensor],
    heads: int,
    axis: int,
    causal: bool,
    rotations: Float[Tensor, "l k"] | None = None,
) -> Float[Tensor, "b *a d"]:
    """`layers.blocks.TransformerBlock` of x [B, *A, D] without dropout, first derivatives neither.

    Args:
        weights: in the order of `WEIGHTS`; qkv [3 D, D], out [D, D], expand [hidden, D], contract [D, hidden].
        axis: of x, 1..d, or counted from the end.
        causal: whether a site attends only to itself and to earlier sites of its line.
        rotations: of queries and keys, [L, K], see `ops.rotations.rotation_table`; None: they are not rotated.
    """
    return _block(x, list(weights), heads, axis % x.ndim, causal, rotations)


def nats(
    x: Float[Tensor, "*s d"],
    weights: Sequence[Tensor],
    values: Integer[Tensor, "*s"],
    predictions: Integer[Tensor, "*s"] | None = None,
) -> Float[Tensor, "*s"]:
    """-log softmax(W LayerNorm(x) + b)[values], by sites; the logits are not kept.

    Args:
        weights: of the norm and of the linear layer, [D], [D], [V, D], [V]; or 2 V with `predictions`.
        values: integers in 0..V-1.
        predictions: integers in 0..V-1, by which each site takes V of the logits, see `Predictor.logits`.
    """
    return _nats(x, list(weights), values, values.new_empty(0) if predictions is None else predictions)


@cpu_operator("axial_transformers::transformer_block", fake=lambda x, *others: x.new_empty(x.shape))
def _block(
    x: Tensor, weights: Sequence[Tensor], heads: int, axis: int, causal: bool, rotations: Tensor | None
) -> Tensor:
    from axial_transformers.kernels import transformer_blocks as kernels  # takes a second

    arrays = [_stacked(weight) for weight in weights]
    norms = [kernels.Norm(*arrays[i : i + 2]) for i in (0, 6)]
    qkv, out, expand, contract = (kernels.packed(*arrays[i : i + 2]) for i in (2, 4, 8, 10))
    turns = rotations_of_lines(rotations, x.shape[axis], x.shape[-1] // heads)[None]
    blocks = kernels.Blocks(norms[0], qkv, turns, out, norms[1], expand, contract)
    grid = np.array([x.shape[:axis].numel(), x.shape[axis], x.shape[axis + 1 : -1].numel(), x.shape[-1]])
    x = x.contiguous()
    result = torch.empty_like(x)
    source, target = x.view(-1).numpy(), result.view(-1).numpy()

    def work(first: int, last: int) -> None:
        kernels.block_along_lines(source, grid, blocks, heads, causal, target, first, last)

    parallel_ranges(work, int(grid[0] * grid[2]))
    return result


@cpu_operator("axial_transformers::nats", fake=lambda x, weights, values, *others: x.new_empty(values.shape))
def _nats(x: Tensor, weights: Sequence[Tensor], values: Tensor, predictions: Tensor) -> Tensor:
    from axial_transformers.kernels import transformer_blocks as kernels

    gain, bias, matrix, offsets = (_stacked(weight) for weight in weights)
    norm, head = kernels.Norm(gain, bias), kernels.packed(matrix, offsets)
    rows = x.contiguous().view(-1, x.shape[-1]).numpy()
    chosen, predicted = (integers.contiguous().view(-1).numpy() for integers in (values, predictions))
    result = x.new_empty(values.shape)

    def work(first: int, last: int) -> None:
        kernels.nats(rows, norm, head, chosen, predicted, result.view(-1).numpy(), first, last)

    parallel_ranges(work, len(rows))
    return result


def _stacked(weight: Tensor) -> NDArray[Any]:
    """The weight as the only layer of a stack."""
    return weight.detach().contiguous().numpy()[None]
