"""Attention by torch's operations."""

from itertools import repeat
from math import prod, sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axial_transformers.ops import torch_attention
from axial_transformers.ops.argument_checks import check_tensors
from axial_transformers.ops.kernel_choice import copies_count, fused_can_run
from axial_transformers.ops.torch_private import is_transformed

PIECE = {"cpu": 2**19}
PIECE_ELSEWHERE = 2**26
MOST_LINES = 2**16 - 1
"""The limit of CUDA's grid, for fused kernels."""
MOST_NUMBERS = 2**31 - 1
"""Their backward pass counts in 32 bits."""
ROUNDED_TO = 128
SHORTEST_BLOCK = 16
"""Fewer queries do not fill vector registers."""


def attend(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n s k"],
    v: Float[Tensor, "m n s w"],
    causal: bool = False,
    key_mask: Bool[Tensor, "m s"] | None = None,
) -> Float[Tensor, "m n l w"]:
    """Attend along lines; a query without any key gets zeros."""
    if key_mask is None and fused_can_run(q.device, q.dtype, k.shape[-2]) is None:
        return fused(q, k, v, None, causal)
    allowed = _allowed(q, k, causal, key_mask)
    return attend_groups(q[None], k[None], v[None], None, None if allowed is None else allowed[None])[0]


