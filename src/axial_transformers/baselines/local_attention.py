"""Causal attention of a sequence to its neighbourhood, a block of queries at a time."""

from math import sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def local_attention(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n l k"],
    v: Float[Tensor, "m n l w"],
    block: int,
    memory: int,
    window: int | None = None,
) -> Float[Tensor, "m n l w"]:
    """Every place sees itself, what comes before it in its block of queries, and the `memory` places before the block.

    "1D local attention" of the Image Transformer (Parmar et al. 2018, section 3.3): the queries of a block share one
    memory, so that all is dense matrix products.

    Args:
        q, k, v: [lines, heads, L, width].
        block: places of one block of queries.
        memory: places before a block that it sees.
        window: of these, a place sees only the `window` places before itself.

    Returns:
        [lines, heads, L, value width]. Operations and memory grow as L * (block + memory).
    """
    length = q.shape[-2]
    padding = -length % block
    queries = F.pad(q, (0, 0, 0, padding)).unflatten(-2, (-1, block))
    keys, values = (F.pad(x, (0, 0, memory, padding)).unfold(-2, memory + block, block).mT for x in (k, v))
    place = torch.arange(length + padding, device=q.device).view(-1, block, 1)
    other = place[:, :1] - memory + torch.arange(memory + block, device=q.device)
    seen = (other >= 0) & (other <= place)
    if window is not None:
        seen &= other >= place - window
    scores = (queries / sqrt(q.shape[-1])) @ keys.mT
    weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1)
    return (weights.to(values.dtype) @ values).flatten(-3, -2)[..., :length, :]
