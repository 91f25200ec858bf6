"""Attention as functions: along one axis of an N-D tensor, or over all positions; `ops.reference` defines it."""

from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.argument_checks import (
    check_encodings,
    check_heads,
    check_options,
    check_tensors,
    data_axis,
)
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.backends import attend


def axial_attention(  # noqa: PLR0913
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a h k"],
    v: Float[Tensor, "b *a h w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    *,
    window: int | None = None,
    dilation: int = 1,
    dropout: float = 0.0,
) -> Float[Tensor, "b *a n w"]:
    """Attend from every position to the positions of its line along one axis: softmax(q . k / sqrt(K) + bias) v.

    Args:
        q: [B, *A, heads, head_dim].
        k, v: [B, *A, heads, head_dim], of q's dtype. May have fewer heads (grouped-query attention, Ainslie et al.
            2023); their number must divide q's.
        axis: dimension of q to attend along: 1..d, or from the end (-3 is the innermost axis).
        causal: attend only to the position itself and to earlier ones.
        key_mask: [B, *A], True where a position is present (PyTorch's `key_padding_mask` is the opposite). A query
            without any key gets zeros. At absent positions, NaN and infinities count as zeros.
        attn_bias: added to the scores, differentiable; minus infinity excludes a key. [B, heads, L, L], queries before
            keys, or [B, *A without axis, heads, L, L], a bias per line; any size may be 1. With a window, the last
            size is the window: column R + j belongs to the key at o + j * dilation.
        window: odd size 2R + 1: position o attends to o + j * dilation for |j| <= R. Time and memory are linear in L.
        dilation: attend only to every dilation-th position, the position itself included.
        dropout: probability p that a weight becomes zero; the others are divided by 1 - p.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: shapes, dtypes, devices or options do not fit, or `attn_bias` has a dilation but no window.
    """
    axis = data_axis(q, axis)
    check_heads(q, k, v)
    check_tensors(key_mask, attn_bias, q=q, k=k, v=v)
    check_options(window, dilation, dropout)
    call = AttentionCall(q, k, v, axis, causal, key_mask, attn_bias, window, dilation, dropout)
    return attend(call)


def tied_axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    tied: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Attend with one set of weights for all lines along `tied` (Rao et al. 2021, MSA Transformer).

    out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p] for [B, rows, columns, heads, K], with
    axis=2 and tied=1. R counts rows with a present position. Absent positions have scores and values of zero; columns
    absent from all rows are excluded. Arguments are those of `axial_attention`, with equal numbers of heads, and a bias
    for the grid without the axis `tied`.
    """
    axis = data_axis(q, axis)
    tied = data_axis(q, tied)
    if axis == tied:
        raise ValueError(f"attention along axis {axis} cannot be tied over the same axis")
    check_tensors(key_mask, attn_bias, q=q, k=k, v=v)
    check_heads(q, k, v, grouped=False)
    lines = q.shape[tied]
    if key_mask is not None:
        q, k, v = (x.masked_fill(~key_mask[..., None, None], 0) for x in (q, k, v))
        present = key_mask.any(dim=axis, keepdim=True).sum(dim=tied, keepdim=True).clamp(min=1)
        wide = torch.promote_types(q.dtype, torch.float32)
        q = q * (lines / present.to(wide))[..., None, None].sqrt().to(q.dtype)
        key_mask = key_mask.any(dim=tied)
    q, k, v = (x.movedim(tied, -2).flatten(-2) for x in (q, k, v))  # one wide line of all
    axis_of_rest = axis - 1 if axis > tied else axis
    call = AttentionCall(q, k, v, axis_of_rest, causal, key_mask, attn_bias)
    out = attend(call)
    return out.unflatten(-1, (lines, -1)).movedim(-2, tied)


def position_sensitive_attention(  # noqa: PLR0913
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    value_table: Float[Tensor, "r t w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Return equation 4 of Axial-DeepLab along one axis, its scores times `scale`; memory is linear in the positions.

    y_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}), p in the window around o

    Args:
        q, k, v: [B, *A, heads, head_dim].
        query_table, key_table, value_table: [2R + 1, heads or 1, head_dim], for the offsets p - o = -R .. R; with
            2L - 1 rows or more, attention is global.
        axis, causal, key_mask: see `axial_attention`.
        scale: default 1/sqrt(K); 1 is equation 4 as printed.
    """
    axis = data_axis(q, axis)
    tables = (query_table, key_table, value_table)
    check_tensors(key_mask, *tables, q=q, k=k, v=v)
    check_heads(q, k, v, grouped=False)
    check_encodings(tables, q.shape[-2], q.shape[-1], v.shape[-1])
    if len({table.shape[1] for table in tables}) > 1:
        query_table, key_table, value_table = (table.expand(-1, q.shape[-2], -1) for table in tables)
        tables = query_table, key_table, value_table
    scale = 1 / sqrt(q.shape[-1]) if scale is None else scale
    return attend(AttentionCall(q, k, v, axis, causal, key_mask, tables=tables, scale=scale))


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Attend from every position of q to all positions of k and v, on any two grids."""
    check_tensors(key_mask, q=q, k=k, v=v)
    if v.shape[:-1] != k.shape[:-1] or q.shape[0] != k.shape[0] or q.shape[-2:] != k.shape[-2:]:
        raise ValueError(f"k {list(k.shape)} and v {list(v.shape)} do not fit q {list(q.shape)}: see the shapes above")
    queries, keys, values = (x.flatten(1, -3) for x in (q, k, v))
    mask = None if key_mask is None else key_mask.flatten(1)
    call = AttentionCall(queries, keys, values, axis=1, key_mask=mask, full=True)
    return attend(call).unflatten(1, q.shape[1:-2])


def full_attention_weights(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "..."]:
    """Return the weights of `full_attention`."""
    own = own_positions(k.flatten(1, -3), axis=1)
    return full_attention(q, k, own.unflatten(1, k.shape[1:-2]), key_mask).unflatten(-1, k.shape[1:-2])


def own_positions(k: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n l"]:
    """Return values whose attention along an axis 1..d is its weights."""
    length = k.shape[axis]
    between = [1] * (k.ndim - axis - 2)
    own = torch.eye(length, dtype=k.dtype, device=k.device)
    return own.view(length, *between, length).expand(*k.shape[:-1], length)


def attend_step(
    q: Float[Tensor, "m n k"],
    keys: Float[Tensor, "m h s k"],
    values: Float[Tensor, "m h s w"],
    bias: Float[Tensor, "n s"] | None = None,
) -> Float[Tensor, "m n w"]:
    """Attend from one query per line to cached keys and values."""
    scores = (q.unflatten(1, (keys.shape[1], -1)) @ keys.mT) / sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias.unflatten(0, scores.shape[1:3])
    return (torch.softmax(scores, dim=-1) @ values).flatten(1, 2)
