"""Attention along one axis of an N-D tensor. The oracle is `ops.reference`."""

from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops import compiled_attention as lines
from axial_transformers.ops import torch_attention as kernels


def axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Every site attends to the sites of its own line along one axis: softmax(q . k / sqrt(K)) v.

    Args:
        q, k, v: [B, *A, heads, head_dim], floating point. One example and one head never see another.
        axis: the dimension of q that is attended along, 1..d (or counted from the end, -3 for the innermost axis).
        causal: a site sees itself and what comes before it on its line (Ho et al. 2019, masked attention).
        key_mask: [B, *A], True where a site is there, for ragged sizes. A site that sees no other gets zeros.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` is not one of the axes of the data, or the shapes do not fit each other.
    """
    axis = data_axis(q, axis)
    check_key_mask(key_mask, k)
    if q.shape != k.shape or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all but v's last size")
    if lines.suits(q.shape[:-2], q.shape[-2], axis, q.dtype, q.device):
        return lines.attend(q, k, v, axis, causal, key_mask)
    mask = None if key_mask is None else key_mask.movedim(axis, -1).flatten(0, -2)
    out = kernels.attend(to_lines(q, axis), to_lines(k, axis), to_lines(v, axis), causal, mask)
    return from_lines(out, q, axis)


def axial_self_attention(
    qkv: Float[Tensor, "b *a e"],
    heads: int,
    widths: tuple[int, int, int],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """`axial_attention` of queries, keys and values that lie beside each other, as one linear map makes them.

    Args:
        qkv: [B, *A, E], the heads of each side by side.
        widths: those of queries, keys and values, all heads together; their sum is E.
        heads, axis, causal, key_mask: as there, with q [B, *A, heads, head_dim].
    """
    axis = data_axis(qkv.unsqueeze(-1), axis)
    check_key_mask(key_mask, qkv.unsqueeze(-1))
    if lines.suits(qkv.shape[:-1], heads, axis, qkv.dtype, qkv.device):
        return lines.attend_packed(qkv, heads, widths, axis, causal, key_mask)
    q, k, v = lines.unpacked((qkv,), (heads, *widths))
    return axial_attention(q, k, v, axis, causal, key_mask)


def axial_attention_weights(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n l"]:
    """What `axial_attention` weighs the values by: [B, *A, heads, L], L places along `axis`; arguments as there."""
    axis = data_axis(q, axis)
    check_key_mask(key_mask, k)
    mask = None if key_mask is None else key_mask.movedim(axis, -1).flatten(0, -2)
    return from_lines(kernels.weights(to_lines(q, axis), to_lines(k, axis), causal, mask), q, axis)


def attend_step(
    q: Float[Tensor, "m n k"], keys: Float[Tensor, "m n s k"], values: Float[Tensor, "m n s w"]
) -> Float[Tensor, "m n w"]:
    """One query a line over the s keys and values that a cache holds so far."""
    weights = torch.softmax((q.unsqueeze(-2) @ keys.mT) / sqrt(q.shape[-1]), dim=-1)
    return (weights @ values).squeeze(-2)


def data_axis(q: Float[Tensor, "b *a n k"], axis: int) -> int:
    """`axis` as one of 1..d.

    Raises:
        ValueError: it is not one of the axes of the data.
    """
    counted = axis % q.ndim if -q.ndim <= axis < q.ndim else axis
    if not 1 <= counted <= q.ndim - 3:
        raise ValueError(
            f"axis {axis} is not an axis of q {list(q.shape)}: [B, *A, heads, head_dim] has axes 1..{q.ndim - 3}"
        )
    return counted


def to_lines(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    """[B, *A, N, K] -> [lines, N, L, K], what the kernels take: the lines along `axis`, 1..d."""
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def from_lines(out: Float[Tensor, "m n l w"], like: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n w"]:
    """The inverse of `to_lines`, onto the grid of `like`."""
    rest = [size for dim, size in enumerate(like.shape[:-2]) if dim != axis]
    return out.transpose(1, 2).unflatten(0, rest).movedim(-3, axis)


def check_key_mask(key_mask: Tensor | None, k: Tensor) -> None:
    """Raises ValueError unless the mask, if there is one, is bool [B, *A] for k [B, *A, heads, head_dim]."""
    if key_mask is not None and (key_mask.dtype != torch.bool or key_mask.shape != k.shape[:-2]):
        raise ValueError(
            f"key_mask must be bool {list(k.shape[:-2])}, True where a site is there, not "
            f"{key_mask.dtype} {list(key_mask.shape)}"
        )
