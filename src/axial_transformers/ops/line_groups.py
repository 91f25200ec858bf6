"""The lines of a call as torch's operations take them: in groups that share a mask, and not too many at once."""

from collections.abc import Callable, Sequence
from itertools import repeat
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axial_transformers.ops.attention_call import AttentionCall, without_absent
from axial_transformers.ops.positions import offsets
from axial_transformers.ops.torch_private import is_recorded

PIECE = {"cpu": 2**19}
PIECE_ELSEWHERE = 2**26


class Groups(NamedTuple):
    """softmax(q k^T / sqrt(K) + bias) v within each of g m groups."""

    q: Float[Tensor, "g m n l k"]
    k: Float[Tensor, "g m n s k"]
    v: Float[Tensor, "g m n s w"]
    bias: Float[Tensor, "#g #m #n #l #s"] | None = None
    """Below half of the dtype's least number, it excludes a key."""
    allowed: Bool[Tensor, "#g #m #n #l #s"] | None = None


def attend_in_groups(call: AttentionCall, attend: Callable[..., Tensor]) -> Float[Tensor, "b *a n w"]:
    """Compute a call by `attend`, a function of groups and a probability of dropout; any number of derivatives.

    A query without any key gets zeros. Large calls run piece by piece, and backward computes each piece again.
    """
    groups = groups_of(without_absent(call))
    at_once = is_recorded() or _scores(groups) <= piece(groups.q.device)
    out = _without_excluded(attend, groups, call.dropout) if at_once else _in_pieces(attend, groups, call.dropout)
    if call.window and not call.any_length:
        batch = call.q.shape[0]
        length = call.q.shape[call.axis]
        out = out.unflatten(0, (batch, -(-length // out.shape[-2]))).movedim(1, 3).flatten(3, 4)[..., :length, :]
    return from_lines(out.flatten(0, 1), call.q, call.axis)


def groups_of(call: AttentionCall) -> Groups:
    """Return the lines, those of an example beside each other if need be; with a window, the blocks of all lines."""
    batch, *sizes = call.q.shape[:-2]
    others = sizes[: call.axis - 1] + sizes[call.axis :]
    by_example = call.bias is not None or call.window is not None or call.dropout > 0
    grid = (batch, prod(others)) if by_example else (1, batch * prod(others))
    lines = (to_lines(x, call.axis) for x in call.operands)
    q, k, v = (x.view(*grid, *x.shape[1:]) for x in lines)
    present = call.key_mask
    if present is not None:
        present = present.movedim(call.axis, -1).reshape(*grid, k.shape[-2])
    bias = None if call.bias is None else bias_of_lines(call.bias, others).to(q.dtype)
    block = call.block
    if block:
        return _blocks(call, block, Groups(q, k, v, bias), present)
    return _whole_lines(call, Groups(q, k, v, bias), present)


def _whole_lines(call: AttentionCall, lines: Groups, present: Tensor | None) -> Groups:
    """Return lines with the pairs that attend; only in exported graphs they have windows and dilations."""
    bias = lines.bias
    allowed = None if present is None else present[:, :, None, None, :]
    inside: list[Tensor] = []
    length = lines.q.shape[-2]
    device = lines.q.device
    if call.dilation > 1 or call.window:
        offset = offsets(length, length, device)
        inside.append(offset % call.dilation == 0)
        if call.window:
            inside.append(offset.abs() <= call.window // 2 * call.dilation)
            if bias is not None:
                rows = bias.expand(*bias.shape[:-2], len(offset), -1)
                bias = _of_pairs(rows, offset // call.dilation + call.window // 2)
    if call.causal:
        inside.append(torch.ones(length, length, dtype=torch.bool, device=device).tril())
    for pairs in inside:
        allowed = pairs[None, None, None] if allowed is None else allowed & pairs
    return lines._replace(bias=bias, allowed=allowed)


def _blocks(call: AttentionCall, sizes: tuple[int, int], lines: Groups, present: Tensor | None) -> Groups:
    """Return blocks of queries, [g, m] = [B blocks, lines], and what each attends to, under a band."""
    assert call.window
    q, k, v, bias, _ = lines
    length = q.shape[-2]
    block, keys = sizes
    radius = call.window // 2
    after = 0 if call.causal else radius
    blocks = -(-length // block)
    beyond = blocks * block - length

    def around(x: Tensor) -> Tensor:
        return F.pad(x, (radius, beyond + after)).unfold(-1, keys, block)

    def in_blocks(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, beyond)).unflatten(-2, (blocks, block))

    def grouped(x: Tensor) -> Tensor:
        x = x.movedim(3, 1)
        shared = x.shape[0] == x.shape[1] == 1
        return (x if shared else x.expand(len(q), blocks, *x.shape[2:])).flatten(0, 1)

    column = offsets(block, keys, q.device)
    band = (column >= 0) & (column <= radius + after)
    if present is None:
        present = torch.ones(1, 1, length, dtype=torch.bool, device=q.device)
    allowed = grouped(around(present)[:, :, None, :, None, :] & band)
    if bias is not None:
        same = bias.shape[-2] == 1
        rows = bias.unsqueeze(-2).expand(*bias.shape[:-1], block, -1) if same else in_blocks(bias)
        bias = grouped(_of_pairs(rows, column))
    k, v = (grouped(around(x.mT).movedim(-3, -1)) for x in (k, v))
    return Groups(grouped(in_blocks(q)), k, v, bias, allowed)


def _of_pairs(bias: Float[Tensor, "*s l w"], column: Tensor) -> Float[Tensor, "*s l k"]:
    """Return the bias of each pair: of a query's row, its column, or the nearest."""
    return bias.gather(-1, column.clamp(0, bias.shape[-1] - 1).expand(*bias.shape[:-2], -1, -1))


def _in_pieces(attend: Callable[..., Tensor], groups: Groups, dropout: float) -> Tensor:
    scores = _scores(groups)
    most = piece(groups.q.device)
    if scores <= most or groups.q.shape[:2].numel() <= 1:
        arguments = attend, groups, dropout
        out: Tensor = checkpoint(_without_excluded, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0)
        return out
    dim = 0 if groups.q.shape[0] > 1 else 1
    step = max(1, most * groups.q.shape[dim] // scores)
    parts = zip(*(repeat(x) if x is None or x.shape[dim] == 1 else x.split(step, dim) for x in groups))
    return torch.cat([_in_pieces(attend, Groups(*part), dropout) for part in parts], dim)


def _without_excluded(attend: Callable[..., Tensor], groups: Groups, dropout: float) -> Tensor:
    q, k, v, bias, allowed = groups
    if bias is not None:  # else excluded keys would count
        reached = ~(bias <= lowest(q.dtype))
        allowed = reached if allowed is None else allowed & reached
    return attend(q, k, v, bias, allowed, dropout)


def _scores(groups: Groups) -> int:
    return groups.q.shape[:-1].numel() * groups.k.shape[-2]


def piece(device: torch.device) -> int:
    """Return the scores at a time on a device."""
    return PIECE.get(device.type, PIECE_ELSEWHERE)


def mask_of(bias: Tensor | None, allowed: Tensor | None, q: Tensor) -> Tensor | None:
    """Return what to add to the scores."""
    if allowed is None:
        return bias
    return torch.where(allowed, q.new_zeros(()) if bias is None else bias, lowest(q.dtype))


def lowest(dtype: torch.dtype) -> float:
    """Return the score of an excluded key."""
    # Finite, for a gradient without keys; halved, so that adding a score stays finite.
    return torch.finfo(dtype).min / 2


def zero_without_keys(x: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the results, zero for queries without any key."""
    return x if allowed is None else x.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


def bias_of_lines(bias: Float[Tensor, "..."], others: Sequence[int]) -> Float[Tensor, "#b #m #n #l s"]:
    """Return a bias [B, *others, heads, L, ..] for all lines of an example, or for each; `others` are other axes."""
    if any(size > 1 for size in bias.shape[1:-3]):
        bias = bias.expand(-1, *others, -1, -1, -1)
    return bias.reshape(len(bias), prod(bias.shape[1:-3]), *bias.shape[-3:])


def to_lines(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    """Return the lines along `axis`, 1..d."""
    if x.ndim == 4:
        return x.transpose(1, 2)
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def mask_of_lines(key_mask: Bool[Tensor, " b *a"] | None, axis: int) -> Bool[Tensor, "m l"] | None:
    """Return the mask of the lines along `axis`."""
    return None if key_mask is None else key_mask.movedim(axis, -1).flatten(0, -2)


def from_lines(out: Float[Tensor, "m n l w"], like: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n w"]:
    """Undo `to_lines`, onto the grid of `like`."""
    if like.ndim == 4:
        return out.transpose(1, 2)
    rest = [size for dim, size in enumerate(like.shape[:-2]) if dim != axis]
    return out.transpose(1, 2).unflatten(0, rest).movedim(-3, axis)
