"""Position-sensitive attention along one axis: Wang et al. 2020 (Axial-DeepLab), equation 4.

y_o = sum over p in the span around o of softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o})

A table of 2R + 1 rows holds the encodings of the offsets p - o = -R .. R, in this order. Larger offsets are outside the
span: a table of 2L - 1 rows or more is global on lines of length L, a smaller one is local with span m = 2R + 1.
"""

from math import sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.axial_attention import data_axis, from_lines, to_lines
from axial_transformers.ops.torch_attention import softmax


def position_sensitive_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    value_table: Float[Tensor, "r t w"],
    axis: int,
    causal: bool = False,
) -> Float[Tensor, "b *a n w"]:
    """Equation 4 along one axis, its scores scaled by 1/sqrt(K).

    Args:
        q, k, v: [B, *A, heads, head_dim].
        query_table, key_table, value_table: [2R + 1, heads or 1, head_dim]; one head of tables serves all heads.
        axis: the dimension of q attended along, 1..d, or counted from the end.
        causal: a site attends to itself and the sites before it only (offsets <= 0).

    Returns:
        [B, *A, heads, value_dim].

    Raises:
        ValueError: `axis` is not one of the data, or a table has an even number of rows.
    """
    axis = data_axis(q, axis)
    window = Window.of(q.shape[axis], len(query_table), causal, q.device)
    terms = similarities(to_lines(q, axis), to_lines(k, axis), query_table, key_table, window)
    weights = softmax_over((terms[0] + terms[1] + terms[2]) / sqrt(q.shape[-1]), window)
    of_content, of_position = weighted_values(weights, to_lines(v, axis), value_table, window)
    return from_lines(of_content + of_position, q, axis)


class Window(NamedTuple):
    """The pairs of sites that attend: column w of site o stands for the key at place o + w - before.

    On short lines there is a column for every key, and `before` is o (dense); on long ones there is a column for every
    offset, and `before` is R (banded), so that operations and memory grow with L m rather than L^2. `allowed` is True
    for the pairs that attend; the window is complete if all do.
    """

    radius: int
    dense: bool
    complete: bool
    allowed: Bool[Tensor, "l w"]

    @classmethod
    def of(cls, length: int, rows: int, causal: bool, device: torch.device) -> "Window":
        """The pairs of a line of `length` sites under tables of so many rows.

        Raises:
            ValueError: an even number of rows.
        """
        if rows % 2 == 0:
            raise ValueError(f"a table must have 2R + 1 rows, for the offsets -R..R; an even span {rows} has no centre")
        radius, dense = rows // 2, rows >= length
        site = torch.arange(length, device=device)[:, None]
        offset = torch.arange(length, device=device) - site if dense else torch.arange(rows, device=device) - radius
        inside = (offset.abs() <= radius) & (offset + site >= 0) & (offset + site < length)
        complete = radius >= length - 1 and not causal
        return cls(radius, dense, complete, inside & (offset <= 0) if causal else inside)

    def encodings(self, table: Float[Tensor, "r t k"]) -> Float[Tensor, "l s t k"]:
        """Dense: the table's row for each pair of sites; any row for pairs that do not attend."""
        length = len(self.allowed)
        site = torch.arange(length, device=table.device)
        offset = site - site[:, None]
        return table[offset.clamp(-self.radius, self.radius) + self.radius]

    def around(self, x: Float[Tensor, "m n l k"]) -> Float[Tensor, "m n l k w"]:
        """Banded: the numbers in the window of each site, zeros beyond the ends of the line."""
        return F.pad(x, (0, 0, self.radius, self.radius)).unfold(-2, 2 * self.radius + 1, 1)


def similarities(
    q: Float[Tensor, "m n l k"],
    k: Float[Tensor, "m n l k"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    window: Window,
) -> tuple[Float[Tensor, "m n l w"], Float[Tensor, "m n l w"], Float[Tensor, "m n l w"]]:
    """The three terms of the softmax's argument: q_o . k_p, q_o . rq_{p-o}, k_p . rk_{p-o}, each [M, N, L, columns]."""
    if window.dense:
        rq, rk = (window.encodings(table).expand(-1, -1, q.shape[1], -1) for table in (query_table, key_table))
        return q @ k.mT, torch.einsum("mnok,opnk->mnop", q, rq), torch.einsum("mnpk,opnk->mnop", k, rk)
    of_query = torch.einsum("mnok,wnk->mnow", q, query_table.expand(-1, q.shape[1], -1))
    of_key = torch.einsum("mnpk,wnk->mnpw", k, key_table.expand(-1, q.shape[1], -1))
    # Column w of site o belongs to the key p = o + w - R and row w of the table: the diagonal of (row, place) around o.
    of_key = window.around(of_key).diagonal(dim1=-2, dim2=-1)
    return torch.einsum("mnok,mnokw->mnow", q, window.around(k)), of_query, of_key


def softmax_over(scores: Float[Tensor, "m n l w"], window: Window) -> Float[Tensor, "m n l w"]:
    """The softmax over the pairs that attend; zero elsewhere. Every site attends to itself."""
    if not window.complete:
        scores = scores.masked_fill(~window.allowed, -torch.inf)
    return softmax(scores).to(scores.dtype)


def weighted_values(
    weights: Float[Tensor, "m n l w"], v: Float[Tensor, "m n l k"], value_table: Float[Tensor, "r t k"], window: Window
) -> tuple[Float[Tensor, "m n l k"], Float[Tensor, "m n l k"]]:
    """The two halves of equation 4's sum: of v_p, and of rv_{p-o}, each [M, N, L, W]."""
    if window.dense:
        rv = window.encodings(value_table).expand(-1, -1, v.shape[1], -1)
        return weights @ v, torch.einsum("mnop,opnk->mnok", weights, rv)
    of_content = torch.einsum("mnow,mnokw->mnok", weights, window.around(v))
    return of_content, torch.einsum("mnow,wnk->mnok", weights, value_table.expand(-1, v.shape[1], -1))
