"""An attention as one value, `AttentionCall`: its tensors and options, in one form for all backends.

Functions such as `axial_attention` check their arguments and build a call. Layers build it from the output of one
linear layer, by `packed_call`. `ops.backends.attend` brings it into its form (`normalised`) and computes it.
"""

from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.argument_checks import check_tensors, fits
from axial_transformers.ops.positions import rotate

Packing = tuple[int, int, int, int]
"""Number of heads, and how many of a tensor's last numbers are queries, keys and values: all heads together."""
Tables = tuple[Float[Tensor, "r t k"], Float[Tensor, "r t k"], Float[Tensor, "r t w"]]
"""Encodings of the offsets -R..R for queries, keys and values: [2R + 1, heads or 1, head_dim]."""

SHORTEST_BLOCK = 16
"""Fewer queries do not fill vector registers."""


class Norms(Protocol):
    """Batch normalisations of equation 4, as the authors' code has them."""

    def fold(self) -> bool:
        """Return True if `folded` computes what `scores` and `output` do."""

    def folded(self, qkv: Tensor, tables: Tables) -> tuple[Tensor, Tables, Tensor]:
        """Return a packed tensor and tables that need no norms, and what is to add to each position: [heads w]."""

    def scores(self, terms: tuple[Tensor, Tensor, Tensor], allowed: Tensor | None) -> Tensor:
        """Return the sum of the normalised terms [M, heads, L, W], over allowed pairs; None: over all."""

    def output(self, content: Tensor, position: Tensor) -> Tensor:
        """Return the sum of the normalised sums of values and of their encodings: [M, heads, L, w]."""


