"""Attention of every site to a window of its line, in operations and memory that grow with the length of the line.

A line is cut into blocks. The queries of a block attend to its own places and to those of the window before and after
it: attention of short lines of queries to short lines of keys, with a band of allowed pairs.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops import torch_attention

SHORTEST_BLOCK = 16
"""Queries that share their keys at least: matrix products of fewer rows leave vector registers unused."""


def attend(
    q: Float[Tensor, "b m n l k"],
    k: Float[Tensor, "b m n l k"],
    v: Float[Tensor, "b m n l w"],
    span: int,
    causal: bool,
    bias: Float[Tensor, "#b #m #n #l span"] | None,
    present: Bool[Tensor, "b m l"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "b m n l w"]:
    """Attention of place o to the places p of its line with |p - o| <= R, where span = 2R + 1; p <= o if causal.

    Args:
        q, k, v: [B, lines, heads, length, width].
        bias: broadcast to [B, lines, heads, length, span]; column R + (p - o) is added to the score of the pair o, p.
        present: [B, lines, length], False at places not attended to.
        dropout: see `torch_attention.attend_groups`.
    """
    batch, length = q.shape[0], q.shape[-2]
    radius, block = span // 2, max(span, SHORTEST_BLOCK)
    blocks = -(-length // block)
    beyond = blocks * block - length
    after = 0 if causal else radius
    keys = radius + block + after

    def around(x: Tensor) -> Tensor:
        """[.., L] -> [.., blocks, keys]: the places that a block attends to; zero or False beyond the ends."""
        return F.pad(x, (radius, beyond + after)).unfold(-1, keys, block)

    def grouped(x: Tensor) -> Tensor:
        """[B, lines, heads, blocks, ..] -> [B * blocks, lines, heads, ..]; sizes of one stay, where both are."""
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
    out = torch_attention.attend_groups(q, k, v, bias, allowed, dropout)
    return out.unflatten(0, (batch, blocks)).movedim(1, 3).flatten(3, 4)[..., :length, :]
