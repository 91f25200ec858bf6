"""Kernels of `triton_attention`, in Triton: softmax(scale * q k^T + bias) v along lines of at most 256 positions.

A program has all keys of a line and head. So the softmax of a query takes one pass, and backward kernels compute it
again instead of reading sums. The gradient of a bias is a sum over all that share it: a program adds up some of them in
a fixed order, so the sum has the same bits each time.

Functions under `triton.jit` are compiled for the GPU. In them a place is a triple: example, line and head.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 512
"""About the programs that fill a GPU."""
SHORTEST = 16
"""Least side of a product of matrices."""
ABSENT = tl.constexpr(-1e38)


class Rows(NamedTuple):
    """Numbers [B, lines, L, heads, width], their strides but for the last, which is 1, and their width."""

    numbers: Any
    example: Any
    line: Any
    position: Any
    head: Any
    width: Any


class Bias(NamedTuple):
    """Numbers [B, lines, heads, L, L or window] and their strides, which are 0 where all are the same."""

    numbers: Any
    example: Any
    line: Any
    head: Any
    row: Any
    column: Any


class Attention(NamedTuple):
    """What attends to what: queries, keys, values, which positions are present [B, lines, L], and the bias."""

    q: Any
    k: Any
    v: Any
    present: Any
    bias: Any


class Sizes(NamedTuple):
    """Numbers that a kernel reads when it starts."""

    lines: Any
    """Of an example."""
    heads: Any
    length: Any
    scale: Any
    lowest: Any
    """A bias of at most this excludes a key."""


class Constants(NamedTuple):
    """Numbers that a kernel is compiled for."""

    causal: Any
    window: Any
    """0: none."""
    queries: Any
    """How many queries a program takes at a time."""
    keys: Any
    """Length and widths, rounded up to powers of two."""
    width: Any
    value_width: Any


class Lines:
    """An attention along lines, which kernels compute.

    Args:
        q, k, v: [B, lines, L, heads, width].
        present: bool [B, lines, L].
        bias: [#B, #lines, #heads, #L, #L or window]; sizes marked by # may be 1.
        window: 0 for none.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor | None, bias: Tensor | None, causal: bool, window: int
    ) -> None:
        self.whole = examples, lines, length, heads, width = q.shape
        self.device = q.device
        self.bias = bias
        keys, columns, value_columns = (max(SHORTEST, triton.next_power_of_2(n)) for n in (length, width, v.shape[-1]))
        queries = keys if keys <= 64 else 32  # more would not fit into registers
        self.programs = examples * lines * heads
        self.tiles = triton.cdiv(length, queries)
        self.warps = 4 if keys <= 64 else 8
        added = (
            None
            if bias is None
            else Bias(bias, *bias.expand(examples, lines, heads, length, window or length).stride())
        )
        self.given = (
            Attention(rows_of(q), rows_of(k), rows_of(v), present, added),
            Sizes(lines, heads, length, width**-0.5, torch.finfo(q.dtype).min / 2),
            Constants(causal, window, queries, keys, columns, value_columns),
        )

    def write_forward(self, out: Tensor) -> None:
        """Write the result, of the shape of v."""
        _forward[self.programs, self.tiles](rows_of(out), *self.given, num_warps=self.warps)

    def write_backward(self, grad: Tensor, d_q: Tensor, d_k: Tensor, d_v: Tensor) -> None:
        """Write the gradients of q, k and v for that of the result."""
        _backward[self.programs,](*map(rows_of, (grad, d_q, d_k, d_v)), *self.given, num_warps=self.warps)

    def bias_gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient of the bias for that of the result."""
        examples, lines, length, heads, _ = self.whole
        bias = self.bias
        assert bias is not None
        groups = bias.shape[:3]
        sharing = examples // groups[0], lines // groups[1], heads // groups[2]
        together = self.programs // groups.numel()
        parts = min(together, max(1, PROGRAMS // (groups.numel() * self.tiles)))
        count = triton.cdiv(together, parts)
        sums = torch.zeros(parts, *groups, length, self.given[2].window or length, device=self.device)
        grid = groups.numel(), self.tiles, parts
        _bias_gradient[grid](
            rows_of(grad), sums, tuple(groups), sharing, together, count, *self.given, num_warps=self.warps
        )
        return sums.sum(0).sum_to_size(bias.shape).to(bias.dtype)


def rows_of(x: Tensor) -> Rows:
    """Return a tensor as kernels read it."""
    return Rows._make((x, *x.stride()[:-1], x.shape[-1]))


@triton.jit
def _place(number, lines, heads):
    number = tl.full([], 0, tl.int64) + number
    return number // heads // lines, number // heads % lines, number % heads


@triton.jit
def _at(x, place, positions, columns):
    """Return where the numbers of positions are."""
    start = x.numbers + place[0] * x.example + place[1] * x.line + place[2] * x.head
    return start + positions[:, None] * x.position + columns[None, :]


@triton.jit
def _load(x, place, positions, inside, columns):
    """Return the numbers of positions, and zeros outside."""
    mask = inside[:, None] & (columns < x.width)[None, :]
    return tl.load(_at(x, place, positions, columns), mask=mask, other=0.0)


@triton.jit
def _store(x, place, positions, inside, columns, numbers):
    mask = inside[:, None] & (columns < x.width)[None, :]
    tl.store(_at(x, place, positions, columns), numbers.to(x.numbers.dtype.element_ty), mask=mask)


@triton.jit
def _seen(of, place, positions, sizes):
    """Return which positions are on the line and present."""
    seen = positions < sizes.length
    if of.present is not None:  # no early return: Triton would compile what follows it
        line = place[0] * sizes.lines + place[1]
        seen = tl.load(of.present + line * sizes.length + positions, mask=seen, other=0) != 0
    return seen


@triton.jit
def _queries(of, place, rows, sizes, constants: tl.constexpr):
    """Return queries, and which of their numbers count: not those that are neither present nor finite."""
    numbers = _load(of.q, place, rows, rows < sizes.length, tl.arange(0, constants.width))
    counts = tl.abs(numbers.to(tl.float32)) < float("inf")
    counts = counts | _seen(of, place, rows, sizes)[:, None]
    return tl.where(counts, numbers, 0.0), counts


@triton.jit
def _keys(of, place, keys, sizes, constants: tl.constexpr):
    """Return which keys are seen, and keys and values; zeros for the others."""
    seen = _seen(of, place, keys, sizes)
    k = _load(of.k, place, keys, seen, tl.arange(0, constants.width))
    return seen, k, _load(of.v, place, keys, seen, tl.arange(0, constants.value_width))


@triton.jit
def _columns(rows, keys, constants: tl.constexpr):
    """Return the column of the bias for each pair of a query and a key."""
    columns = keys[None, :] + 0 * rows[:, None]
    if constants.window:
        columns = columns - rows[:, None] + constants.window // 2
    return columns


@triton.jit
def _weights(of, place, rows, keys, q, k, seen, sizes, constants: tl.constexpr):  # noqa: PLR0913
    """Return the softmax of each query: zeros without any key."""
    scores = tl.dot(q, tl.trans(k)) * sizes.scale
    distance = keys[None, :] - rows[:, None]
    allowed = seen[None, :] & (rows < sizes.length)[:, None]
    if constants.causal:
        allowed = allowed & (distance <= 0)
    if constants.window:
        allowed = allowed & (tl.abs(distance) <= constants.window // 2)
    if of.bias is not None:
        start = of.bias.numbers + place[0] * of.bias.example + place[1] * of.bias.line + place[2] * of.bias.head
        at = start + rows[:, None] * of.bias.row + _columns(rows, keys, constants) * of.bias.column
        bias = tl.load(at, mask=allowed, other=0.0).to(tl.float32)
        allowed = allowed & (bias > sizes.lowest)
        scores = scores + bias
    scores = tl.where(allowed, scores, ABSENT)
    exps = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(exps, 1)
    return exps / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def _score_gradients(weights, grad, v, constants: tl.constexpr):
    """Return the gradients of the scores, which are also those of the bias."""
    d_weights = tl.dot(grad, tl.trans(v))
    return weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None])


@triton.jit
def _forward(out, of, sizes, constants: tl.constexpr):
    """Write the results of some queries of a line and head."""
    place = _place(tl.program_id(0), sizes.lines, sizes.heads)
    keys = tl.arange(0, constants.keys)
    rows = tl.program_id(1) * constants.queries + tl.arange(0, constants.queries)
    seen, k, v = _keys(of, place, keys, sizes, constants)
    q, _ = _queries(of, place, rows, sizes, constants)
    weights = _weights(of, place, rows, keys, q, k, seen, sizes, constants).to(v.dtype)
    result = tl.dot(weights, v)
    _store(out, place, rows, rows < sizes.length, tl.arange(0, constants.value_width), result)


@triton.jit
def _backward(grad, d_q, d_k, d_v, of, sizes, constants: tl.constexpr):
    """Write the gradients of queries, keys and values of a line and head."""
    place = _place(tl.program_id(0), sizes.lines, sizes.heads)
    keys = tl.arange(0, constants.keys)
    columns = tl.arange(0, constants.width)
    value_columns = tl.arange(0, constants.value_width)
    seen, k, v = _keys(of, place, keys, sizes, constants)
    k_sums = tl.full([constants.keys, constants.width], 0.0, tl.float32)
    v_sums = tl.full([constants.keys, constants.value_width], 0.0, tl.float32)
    for first in range(0, sizes.length, constants.queries):
        rows = first + tl.arange(0, constants.queries)
        inside = rows < sizes.length
        q, counts = _queries(of, place, rows, sizes, constants)
        grad_rows = _load(grad, place, rows, inside, value_columns)
        weights = _weights(of, place, rows, keys, q, k, seen, sizes, constants)
        d_scores = _score_gradients(weights, grad_rows, v, constants)
        v_sums += tl.dot(tl.trans(weights).to(v.dtype), grad_rows)
        k_sums += tl.dot(tl.trans(d_scores).to(q.dtype), q)
        q_rows = tl.dot(d_scores.to(k.dtype), k) * sizes.scale
        _store(d_q, place, rows, inside, columns, tl.where(counts, q_rows, 0.0))
    inside = keys < sizes.length
    _store(d_k, place, keys, inside, columns, k_sums * sizes.scale)
    _store(d_v, place, keys, inside, value_columns, v_sums)


@triton.jit
def _bias_gradient(grad, sums, groups, sharing, together, count, of, sizes, constants: tl.constexpr):  # noqa: PLR0913
    """Write the gradient of some rows of a bias, summed over `count` of the `together` places that share it.

    Args:
        groups: examples, lines and heads of the bias.
        sharing: examples, lines and heads that share one.
    """
    first = _place(tl.program_id(0), groups[1], groups[2])
    keys = tl.arange(0, constants.keys)
    rows = tl.program_id(1) * constants.queries + tl.arange(0, constants.queries)
    inside = rows < sizes.length
    total = tl.full([constants.queries, constants.keys], 0.0, tl.float32)
    start = tl.program_id(2) * count
    for number in range(start, tl.minimum(start + count, together)):
        other = _place(number, sharing[1], sharing[2])
        place = first[0] + other[0], first[1] + other[1], first[2] + other[2]
        seen, k, v = _keys(of, place, keys, sizes, constants)
        q, _ = _queries(of, place, rows, sizes, constants)
        grad_rows = _load(grad, place, rows, inside, tl.arange(0, constants.value_width))
        weights = _weights(of, place, rows, keys, q, k, seen, sizes, constants)
        total += _score_gradients(weights, grad_rows, v, constants)
    columns = _columns(rows, keys, constants)
    width = sizes.length
    if constants.window:
        width = constants.window
    group = tl.program_id(2).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    at = sums + (group * sizes.length + rows[:, None]) * width + columns
    tl.store(at, total, mask=inside[:, None] & (keys < sizes.length)[None, :] & (columns >= 0) & (columns < width))