def attend_groups(
    q: Float[Tensor, "g m n l k"],
    k: Float[Tensor, "g m n s k"],
    v: Float[Tensor, "g m n s w"],
    bias: Float[Tensor, "#g #m #n #l #s"] | None,
    allowed: Bool[Tensor, "#g #m #n #l #s"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "g m n l w"]:
    """Attend within groups: dropout(softmax(q k^T / sqrt(K) + bias)) v; any number of derivatives.

    A bias below half of the dtype's least number excludes a key, as does `allowed`; without keys, zeros. Large calls
    run piece by piece.
    """
    bias = None if bias is None else bias.to(q.dtype)
    traced = torch.compiler.is_compiling() or is_transformed()
    if traced or q.shape[:-1].numel() * k.shape[-2] <= piece(q.device):
        return _attend(q, k, v, bias, allowed, dropout)
    return _in_pieces(q, k, v, bias, allowed, dropout)


def attend_windows(
    q: Float[Tensor, "b m n l k"],
    k: Float[Tensor, "b m n l k"],
    v: Float[Tensor, "b m n l w"],
    span: int,
    causal: bool,
    bias: Float[Tensor, "#b #m #n #l span"] | None,
    present: Bool[Tensor, "b m l"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "b m n l w"]:
    """Attend from o to p with |p - o| <= R, where span = 2R + 1; p <= o if causal.

    A block of queries attends to itself and the window around it, under a band.
    """
    batch, length = q.shape[0], q.shape[-2]
    radius, block = span // 2, max(span, SHORTEST_BLOCK)
    blocks = -(-length // block)
    beyond = blocks * block - length
    after = 0 if causal else radius
    keys = radius + block + after

    def around(x: Tensor) -> Tensor:
        return F.pad(x, (radius, beyond + after)).unfold(-1, keys, block)

    def grouped(x: Tensor) -> Tensor:
        x = x.movedim(3, 1)
        return x.flatten(0, 1) if x.shape[0] == x.shape[1] == 1 else x.expand(batch, blocks, *x.shape[2:]).flatten(0, 1)

    column = torch.arange(keys, device=q.device) - torch.arange(block, device=q.device)[:, None]
    band = (column >= 0) & (column < (radius + 1 if causal else span))
    if present is None:
        present = torch.ones(1, 1, length, dtype=torch.bool, device=q.device)
    allowed = grouped(around(present)[:, :, None, :, None, :] & band)
    if bias is not None and bias.shape[-2] == 1:
        bias = grouped(bias[..., column.clamp(0, span - 1)])
    elif bias is not None:
        rows = F.pad(bias, (0, 0, 0, beyond)).unflatten(-2, (blocks, block))
        bias = grouped(rows.gather(-1, column.clamp(0, span - 1).expand(*rows.shape[:-2], -1, -1)))
    q = grouped(F.pad(q, (0, 0, 0, beyond)).unflatten(-2, (blocks, block)))
    k, v = (grouped(around(x.mT).movedim(-3, -1)) for x in (k, v))
    out = attend_groups(q, k, v, bias, allowed, dropout)
    return out.unflatten(0, (batch, blocks)).movedim(1, 3).flatten(3, 4)[..., :length, :]


def weights(
    q: Float[Tensor, "... l k"],
    k: Float[Tensor, "... s k"],
    bias: Float[Tensor, "..."] | None = None,
    allowed: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "... l s"]:
    """Return the weights; a row without keys is zero."""
    return _zero_without_keys(_shares(q, k, bias, allowed), allowed)


def composed(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, allowed: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Attend by matrix product, softmax, matrix product."""
    return _zero_without_keys(F.dropout(_shares(q, k, bias, allowed), dropout) @ v, allowed)


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Attend by torch's fused kernel."""
    most = max(1, most_lines(q.shape[1], max(q.shape[-2], k.shape[-2]), max(q.shape[-1], v.shape[-1])))
    if len(q) <= most:
        return _fused(q, k, v, mask, causal, dropout)
    masks = repeat(mask) if mask is None or len(mask) == 1 else mask.split(most)
    parts = zip(q.split(most), k.split(most), v.split(most), masks)
    return torch.cat([_fused(*part, causal, dropout) for part in parts])


def most_lines(heads: int, length: int, width: int) -> int:
    """Return the lines per call of `fused`."""
    places = -(-length // ROUNDED_TO) * ROUNDED_TO
    most = min(MOST_LINES, MOST_NUMBERS // max(1, heads * places * width))
    return most if heads <= MOST_LINES else 0


def softmax(scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the softmax over the last dimension."""
    # On a CPU, half precision is up to ten times slower in rows that do not fill registers.
    return torch.softmax(scores.float() if scores.dtype.itemsize == 2 and scores.shape[-1] % 32 else scores, dim=-1)


def piece(device: torch.device) -> int:
    """Return the scores at a time on a device."""
    return PIECE.get(device.type, PIECE_ELSEWHERE)


def _in_pieces(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    scores, dim = q.shape[:-1].numel() * k.shape[-2], 0 if len(q) > 1 else 1
    if scores <= piece(q.device) or q.shape[:2].numel() <= 1:
        arguments = q, k, v, bias, allowed, dropout
        out: Tensor = checkpoint(_attend, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0)
        return out
    step = max(1, piece(q.device) * q.shape[dim] // scores)
    parts = zip(
        *(x.split(step, dim) for x in (q, k, v)),
        *(repeat(x) if x is None or x.shape[dim] == 1 else x.split(step, dim) for x in (bias, allowed)),
    )
    return torch.cat([_in_pieces(*part, dropout) for part in parts], dim)  # type: ignore[call-arg]


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: Tensor | None, dropout: float) -> Tensor:
    if bias is not None:  # else excluded keys would count
        reached = ~(bias <= _lowest(q.dtype))
        allowed = reached if allowed is None else allowed & reached
    plain = not dropout and not (bias is not None and bias.requires_grad)
    if fused_can_run(q.device, q.dtype, k.shape[-2], plain) is not None:
        return composed(q, k, v, bias, allowed, dropout)
    return _zero_without_keys(_fused_groups(q, k, v, _mask(bias, allowed, q), dropout), allowed)


def _fused_groups(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Run `fused` without copies of a shared mask: what shares it becomes the second dimension."""
    order, first = [0, 1, 2], 2
    if mask is not None and mask.shape[:2] not in ((1, 1), q.shape[:2]):
        shared = [dim for dim in order if mask.shape[dim] == 1]
        longest, widest = max(q.shape[-2], k.shape[-2]), max(q.shape[-1], v.shape[-1])
        if copies_count(q.device) and most_lines(prod([q.shape[dim] for dim in shared]), longest, widest):
            order, first = [dim for dim in order if dim not in shared] + shared, 3 - len(shared)
        else:
            mask = mask.expand(*q.shape[:2], -1, -1, -1)

    def flat(x: Tensor) -> Tensor:
        return x.permute(*order, 3, 4).flatten(first, 2).flatten(0, first - 1)

    out = fused(flat(q), flat(k), flat(v), None if mask is None else flat(mask), dropout=dropout)
    sizes = [q.shape[dim] for dim in order]
    return out.unflatten(1, sizes[first:]).unflatten(0, sizes[:first]).movedim((0, 1, 2), order)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    mask = None if mask is None else mask.expand(-1, -1, -1, k.shape[-2])  # only this size may not be 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)


def _shares(q: Tensor, k: Tensor, bias: Tensor | None, allowed: Tensor | None) -> Tensor:
    """Return `weights`; arbitrary for a query without keys."""
    scores, mask = _scaled(q) @ k.mT, _mask(bias, allowed, q)
    return softmax(scores if mask is None else scores + mask).to(q.dtype)


def _zero_without_keys(x: Tensor, allowed: Tensor | None) -> Tensor:
    return x if allowed is None else x.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


def _scaled(q: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    width = q.shape[-1]
    if isinstance(width, torch.SymInt):  # a number would fix the width in the exported graph
        return q * torch.scalar_tensor(width, dtype=q.dtype, device=q.device).rsqrt()
    return q / sqrt(width)


def _allowed(q: Tensor, k: Tensor, causal: bool, key_mask: Tensor | None) -> Tensor | None:
    present = None if key_mask is None else key_mask[:, None, None, :]
    if not causal:
        return present
    past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return past[None, None] if present is None else past & present


def _mask(bias: Tensor | None, allowed: Tensor | None, q: Tensor) -> Tensor | None:
    if allowed is None:
        return bias
    return torch.where(allowed, q.new_zeros(()) if bias is None else bias, _lowest(q.dtype))


def _lowest(dtype: torch.dtype) -> float:
    # Finite, for a gradient without keys; halved, so that adding a score stays finite.
    return torch.finfo(dtype).min / 2


def full_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *e n k"],
    v: Float[Tensor, "b *e n w"],
    key_mask: Bool[Tensor, " b *e"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Attend from every site of q to all sites of k and v, on any two grids."""
    check_tensors(key_mask, q=q, k=k, v=v)
    if v.shape[:-1] != k.shape[:-1] or (q.shape[0], *q.shape[-2:]) != (k.shape[0], *k.shape[-2:]):
        raise ValueError(f"k {list(k.shape)} and v {list(v.shape)} do not fit q {list(q.shape)}: see the shapes above")
    mask = None if key_mask is None else key_mask.flatten(1)
    out = torch_attention.attend(_flat(q), _flat(k), _flat(v), key_mask=mask)
    return out.transpose(1, 2).unflatten(1, q.shape[1:-2])


def full_attention_weights(
    q: Float[Tensor, "b *a n k"], k: Float[Tensor, "b *e n k"], key_mask: Bool[Tensor, " b *e"] | None = None
) -> Float[Tensor, "..."]:
    """Return the weights of `full_attention`."""
    check_tensors(key_mask, q=q, k=k)
    mask = None if key_mask is None else key_mask.flatten(1)
    weights = torch_attention.weights(_flat(q), _flat(k), allowed=None if mask is None else mask[:, None, None])
    return weights.transpose(1, 2).unflatten(1, q.shape[1:-2]).unflatten(-1, k.shape[1:-2])


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1, -3).transpose(1, 2)
