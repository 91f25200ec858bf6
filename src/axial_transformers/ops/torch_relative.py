"""Position-sensitive attention (Wang et al. 2020, Axial-DeepLab, equation 4) by products and sums.

y_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}), p in the window around o

A table has 2R + 1 rows, for the offsets p - o = -R .. R; 2L - 1 rows or more give global attention.
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axial_transformers.ops.attention_call import AttentionCall, without_absent
from axial_transformers.ops.line_groups import from_lines, join_pieces, line_mask, lowest, piece, qkv_lines
from axial_transformers.ops.positions import offsets
from axial_transformers.ops.torch_attention import softmax
from axial_transformers.ops.torch_private import is_recorded


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    return None if call.tables else "it computes equation 4 only"


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call."""
    if call.norms:
        return from_lines(_attend_lines(call, *qkv_lines(call), line_mask(call)), call)  # statistics are of all lines
    return from_lines(_attend_in_pieces(without_absent(call)), call)


def weights(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Return the attention weights of a call: [B, *A, heads, positions of the line or window]."""
    q, k, _ = qkv_lines(call)
    return from_lines(_weights(call, q, k, line_mask(call))[0], call)


def _attend_in_pieces(call: AttentionCall) -> Tensor:
    assert call.tables is not None
    q, k, v = qkv_lines(call)
    present = line_mask(call)
    if is_recorded():  # it would unroll the loop
        return _attend_lines(call, q, k, v, present)
    scores = q.shape[1:-1].numel() * min(len(call.tables[0]), q.shape[-2])
    size = max(1, piece(q.device) // max(1, scores))
    if len(q) <= size:
        return _attend_lines(call, q, k, v, present)
    call = call._replace(q=q, k=k, v=v, qkv=None)  # backward needs no other copy
    attend = partial(checkpoint, _attend_lines, call, use_reentrant=False, preserve_rng_state=False)
    return join_pieces(attend, (q, k, v, present), size)


def _attend_lines(
    call: AttentionCall,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    present: Tensor | None,
) -> Tensor:
    assert call.tables is not None
    weights, window = _weights(call, q, k, present)
    content, position = weighted_values(weights.to(v.dtype), v, call.tables[2], window)
    if call.norms:
        return call.norms.output(content, position)
    return content + position


def _weights(
    call: AttentionCall,
    q: Tensor,
    k: Tensor,
    present: Tensor | None,
) -> tuple[Tensor, "Window"]:
    assert call.tables is not None
    query_table, key_table, _ = call.tables
    window = Window.of(q.shape[-2], len(query_table), call.causal, q.device, present)
    terms = similarities(q, k, query_table, key_table, window)
    if call.norms:
        scores = call.norms.scores(terms, None if window.complete else window.allowed)
    else:
        scores = (terms[0] + terms[1] + terms[2]) * call.scale
    return softmax_over(scores, window), window


class Window(NamedTuple):
    """Pairs of positions that attend: column w of position o belongs to the key at o + w - before.

    Short lines are dense: a column for every key, `before` is o. Long lines are banded: a column for every offset,
    `before` is R.
    """

    radius: int
    dense: bool
    complete: bool
    allowed: Bool[Tensor, "*m l w"]

    @classmethod
    def of(
        cls,
        length: int,
        rows: int,
        causal: bool,
        device: torch.device,
        present: Bool[Tensor, "m l"] | None = None,
    ) -> "Window":
        radius = rows // 2
        dense = rows >= length
        complete = radius >= length - 1 and not causal and present is None
        if dense:
            offset = offsets(length, length, device)
            allowed = offset.abs() <= radius
            if present is not None:
                allowed = allowed & present[:, None, None]
        else:
            offset = torch.arange(rows, device=device) - radius
            if present is None:
                present = torch.ones(1, length, dtype=torch.bool, device=device)
            allowed = F.pad(present, (radius, radius)).unfold(-1, rows, 1)[:, None]
        if causal:
            allowed = allowed & (offset <= 0)
        return cls(radius, dense, complete, allowed)

    def encodings(self, table: Float[Tensor, "r t k"]) -> Float[Tensor, "l s t k"]:
        """Return a dense table's row for each pair."""
        length = self.allowed.shape[-2]
        offset = offsets(length, length, table.device)
        return table[offset.clamp(-self.radius, self.radius) + self.radius]

    def around(self, x: Float[Tensor, "m n l k"]) -> Float[Tensor, "m n l k w"]:
        """Return the banded window of each position."""
        return F.pad(x, (0, 0, self.radius, self.radius)).unfold(-2, 2 * self.radius + 1, 1)


def similarities(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n l k"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    window: Window,
) -> tuple[Float[Tensor, "m n l w"], Float[Tensor, "m n l w"], Float[Tensor, "m n l w"]]:
    """Return the three terms of the scores."""
    if window.dense:
        rq, rk = (window.encodings(table).expand(-1, -1, q.shape[1], -1) for table in (query_table, key_table))
        return q @ k.mT, torch.einsum("mnok,opnk->mnop", q, rq), torch.einsum("mnpk,opnk->mnop", k, rk)
    product = torch.einsum("mnok,mnokw->mnow", q, window.around(k))
    query_term = torch.einsum("mnok,wnk->mnow", q, query_table.expand(-1, q.shape[1], -1))
    key_term = torch.einsum("mnpk,wnk->mnpw", k, key_table.expand(-1, q.shape[1], -1))
    # column w of position o belongs to key p = o + w - R: a diagonal
    return product, query_term, window.around(key_term).diagonal(dim1=-2, dim2=-1)


def softmax_over(scores: Float[Tensor, "m n l w"], window: Window) -> Float[Tensor, "m n l w"]:
    """Return the softmax over allowed pairs; zero elsewhere."""
    if window.complete:
        return softmax(scores).to(scores.dtype)
    return softmax(scores.masked_fill(~window.allowed, lowest(scores.dtype))).to(scores.dtype) * window.allowed


def weighted_values(
    weights: Float[Tensor, "m n l w"],
    v: Float[Tensor, "m n l k"],
    value_table: Float[Tensor, "r t k"],
    window: Window,
) -> tuple[Float[Tensor, "m n l k"], Float[Tensor, "m n l k"]]:
    """Return the sums of v_p and of rv_{p-o}."""
    if window.dense:
        rv = window.encodings(value_table).expand(-1, -1, v.shape[1], -1)
        return weights @ v, torch.einsum("mnop,opnk->mnok", weights, rv)
    content = torch.einsum("mnow,mnokw->mnok", weights, window.around(v))
    return content, torch.einsum("mnow,wnk->mnok", weights, value_table.expand(-1, v.shape[1], -1))
