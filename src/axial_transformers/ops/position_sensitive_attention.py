"""Position-sensitive attention along one axis: Wang et al. 2020 (Axial-DeepLab), equation 4.

y_o = sum over p in the span around o of softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o})

A table of 2R + 1 rows holds the encodings of the offsets p - o = -R .. R, in this order. Larger offsets are outside the
span: a table of 2L - 1 rows or more is global on lines of length L, a smaller one is local with span m = 2R + 1.
"""

from functools import partial
from itertools import repeat
from math import prod, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axial_transformers.ops import compiled_attention
from axial_transformers.ops.argument_checks import check_tensors, data_axis
from axial_transformers.ops.axial_attention import from_lines, mask_of_lines, to_lines
from axial_transformers.ops.compiled_attention import Packing, unpacked
from axial_transformers.ops.kernel_choice import compiled_can_run
from axial_transformers.ops.torch_attention import piece, softmax

Tables = tuple[Float[Tensor, "r t k"], Float[Tensor, "r t k"], Float[Tensor, "r t w"]]
"""The encodings of queries, of keys and of values."""


def position_sensitive_attention(  # noqa: PLR0913
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    query_table: Float[Tensor, "r t k"],
    key_table: Float[Tensor, "r t k"],
    value_table: Float[Tensor, "r t w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Equation 4 along one axis, its scores times `scale`.

    No more than some lines' scores exist at a time, so that memory grows with the number of sites.

    Args:
        q, k, v: [B, *A, heads, head_dim].
        query_table, key_table, value_table: [2R + 1, heads or 1, head_dim]; one head of tables serves all heads.
        axis: the dimension of q attended along, 1..d, or counted from the end.
        causal: a site attends to itself and the sites before it only (offsets <= 0).
        key_mask: [B, *A], True where a site is present. A site that attends to none gets zeros.
        scale: 1/sqrt(K) if not given; 1 is equation 4 as printed.

    Returns:
        [B, *A, heads, value_dim].

    Raises:
        ValueError: `axis` is not one of the data, a table has an even number of rows, or shapes or dtypes do not fit.
    """
    axis, tables = data_axis(q, axis), (query_table, key_table, value_table)
    check_tensors(key_mask, *tables, q=q, k=k, v=v)
    _check_fit(q, k, v, tables)
    if len({table.shape[1] for table in tables}) > 1:
        query_table, key_table, value_table = (table.expand(-1, q.shape[-2], -1) for table in tables)
        tables = query_table, key_table, value_table
    return _attend((q, k, v), None, tables, axis, causal, 1 / sqrt(q.shape[-1]) if scale is None else scale, key_mask)


def _check_fit(q: Tensor, k: Tensor, v: Tensor, tables: Tables) -> None:
    """Raises ValueError where shapes or dtypes do not fit: the compiled kernel computes with what it is given."""
    if q.shape != k.shape or q.shape[:-1] != v.shape[:-1]:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all sizes but v's last"
        )
    rows, heads, widths = odd_rows(tables[0]), q.shape[-2], (q.shape[-1], k.shape[-1], v.shape[-1])
    for name, table, width in zip(("query", "key", "value"), tables, widths):
        if table.shape not in ((rows, heads, width), (rows, 1, width)):
            raise ValueError(
                f"{name}_table must be [{rows}, {heads} or 1, {width}], the rows of all tables, not {list(table.shape)}"
            )


def position_sensitive_self_attention(
    qkv: Float[Tensor, "b *a e"],
    heads: int,
    widths: tuple[int, int, int],
    tables: Tables,
    axis: int,
    causal: bool,
    scale: float,
    key_mask: Bool[Tensor, " b *a"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """`position_sensitive_attention` of queries, keys and values in one tensor, with scores times `scale`.

    Args:
        qkv, heads, widths: see `ops.axial_attention.axial_self_attention`.
        tables: of queries, keys and values.
        axis, causal, key_mask: as for `position_sensitive_attention`, with q [B, *A, heads, head_dim].
    """
    axis = data_axis(qkv.unsqueeze(-1), axis)
    check_tensors(key_mask, *tables, k=qkv.unsqueeze(-1))
    return _attend((qkv,), (heads, *widths), tables, axis, causal, scale, key_mask)


def _attend(
    tensors: tuple[Tensor, ...],
    packing: Packing,
    tables: Tables,
    axis: int,
    causal: bool,
    scale: float,
    key_mask: Tensor | None,
) -> Float[Tensor, "b *a n w"]:
    q, k, v = unpacked(tensors, packing)
    if key_mask is None and is_compiled(q, axis, odd_rows(tables[0])):
        query, key, value = (table.float() for table in tables)
        single = [x.float() for x in tensors]
        return compiled_attention.attend_relative(single, packing, (query, key, value), axis, causal, scale).to(v.dtype)
    lines = to_lines(q, axis), to_lines(k, axis), to_lines(v, axis)
    return from_lines(_in_pieces(lines, mask_of_lines(key_mask, axis), tables, causal, scale), v, axis)


def is_compiled(q: Float[Tensor, "b *a n k"], axis: int, rows: int) -> bool:
    """Whether the compiled kernel computes attention along axis 1..d with tables of so many rows."""
    return compiled_can_run(q.device, q.dtype, min(rows, q.shape[axis]), prod(q.shape[:-1])) is None


def _in_pieces(
    qkv: tuple[Tensor, Tensor, Tensor], present: Tensor | None, tables: Tables, causal: bool, scale: float
) -> Tensor:
    """Lines [M, N, L, K] -> [M, N, L, W], as many at a time as `piece` allows; in the backward pass again."""
    attend = partial(_attend_lines, tables=tables, causal=causal, scale=scale)
    if torch.compiler.is_compiling():  # a loop would be unrolled
        return attend(*qkv, present)
    q = qkv[0]
    scores = q.shape[1:-1].numel() * min(len(tables[0]), q.shape[-2])
    step = max(1, piece(q.device) // max(1, scores))
    if len(q) <= step:
        return attend(*qkv, present)
    parts = zip(*(x.split(step) for x in qkv), repeat(None) if present is None else present.split(step))
    return torch.cat([checkpoint(attend, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def _attend_lines(
    q: Tensor, k: Tensor, v: Tensor, present: Tensor | None, tables: Tables, causal: bool, scale: float
) -> Tensor:
    query_table, key_table, value_table = tables
    window = Window.of(q.shape[-2], len(query_table), causal, q.device, present)
    terms = similarities(q, k, query_table, key_table, window)
    weights = softmax_over((terms[0] + terms[1] + terms[2]) * scale, window).to(v.dtype)
    of_content, of_position = weighted_values(weights, v, value_table, window)
    return of_content + of_position


def odd_rows(table: Float[Tensor, "r t k"]) -> int:
    """The number of rows of a table.

    Raises:
        ValueError: it is even.
    """
    rows = len(table)
    if rows % 2 == 0:
        raise ValueError(f"a table must have 2R + 1 rows, for the offsets -R..R; an even span {rows} has no centre")
    return rows


class Window(NamedTuple):
    """The pairs of sites that attend: column w of site o stands for the key at place o + w - before.

    On short lines there is a column for every key, and `before` is o (dense); on long ones there is a column for every
    offset, and `before` is R (banded), so that operations and memory grow with L m rather than L^2. `allowed` is True
    for the pairs that attend, of all lines or of each [M, 1, L, W]; the window is complete if all do.
    """

    radius: int
    dense: bool
    complete: bool
    allowed: Bool[Tensor, "*m l w"]

    @classmethod
    def of(
        cls, length: int, rows: int, causal: bool, device: torch.device, present: Bool[Tensor, "m l"] | None = None
    ) -> "Window":
        """The pairs of lines of `length` sites, all or some present, under tables of so many rows, an odd number."""
        radius, dense = rows // 2, rows >= length
        site = torch.arange(length, device=device)[:, None]
        offset = torch.arange(length, device=device) - site if dense else torch.arange(rows, device=device) - radius
        inside = (offset.abs() <= radius) & (offset + site >= 0) & (offset + site < length)
        complete = radius >= length - 1 and not causal and present is None
        allowed = inside & (offset <= 0) if causal else inside
        if present is not None and dense:
            allowed = allowed & present[:, None, None]
        elif present is not None:
            allowed = allowed & F.pad(present, (radius, radius)).unfold(-1, rows, 1)[:, None]
        return cls(radius, dense, complete, allowed)

    def encodings(self, table: Float[Tensor, "r t k"]) -> Float[Tensor, "l s t k"]:
        """Dense: the table's row for each pair of sites; any row for pairs that do not attend."""
        length = self.allowed.shape[-2]
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
    """The softmax over the pairs that attend; zero elsewhere."""
    if window.complete:
        return softmax(scores).to(scores.dtype)
    lowest = torch.finfo(scores.dtype).min / 2  # finite, so that a site without keys has a gradient
    return softmax(scores.masked_fill(~window.allowed, lowest)).to(scores.dtype) * window.allowed


def weighted_values(
    weights: Float[Tensor, "m n l w"], v: Float[Tensor, "m n l k"], value_table: Float[Tensor, "r t k"], window: Window
) -> tuple[Float[Tensor, "m n l k"], Float[Tensor, "m n l k"]]:
    """The two halves of equation 4's sum: of v_p, and of rv_{p-o}, each [M, N, L, W]."""
    if window.dense:
        rv = window.encodings(value_table).expand(-1, -1, v.shape[1], -1)
        return weights @ v, torch.einsum("mnop,opnk->mnok", weights, rv)
    of_content = torch.einsum("mnow,mnokw->mnok", weights, window.around(v))
    return of_content, torch.einsum("mnow,wnk->mnok", weights, value_table.expand(-1, v.shape[1], -1))
