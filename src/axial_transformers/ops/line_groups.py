"""The lines of a call as torch's operations take them: in groups that share a mask, and not too many at once."""

from collections.abc import Callable, Iterable, Sequence
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
    groups = group_lines(without_absent(call))
    if is_recorded() or _count_scores(groups) <= piece(groups.q.device):
        out = _attend_reached(attend, groups, call.dropout)
    else:
        out = _attend_in_pieces(attend, groups, call.dropout)
    if call.block:  # [B blocks, lines, heads, queries of a block, w] -> [B, lines, heads, L, w]
        length = call.q.shape[call.axis]
        blocks = -(-length // out.shape[-2])
        out = out.unflatten(0, (call.q.shape[0], blocks)).movedim(1, 3).flatten(3, 4)[..., :length, :]
    return from_lines(out.flatten(0, 1), call)


def group_lines(call: AttentionCall) -> Groups:
    """Return the groups of a call.

    With a window, a group is a block of queries in all lines of an example. With a bias or dropout, it is the lines of
    an example. Otherwise all lines are one group.
    """
    grid = call.q.shape[0], prod(call.others)
    if call.bias is None and call.window is None and not call.dropout:
        grid = 1, prod(grid)
    q, k, v = (x.view(*grid, *x.shape[1:]) for x in qkv_lines(call))
    present = call.key_mask
    if present is not None:
        present = present.movedim(call.axis, -1).reshape(*grid, k.shape[-2])
    bias = None
    if call.bias is not None:
        bias = line_bias(call.bias, call.others).to(q.dtype)
    if call.block:
        return _group_blocks(call, call.block, Groups(q, k, v, bias), present)
    return _mask_lines(call, Groups(q, k, v, bias), present)


def _mask_lines(
    call: AttentionCall,
    lines: Groups,
    present: Tensor | None,
) -> Groups:
    """Return whole lines with the pairs that attend. Only exported graphs have windows and dilations here."""
    length = lines.q.shape[-2]
    device = lines.q.device
    bias = lines.bias
    allowed = None
    if present is not None:
        allowed = present[:, :, None, None]
    if call.dilation > 1 or call.window:
        offset = offsets(length, length, device)[None, None, None]
        allowed = _both(allowed, offset % call.dilation == 0)
        if call.window:
            radius = call.window // 2
            allowed = _both(allowed, offset.abs() <= radius * call.dilation)
            if bias is not None:
                rows = bias.expand(*bias.shape[:-2], length, -1)
                bias = _pair_bias(rows, offset // call.dilation + radius)
    if call.causal:
        allowed = _both(allowed, torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None, None])
    return lines._replace(bias=bias, allowed=allowed)


def _both(allowed: Tensor | None, pairs: Tensor) -> Tensor:
    """Return the pairs that are in both; None: all pairs."""
    return pairs if allowed is None else allowed & pairs


def _group_blocks(
    call: AttentionCall,
    sizes: tuple[int, int, int],
    lines: Groups,
    present: Tensor | None,
) -> Groups:
    """Cut lines into blocks of queries, each beside the keys that any of its queries may attend to.

        block of 4 queries           o o o o
        its keys, with radius 2  . . k k k k . .      the pairs that attend are a band of width 2 radius + 1

    Groups [g, m] are [B blocks, lines].
    """
    block, radius, after = sizes
    keys = radius + block + after
    length = lines.q.shape[-2]
    blocks = -(-length // block)
    beyond = blocks * block - length

    def cut_keys(x: Tensor) -> Tensor:  # [.., L] -> [.., blocks, keys]
        return F.pad(x, (radius, beyond + after)).unfold(-1, keys, block)

    def cut_queries(x: Tensor) -> Tensor:  # [.., L, w] -> [.., blocks, block, w]
        return F.pad(x, (0, 0, 0, beyond)).unflatten(-2, (blocks, block))

    def grouped(x: Tensor) -> Tensor:  # [B, m, heads, blocks, ..] -> [B blocks, m, heads, ..]
        x = x.movedim(3, 1)
        if not x.shape[0] == x.shape[1] == 1:
            x = x.expand(lines.q.shape[0], blocks, *x.shape[2:])
        return x.flatten(0, 1)

    column = offsets(block, keys, lines.q.device)  # of the window that a key has for a query
    band = (column >= 0) & (column <= radius + after)
    if present is None:
        present = torch.ones(1, 1, length, dtype=torch.bool, device=band.device)
    allowed = grouped(cut_keys(present)[:, :, None, :, None, :] & band)
    bias = lines.bias
    if bias is not None:
        rows = bias.unsqueeze(-2).expand(*bias.shape[:-1], block, -1)
        if bias.shape[-2] > 1:  # not one row for all queries
            rows = cut_queries(bias)
        bias = grouped(_pair_bias(rows, column))
    k, v = (grouped(cut_keys(x.mT).movedim(-3, -1)) for x in (lines.k, lines.v))
    return Groups(grouped(cut_queries(lines.q)), k, v, bias, allowed)


def _pair_bias(bias: Float[Tensor, "*s l w"], column: Tensor) -> Float[Tensor, "*s l k"]:
    """Return the bias of each pair: that of a query's row, in its column or the nearest."""
    return bias.gather(-1, column.clamp(0, bias.shape[-1] - 1).expand(*bias.shape[:-2], -1, -1))


def _attend_in_pieces(
    attend: Callable[..., Tensor],
    groups: Groups,
    dropout: float,
) -> Tensor:
    """Split the groups, or else the lines of a group, until a piece has few scores."""
    scores = _count_scores(groups)
    most = piece(groups.q.device)
    if scores <= most or groups.q.shape[:2].numel() <= 1:
        arguments = attend, groups, dropout
        out: Tensor = checkpoint(_attend_reached, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0)
        return out
    dim = 0 if len(groups.q) > 1 else 1
    size = max(1, most * groups.q.shape[dim] // scores)
    return join_pieces(lambda *some: _attend_in_pieces(attend, Groups(*some), dropout), groups, size, dim)


def join_pieces(
    compute: Callable[..., Tensor],
    tensors: Iterable[Tensor | None],
    size: int,
    dim: int = 0,
) -> Float[Tensor, "..."]:
    """Return what is computed of pieces of tensors along a dimension, joined; None and sizes of 1 are in each piece."""
    pieces = [repeat(x) if x is None or x.shape[dim] == 1 else x.split(size, dim) for x in tensors]
    return torch.cat([compute(*some) for some in zip(*pieces)], dim)


def _attend_reached(
    attend: Callable[..., Tensor],
    groups: Groups,
    dropout: float,
) -> Tensor:
    """Attend, but not to keys that the bias excludes."""
    q, k, v, bias, allowed = groups
    if bias is not None:
        allowed = _both(allowed, ~(bias <= lowest(q.dtype)))
    return attend(q, k, v, bias, allowed, dropout)


def _count_scores(groups: Groups) -> int:
    return groups.q.shape[:-1].numel() * groups.k.shape[-2]


def piece(device: torch.device) -> int:
    """Return the scores at a time on a device."""
    return PIECE.get(device.type, PIECE_ELSEWHERE)


def additive_mask(
    bias: Tensor | None,
    allowed: Tensor | None,
    q: Tensor,
) -> Tensor | None:
    """Return what to add to the scores."""
    if allowed is None:
        return bias
    return torch.where(allowed, q.new_zeros(()) if bias is None else bias, lowest(q.dtype))


def lowest(dtype: torch.dtype) -> float:
    """Return the score of an excluded key."""
    # A query without keys needs a finite score for its gradient. Half of the least leaves room for adding others.
    return torch.finfo(dtype).min / 2


def zero_without_keys(x: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the results, zero for queries without any key."""
    return x if allowed is None else x.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


def line_bias(bias: Float[Tensor, "..."], others: Sequence[int]) -> Float[Tensor, "#b #m #n #l s"]:
    """Return a bias [B, *others, heads, L, ..] for all lines of an example, or for each; `others` are other axes."""
    if bias.shape[1:-3].numel() > 1:
        bias = bias.expand(-1, *others, -1, -1, -1)
    return bias.flatten(1, -4) if others else bias.unsqueeze(1)


def qkv_lines(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values by line: [lines, heads, L, width]."""
    q, k, v = (_to_lines(x, call.axis) for x in call.operands)
    return q, k, v


def _to_lines(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    if x.ndim == 4:
        return x.transpose(1, 2)
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def line_mask(call: AttentionCall) -> Bool[Tensor, "m l"] | None:
    """Return the mask of the lines along the axis."""
    return None if call.key_mask is None else call.key_mask.movedim(call.axis, -1).flatten(0, -2)


def from_lines(out: Float[Tensor, "m n l w"], call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Put lines back onto the grid of the queries."""
    out = out.transpose(1, 2)
    if call.q.ndim == 4:
        return out
    return out.unflatten(0, (call.q.shape[0], *call.others)).movedim(-3, call.axis)
