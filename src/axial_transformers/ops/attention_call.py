"""The one value that every attention is: what attends to what, checked once and normalised.

Functions build it from arguments, layers from their projections. `ops.backends` has what computes it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops.argument_checks import check_tensors, data_axis
from axial_transformers.ops.positions import rotate

Packing = tuple[int, int, int, int]
"""Heads, and the widths of queries, keys and values, in one tensor."""
Tables = tuple[Float[Tensor, "r t k"], Float[Tensor, "r t k"], Float[Tensor, "r t w"]]
"""Encodings of the offsets -R..R for queries, keys and values: [2R + 1, heads or 1, head_dim]."""

SHORTEST_BLOCK = 16
"""Fewer queries do not fill vector registers."""


class Slower(str):
    """A reason against a backend that could run: another one is faster."""

    __slots__ = ()


class AttentionCall(NamedTuple):
    """Attention along one axis of a grid."""

    q: Float[Tensor, "b *a n k"]
    k: Float[Tensor, "b *a h k"]
    """May have fewer heads than q."""
    v: Float[Tensor, "b *a h w"]
    axis: int
    """1..d."""
    causal: bool = False
    key_mask: Bool[Tensor, " b *a"] | None = None
    """True where a position is present."""
    bias: Float[Tensor, "..."] | None = None
    """[B, *A without axis, heads, L, L or window]; any size but a window may be 1."""
    window: int | None = None
    """Odd; None for the whole line."""
    dilation: int = 1
    """Above 1 in exported graphs only, for lines of any length."""
    dropout: float = 0.0
    qkv: Float[Tensor, "b *a e"] | None = None
    """The tensor whose parts q, k and v are, if there is one."""
    packing: Packing | None = None
    rotations: Float[Tensor, "l k"] | None = None
    """Table that q and k have yet to be rotated by."""
    tables: Tables | None = None
    """With them, the call is equation 4 of Axial-DeepLab."""
    scale: float = 1.0
    """Factor of the scores of equation 4; elsewhere it is 1 / sqrt(K)."""
    full: bool = False
    """All positions are one line, [B, L, heads, K]; keys may be those of another grid."""
    length: int | None = None
    """Length before a dilation split `axis` into two."""

    @property
    def any_length(self) -> bool:
        """Whether an exported graph must hold for lines of any length."""
        return isinstance(self.q.shape[self.axis], torch.SymInt) and torch.compiler.is_exporting()

    @property
    def block(self) -> tuple[int, int] | None:
        """Queries of a block, and keys: the block itself and the window around it. None for whole lines."""
        if self.window is None or self.any_length:  # which cannot count blocks
            return None
        queries, radius = max(self.window, SHORTEST_BLOCK), self.window // 2
        return queries, radius + queries + (0 if self.causal else radius)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Queries, keys and values as they lie in memory: one tensor, or three."""
        return (self.q, self.k, self.v) if self.qkv is None else (self.qkv,)

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, rotated, with as many heads of each."""
        q, k, v = self.q, self.k, self.v
        if self.rotations is not None:
            q, k = rotate(q, self.rotations, self.axis), rotate(k, self.rotations, self.axis)
        heads = q.shape[-2]
        if k.shape[-2] != heads:
            k = k.repeat_interleave(heads // k.shape[-2], dim=-2)
        if v.shape[-2] != heads:
            v = v.repeat_interleave(heads // v.shape[-2], dim=-2)
        return q, k, v

    @property
    def is_plain(self) -> bool:
        """Whether all keys of a line count alike, or all earlier ones."""
        options = self.key_mask is not None or self.bias is not None or self.window is not None
        return not (options or self.dropout or self.dilation > 1)


def normalised(call: AttentionCall, attn_bias: Float[Tensor, "..."] | None) -> AttentionCall:
    """Return a call with its bias, and without a dilation or a window where lines do not need one."""
    if attn_bias is not None:
        call = call._replace(bias=_bias_of_lines(attn_bias, call))
    if (call.dilation == 1 and call.window is None) or call.any_length:
        return call
    if call.dilation > 1:
        call = _dilated(call)
    wide = call.bias is None and call.window is not None and call.window // 2 >= call.q.shape[call.axis] - 1
    return call._replace(window=None) if wide else call


def packed_call(  # noqa: PLR0913
    qkv: Float[Tensor, "b *a e"],
    packing: Packing,
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    rotations: Float[Tensor, "l k"] | None = None,
    tables: Tables | None = None,
    scale: float = 1.0,
) -> AttentionCall:
    """Return the call of one tensor: queries, then keys, then values, head after head."""
    axis = data_axis(qkv.unsqueeze(-1), axis)
    check_tensors(key_mask, attn_bias, rotations, *(tables or ()), k=qkv.unsqueeze(-1))
    q, k, v = unpacked(qkv, packing)
    call = AttentionCall(q, k, v, axis, causal, key_mask, None, None, 1, 0.0, qkv, packing, rotations, tables, scale)
    return normalised(call, attn_bias)


def unpacked(qkv: Float[Tensor, "b *a e"], packing: Packing) -> tuple[Tensor, ...]:
    """Return queries, keys and values."""
    heads, *widths = packing
    return tuple(part.unflatten(-1, (heads, -1)) for part in qkv.split(widths, dim=-1))


def _bias_of_lines(bias: Tensor, call: AttentionCall) -> Tensor:
    q, axis, window = call.q, call.axis, call.window
    if not bias.is_floating_point():
        raise ValueError(f"attn_bias is added to the scores, and must be of a floating-point dtype, not {bias.dtype}")
    if window is None and call.dilation > 1:
        raise ValueError("attn_bias with a dilation needs a window: its columns are then the positions of the window")
    length, others = q.shape[axis], [size for dim, size in enumerate(q.shape[:-2]) if dim not in (0, axis)]
    keys = length if window is None else window
    full = [q.shape[0], *others, q.shape[-2], length, keys]
    of_lines = bias[:, *[None] * len(others)] if bias.ndim == 4 else bias
    if of_lines.ndim != len(full) or any(a not in (1, b) for a, b in zip(of_lines.shape, full)):
        by_line = f", or {full} for one a line" if others else ""
        raise ValueError(
            f"attn_bias must be {[full[0], *full[-3:]]}{by_line}, with sizes of 1 where it is the same, not "
            f"{list(bias.shape)}"
        )
    return of_lines if window is None else of_lines.expand(*of_lines.shape[:-1], window)


def _dilated(call: AttentionCall) -> AttentionCall:
    """Split the axis: every dilation-th position is on a line of its own."""
    axis, length, key_mask, bias = call.axis, call.q.shape[call.axis], call.key_mask, call.bias
    dilation = min(call.dilation, max(1, length))
    if dilation == 1:
        return call._replace(dilation=1)
    beyond = -length % dilation
    if key_mask is None and (isinstance(beyond, torch.SymInt) or beyond):
        key_mask = torch.ones(call.q.shape[:-2], dtype=torch.bool, device=call.q.device)

    def apart(x: Tensor, dim: int) -> Tensor:
        x = F.pad(x, [0, 0] * (x.ndim - 1 - dim) + [0, beyond])
        return x.unflatten(dim, (-1, dilation))

    if bias is not None:
        rows = bias.unsqueeze(-2) if bias.shape[-2] == 1 else apart(bias, bias.ndim - 2)
        bias = rows.movedim(-2, axis)
    q, k, v = (apart(x, axis) for x in (call.q, call.k, call.v))
    key_mask = None if key_mask is None else apart(key_mask, axis)
    return call._replace(q=q, k=k, v=v, key_mask=key_mask, bias=bias, dilation=1, length=length)
