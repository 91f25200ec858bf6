"""Position-sensitive attention along one axis: Wang et al. 2020 (Axial-DeepLab), equation 4.

y_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}), p in the window around o

A table has 2R + 1 rows, for the offsets p - o = -R .. R; 2L - 1 rows or more give global attention.
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
    """Return equation 4 along one axis, its scores times `scale`; memory is linear in the sites.

    Args:
        q, k, v: [B, *A, heads, head_dim].
        query_table, key_table, value_table: [2R + 1, heads or 1, head_dim].
        axis, causal, key_mask: see `axial_attention`.
        scale: default 1/sqrt(K); 1 is equation 4 as printed.
    """
    axis, tables = data_axis(q, axis), (query_table, key_table, value_table)
    check_tensors(key_mask, *tables, q=q, k=k, v=v)
    _check_fit(q, k, v, tables)
    if len({table.shape[1] for table in tables}) > 1:
        query_table, key_table, value_table = (table.expand(-1, q.shape[-2], -1) for table in tables)
        tables = query_table, key_table, value_table
    return _attend((q, k, v), None, tables, axis, causal, 1 / sqrt(q.shape[-1]) if scale is None else scale, key_mask)


def _check_fit(q: Tensor, k: Tensor, v: Tensor, tables: Tables) -> None:
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
    """Return `position_sensitive_attention` of one tensor."""
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
    """Return True if the compiled kernel takes this call."""
    return compiled_can_run(q.device, q.dtype, min(rows, q.shape[axis]), prod(q.shape[:-1])) is None


def _in_pieces(
    qkv: tuple[Tensor, Tensor, Tensor], present: Tensor | None, tables: Tables, causal: bool, scale: float
) -> Tensor:
    attend = partial(_attend_lines, tables=tables, causal=causal, scale=scale)
    if torch.compiler.is_compiling():  # it would unroll the loop
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
    """Return the rows of a table; raise ValueError if even."""
    rows = len(table)
    if rows % 2 == 0:
        raise ValueError(f"a table must have 2R + 1 rows, for the offsets -R..R; an even span {rows} has no centre")
    return rows


class Window(NamedTuple):
    """Pairs of sites that attend: column w of site o belongs to the key at o + w - before.

    Short lines are dense: a column for every key, `before` is o. Long lines are banded: a column for every offset,
    `before` is R.
    """

    radius: int
    dense: bool
    complete: bool
    allowed: Bool[Tensor, "*m l w"]

    @classmethod
    def of(
        cls, length: int, rows: int, causal: bool, device: torch.device, present: Bool[Tensor, "m l"] | None = None
    ) -> "Window":
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
        """Return a dense table's row for each pair."""
        length = self.allowed.shape[-2]
        site = torch.arange(length, device=table.device)
        offset = site - site[:, None]
        return table[offset.clamp(-self.radius, self.radius) + self.radius]

    def around(self, x: Float[Tensor, "m n l k"]) -> Float[Tensor, "m n l k w"]:
        """Return the banded window of each site."""
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
    of_query = torch.einsum("mnok,wnk->mnow", q, query_table.expand(-1, q.shape[1], -1))
    of_key = torch.einsum("mnpk,wnk->mnpw", k, key_table.expand(-1, q.shape[1], -1))
    # column w of site o belongs to key p = o + w - R: a diagonal
    of_key = window.around(of_key).diagonal(dim1=-2, dim2=-1)
    return torch.einsum("mnok,mnokw->mnow", q, window.around(k)), of_query, of_key


def softmax_over(scores: Float[Tensor, "m n l w"], window: Window) -> Float[Tensor, "m n l w"]:
    """Return the softmax over allowed pairs; zero elsewhere."""
    if window.complete:
        return softmax(scores).to(scores.dtype)
    lowest = torch.finfo(scores.dtype).min / 2  # finite: a site without keys then has a gradient
    return softmax(scores.masked_fill(~window.allowed, lowest)).to(scores.dtype) * window.allowed


def weighted_values(
    weights: Float[Tensor, "m n l w"], v: Float[Tensor, "m n l k"], value_table: Float[Tensor, "r t k"], window: Window
) -> tuple[Float[Tensor, "m n l k"], Float[Tensor, "m n l k"]]:
    """Return the sums of v_p and of rv_{p-o}."""
    if window.dense:
        rv = window.encodings(value_table).expand(-1, -1, v.shape[1], -1)
        return weights @ v, torch.einsum("mnop,opnk->mnok", weights, rv)
    of_content = torch.einsum("mnow,mnokw->mnok", weights, window.around(v))
    return of_content, torch.einsum("mnow,wnk->mnok", weights, value_table.expand(-1, v.shape[1], -1))