class AttentionCall(NamedTuple):
    """Attention along one axis of a grid, q [B, *A, heads, K] -> [B, *A, heads, value_dim]; see `axial_attention`.

    In shapes, n and h are the heads of q and of k or v, k is K (head_dim), w is value_dim, l is L, the length of lines.
    """

    q: Float[Tensor, "b *a n k"]
    k: Float[Tensor, "b *a h k"]
    """May have fewer heads than q: a divisor of their number. So may v."""
    v: Float[Tensor, "b *a h w"]
    axis: int
    """Dimension of q to attend along, 1..d."""
    causal: bool = False
    key_mask: Bool[Tensor, " b *a"] | None = None
    """True where a position is present."""
    bias: Float[Tensor, "..."] | None = None
    """Added to the scores: [B, *A without axis, heads, L, L or window]; any size but a window may be 1."""
    window: int | None = None
    """Window size, odd; None for the whole line."""
    dilation: int = 1
    """After `normalised`, above 1 only in exported graphs for lines of any length."""
    dropout: float = 0.0
    qkv: Float[Tensor, "b *a e"] | None = None
    """The tensor that q, k and v are views of, if there is one, see `packed_call`."""
    packing: Packing | None = None
    rotations: Float[Tensor, "l k"] | None = None
    """Table of rotary positions. q and k are not rotated yet; `operands` are."""
    tables: Tables | None = None
    """With them, the call is equation 4 of Axial-DeepLab."""
    scale: float = 1.0
    """Factor of the scores of equation 4. Without tables it has no effect: scores are divided by sqrt(K)."""
    norms: Norms | None = None
    """With tables and `packing`: normalisations of the terms of the scores, and of both sums."""
    full: bool = False
    """True if all positions of a grid are one line, q [B, L, heads, K]. Keys may be those of another grid."""
    length: int | None = None
    """If a dilation has split `axis` into two, [.., ceil(length / dilation), dilation, ..]: the length before."""

    @property
    def others(self) -> list[int]:
        """Sizes of the axes of an example, without `axis`."""
        return [size for dim, size in enumerate(self.q.shape[:-2]) if dim not in (0, self.axis)]

    @property
    def any_length(self) -> bool:
        """True if an exported graph must hold for lines of any length."""
        return isinstance(self.q.shape[self.axis], torch.SymInt) and torch.compiler.is_exporting()

    @property
    def block(self) -> tuple[int, int, int] | None:
        """With a window, the queries of a block, and the further keys before and after them. None: whole lines."""
        if not self.window or self.any_length:  # which cannot count blocks
            return None
        radius = self.window // 2
        return max(self.window, SHORTEST_BLOCK), radius, 0 if self.causal else radius

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Queries, keys and values as they lie in memory: one tensor, or three."""
        return (self.q, self.k, self.v) if self.qkv is None else (self.qkv,)

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, rotated, with the same number of heads."""
        q = self.q
        k = self.k
        v = self.v
        if self.rotations is not None:
            q = rotate(q, self.rotations, self.axis)
            k = rotate(k, self.rotations, self.axis)
        heads = q.shape[-2]
        k, v = (x if x.shape[-2] == heads else x.repeat_interleave(heads // x.shape[-2], dim=-2) for x in (k, v))
        return q, k, v


def without_absent(call: AttentionCall) -> AttentionCall:
    """Set keys and values of absent positions to zero, and what is not finite in their queries."""
    if call.key_mask is None:
        return call
    absent = ~call.key_mask[..., None, None]
    k = call.k.masked_fill(absent, 0)
    v = call.v.masked_fill(absent, 0)
    q = call.q
    if not call.full:
        q = finite_where_absent(q.flatten(-2), call.key_mask).view(q.shape)
    return call._replace(q=q, k=k, v=v, qkv=None, packing=None)


def finite_where_absent(x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None) -> Float[Tensor, "b *a d"]:
    """Return x, with zeros for NaN and infinities at absent positions.

    Times a weight or a gradient of zero, they would be NaN elsewhere.
    """
    if key_mask is None:
        return x
    check_tensors(key_mask, k=x.unsqueeze(-1))
    return x.masked_fill(~(key_mask.unsqueeze(-1) | x.isfinite()), 0)


def normalised(call: AttentionCall) -> AttentionCall:
    """Lay the bias out by line, split the axis of a dilation (`_dilated`), and drop a window that covers the line."""
    if call.bias is not None:
        call = call._replace(bias=_lay_out_bias(call.bias, call))
    if (call.dilation == 1 and not call.window) or call.any_length:
        return call
    if call.dilation > 1:
        call = _dilated(call)
    wide = call.bias is None and call.window is not None and call.window // 2 >= call.q.shape[call.axis] - 1
    return call._replace(window=None) if wide else call


def packed_call(
    qkv: Float[Tensor, "b *a e"],
    packing: Packing,
    axis: int,
    **options: Any,
) -> AttentionCall:
    """Return the call of one tensor: queries, then keys, then values, head after head.

    Args:
        qkv: [B, *A, sum of the widths], the output of a linear layer.
        packing: heads, and the widths of queries, keys and values.
        axis: of the grid, 1..d.
        options: fields of `AttentionCall`.
    """
    q, k, v = unpacked(qkv, packing)
    call = AttentionCall(q, k, v, axis, qkv=qkv, packing=packing, **options)
    check_tensors(call.key_mask, call.bias, call.rotations, *(call.tables or ()), k=k)
    return call


def unpacked(qkv: Float[Tensor, "b *a e"], packing: Packing) -> tuple[Tensor, ...]:
    """Return queries, keys and values."""
    heads, *widths = packing
    positions = qkv.shape[:-1]
    if len(set(widths)) == 1:  # two steps instead of four
        return qkv.view(*positions, 3, heads, widths[0] // heads).unbind(-3)
    views = []
    for x, width in zip(qkv.split_with_sizes(widths, dim=-1), widths):
        views.append(x.view(*positions, heads, width // heads))  # `unflatten` takes three times as long
    return tuple(views)


def _lay_out_bias(bias: Tensor, call: AttentionCall) -> Tensor:
    """Return a bias [B, *others, heads, L, L or window], where any size but a window may be 1."""
    window = call.window
    others = call.others
    if not bias.is_floating_point():
        raise ValueError(f"attn_bias is added to the scores, and must be of a floating-point dtype, not {bias.dtype}")
    if not window and call.dilation > 1:
        raise ValueError("attn_bias with a dilation needs a window: its columns are then the positions of the window")
    length = call.q.shape[call.axis]
    shape = [call.q.shape[0], call.q.shape[-2], length, window or length]
    by_line = [shape[0], *others, *shape[1:]]
    laid_out = bias[:, *[None] * len(others)] if bias.ndim == 4 else bias
    if not fits(laid_out, by_line):
        or_by_line = f", or {by_line} for one a line" if others else ""
        raise ValueError(
            f"attn_bias must be {shape}{or_by_line}, with sizes of 1 where it is the same, not {list(bias.shape)}"
        )
    return laid_out.expand(*laid_out.shape[:-1], window) if window else laid_out


def _dilated(call: AttentionCall) -> AttentionCall:
    """Split the axis [L] into [ceil(L / dilation), dilation]: positions that attend to each other are one line.

    Positions beyond the end are padded, and masked as keys.
    """
    axis = call.axis
    length = call.q.shape[axis]
    dilation = min(call.dilation, max(1, length))
    if dilation == 1:
        return call._replace(dilation=1)
    beyond = -length % dilation

    def split(x: Tensor, dim: int = axis) -> Tensor:
        after = [0, 0] * (x.ndim - 1 - dim)
        return F.pad(x, [*after, 0, beyond]).unflatten(dim, (-1, dilation))

    key_mask = call.key_mask
    if key_mask is None and (isinstance(beyond, torch.SymInt) or beyond):
        key_mask = torch.ones(call.q.shape[:-2], dtype=torch.bool, device=call.q.device)
    if key_mask is not None:
        key_mask = split(key_mask)
    bias = call.bias
    if bias is not None:
        rows = bias.unsqueeze(-2) if bias.shape[-2] == 1 else split(bias, bias.ndim - 2)
        bias = rows.movedim(-2, axis)
    return call._replace(
        q=split(call.q),
        k=split(call.k),
        v=split(call.v),
        key_mask=key_mask,
        bias=bias,
        dilation=1,
        length=length,
    )
