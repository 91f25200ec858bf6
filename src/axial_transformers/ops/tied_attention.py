"""Attention along one axis with weights that the lines beside each other share: tied row attention."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.argument_checks import check_tensors, data_axis
from axial_transformers.ops.axial_attention import axial_attention


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
    """Tied row attention (Rao et al. 2021, MSA Transformer): one set of weights for all lines along the axis `tied`.

    out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p], of [B, rows, columns, heads, K] with
    axis=2 and tied=1. It is `axial_attention` of heads R times as wide, those of all rows beside each other.

    Args:
        q, k, v: [B, *A, heads, head_dim], with the same number of heads.
        axis: the dimension attended along, 1..d, or counted from the end.
        tied: the dimension whose lines share their weights; another one.
        causal: as for `axial_attention`.
        key_mask: [B, *A], True where a site is present. Others add nothing to the scores and have the value zero; R
            counts the rows with a site that is present. A place that is absent from all rows is not attended to.
        attn_bias: as for `axial_attention` of the grid without the axis `tied`.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` and `tied` are not two axes of the data, or shapes or dtypes do not fit each other.
    """
    axis, tied = data_axis(q, axis), data_axis(q, tied)
    if axis == tied:
        raise ValueError(f"attention along axis {axis} cannot be tied over the same axis")
    check_tensors(key_mask, attn_bias, q=q, k=k, v=v)
    if q.shape != k.shape or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all but v's last size")
    rows = q.shape[tied]
    if key_mask is not None:
        wide = torch.promote_types(q.dtype, torch.float32)
        there = key_mask.any(dim=axis, keepdim=True).sum(dim=tied, keepdim=True).clamp(min=1).to(wide)
        absent = ~key_mask[..., None, None]
        q, k, v = (x.masked_fill(absent, 0) for x in (q, k, v))
        q = q * (rows / there)[..., None, None].sqrt().to(q.dtype)
        key_mask = key_mask.any(dim=tied)

    def beside(x: Tensor) -> Tensor:
        return x.movedim(tied, -2).flatten(-2)

    out = axial_attention(beside(q), beside(k), beside(v), axis - (axis > tied), causal, key_mask, attn_bias)
    return out.unflatten(-1, (rows, v.shape[-1])).movedim(-2, tied)
