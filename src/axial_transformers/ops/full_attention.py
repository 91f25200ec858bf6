"""Attention to all sites of an N-D tensor, or of another; `ops.reference` has the definition."""

from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops import torch_attention
from axial_transformers.ops.argument_checks import check_tensors


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Attention of every site of q to all sites of k and v, on any two grids: softmax(q . k / sqrt(K)) v.

    Args:
        q: [B, *A, heads, head_dim].
        k, v: [B, *E, heads, head_dim], on the same grid as q or another one; all three have one floating-point dtype.
        key_mask: [B, *E], True where a site is present. Where an example has none, the result is zero.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: shapes, dtypes or devices do not fit each other.
    """
    check_tensors(key_mask, q=q, k=k, v=v)
    if v.shape[:-1] != k.shape[:-1] or (q.shape[0], *q.shape[-2:]) != (k.shape[0], *k.shape[-2:]):
        raise ValueError(f"k {list(k.shape)} and v {list(v.shape)} do not fit q {list(q.shape)}: see the shapes above")
    mask = None if key_mask is None else key_mask.flatten(1)
    out = torch_attention.attend(_flat(q), _flat(k), _flat(v), key_mask=mask)
    return out.transpose(1, 2).unflatten(1, q.shape[1:-2])


def full_attention_weights(
    q: Float[Tensor, "b *a n k"], k: Float[Tensor, "b *e n k"], key_mask: Bool[Tensor, " b *e"] | None = None
) -> Float[Tensor, "..."]:
    """The weights of `full_attention`, [B, *A, heads, *E]; its arguments."""
    check_tensors(key_mask, q=q, k=k)
    mask = None if key_mask is None else key_mask.flatten(1)
    weights = torch_attention.weights(_flat(q), _flat(k), allowed=None if mask is None else mask[:, None, None])
    return weights.transpose(1, 2).unflatten(1, q.shape[1:-2]).unflatten(-1, k.shape[1:-2])


def _flat(x: Tensor) -> Tensor:
    """[B, *A, N, K] -> [B, N, sites, K]."""
    return x.flatten(1, -3).transpose(1, 2)
