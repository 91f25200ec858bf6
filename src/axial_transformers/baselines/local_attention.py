"""Causal local attention over a sequence, one block of queries at a time."""

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
    """Attention to the position itself, to earlier ones of its block, and to the `memory` ones before the block.

    "1D local attention" of the Image Transformer (Parmar et al. 2018, section 3.3): the queries of a block share one
    memory, so that everything is a dense matrix product.

    Args:
        q, k, v: [lines, heads, L, width].
        block: positions in a block of queries.
        memory: positions before a block that its queries attend to.
        window: if given, a position attends to no more than the `window` positions before itself.

    Returns:
        [lines, heads, L, value width]. Operations and memory grow as L * (block + memory).
    """
    length = q.shape[-2]
    padding = -length % block
    queries = F.pad(q, (0, 0, 0, padding)).unflatten(-2, (-1, block))
    keys, values = (F.pad(x, (0, 0, memory, padding)).unfold(-2, memory + block, block).mT for x in (k, v))
    position = torch.arange(length + padding, device=q.device).view(-1, block, 1)
    other = position[:, :1] - memory + torch.arange(memory + block, device=q.device)
    visible = (other >= 0) & (other <= position)
    if window is not None:
        visible &= other >= position - window
    scores = (queries / sqrt(q.shape[-1])) @ keys.mT
    weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)
    return (weights.to(values.dtype) @ values).flatten(-3, -2)[..., :length, :]
