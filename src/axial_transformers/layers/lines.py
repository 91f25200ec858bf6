"""Self-attention along one axis with the options that science builds on: windows, gates, positions, tied rows.

Along a causal axis, the output can also be computed one slab at a time, with a cache of keys and values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.ops.argument_checks import check_options, input_axis
from axial_transformers.ops.axial_attention import (
    attend_step,
    axial_attention,
    axial_self_attention,
    by_head_pays,
    own_places,
    project_by_head,
    tied_axial_attention,
)
from axial_transformers.ops.positions import relative_bias, rotary, rotate, rotation_table


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options of `LineAttention`; by default none is taken.

    Raises:
        ValueError: an option out of its range, or a dilation with relative positions but without a span.
    """

    kv_heads: int | None = None
    """Heads of keys and values, a divisor of the heads of queries, which share them (grouped queries)."""
    span: int | None = None
    """Odd number of places around a site that it attends to; the whole line if not given."""
    dilation: int = 1
    """A site attends to every dilation-th place of its line only."""
    gate: bool = False
    """Whether heads are multiplied by the sigmoid of a linear layer of the input, initially by sigmoid(1)."""
    qk_norm: bool = False
    """Whether queries and keys are divided by their root mean square, head by head, and multiplied by learned gains."""
    rotary: float | None = None
    """The base of rotary positions, 10000 usually; no rotary positions if not given."""
    relative: int | None = None
    """The largest offset R with a learned bias of its own; larger ones share that of R. No bias if not given."""
    dropout: float = 0.0
    """The probability with which an attention weight is zero in training."""

    def __post_init__(self) -> None:
        check_options(self.span, self.dilation, self.dropout)
        if self.kv_heads is not None and self.kv_heads < 1:
            raise ValueError(f"kv_heads must be at least 1, not {self.kv_heads}")
        if self.rotary is not None and not 0 < self.rotary < inf:
            raise ValueError(f"rotary must be a finite base above 0, usually 10000, not {self.rotary}")
        if self.relative is not None and self.relative < 0:
            raise ValueError(f"relative must be the largest offset, at least 0, not {self.relative}")
        if self.relative is not None and self.span is None and self.dilation > 1:
            raise ValueError("relative positions with a dilation need a span: offsets are counted within the window")

    def seen(self, i: int) -> slice:
        """Return the places that a causal query at place i attends to, itself last."""
        reach = i if self.span is None else self.span // 2 * self.dilation
        return slice(max(i % self.dilation, i - reach), i + 1, self.dilation)


NO_OPTIONS = AttentionOptions()


class KeyValueCache(NamedTuple):
    """Keys and values of the slabs so far: [lines, heads, length, head width]; a slab has one site of each line."""

    keys: Tensor
    values: Tensor


class LineAttention(nn.Module):
    """Self-attention along one axis, with options: [B, *A, D] -> [B, *A, D].

    y_o = W (sigmoid(g_o) * sum_p softmax_p(q_o . k_p / sqrt(K) + bias) v_p) + b

    Without options, biases and projection, one head is softmax(Q K^T / sqrt(K)) V with Q, K, V = X Wq, X Wk, X Wv, and
    several are the concatenation of these. With the projection, they are the multi-head attention of Vaswani et al.
    2017, section 3.2.2.

    Args:
        dim: width D.
        heads: number of heads N of queries, a divisor of the widths below.
        axis: dimension of the input attended along: 1..d, or counted from the end, where -2 is the innermost axis.
            Counted from the end, it is the same in a whole tensor and in a slab of it.
        causal: whether a site attends only to itself and to earlier sites.
        options: see `AttentionOptions`.
        key_dim: width of queries, all heads together; D if not given.
        value_dim: width of the concatenated heads; D if not given.
        bias: whether the projections to queries, keys and values have biases; a gate always has.
        residual: whether the layer ends a residual branch: its output projection is then initialised to zero.
        project: whether a linear layer to width D follows; otherwise the output is the concatenated heads.
        out_bias: whether that layer has a bias.
        rotations: [L, K], see `ops.positions.rotation_table`, a constant that is stored with the weights: rotary
            positions by this table instead of `options.rotary`, on lines of at most L places.

    Raises:
        ValueError: widths that are no multiples of the heads, heads no multiple of `kv_heads`, or rotary positions
            given twice.
    """

    rotations: Tensor | None

    def __init__(  # noqa: PLR0913
        self,
        dim: int,
        heads: int,
        axis: int,
        causal: bool = False,
        options: AttentionOptions = NO_OPTIONS,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        residual: bool = False,
        project: bool = True,
        out_bias: bool = True,
        rotations: Float[Tensor, "l k"] | None = None,
    ):
        super().__init__()
        (key_dim, value_dim), kv_heads = widths(dim, heads, key_dim, value_dim), options.kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"kv_heads {kv_heads} must divide heads {heads}")
        if rotations is not None and options.rotary is not None:
            raise ValueError("rotary positions are given twice: give rotations or options with rotary, not both")
        self.heads, self.kv_heads, self.axis, self.causal, self.options = heads, kv_heads, axis, causal, options
        self.widths = key_dim, key_dim // heads * kv_heads, value_dim // heads * kv_heads
        packed = AttentionOptions(gate=options.gate, relative=options.relative, rotary=options.rotary)
        self.packed = options == packed
        self.qkv = Dense(dim, sum(self.widths), bias=bias)
        self.out = Dense(value_dim, dim, residual, out_bias) if project else nn.Identity()
        if options.gate:
            self.gate = Dense(dim, value_dim, residual=True)
            nn.init.ones_(self.gate.bias)
        if options.qk_norm:
            self.query_norm, self.key_norm = nn.RMSNorm(key_dim // heads), nn.RMSNorm(key_dim // heads)
        if options.relative is not None:
            self.table = nn.Parameter(torch.zeros(heads, 2 * options.relative + 1))
        self.register_buffer("rotations", rotations)

    def forward(
        self,
        x: Float[Tensor, "b *a d"],
        key_mask: Bool[Tensor, " b *a"] | None = None,
        attn_bias: Float[Tensor, "..."] | None = None,
        coordinates: Num[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D].

        Args:
            x: [B, *A, D].
            key_mask: [B, *A], False at sites not attended to.
            attn_bias: added to the scores; see `axial_attention`.
            coordinates: of rotary positions, [L] or [B or 1, *A]; see `ops.positions.rotary`.

        Raises:
            ValueError: coordinates without `options.rotary`, or what `axial_attention` refuses.
        """
        axis = input_axis(x, self.axis, self.qkv.in_features)
        bias = self._bias(x, attn_bias, axis)
        if self.packed and by_head_pays(x, axis, key_mask):
            q, k, v = project_by_head(x, self.qkv.weight, self.qkv.bias, self.heads, self.widths)
            out = self._attend(*self._turned(q, k, axis, coordinates), v, axis, key_mask, bias)
        elif self.packed and coordinates is None and (self.options.rotary is None or x.device.type == "cpu"):
            packed = self.qkv(x), self.heads, self.widths
            out = axial_self_attention(*packed, axis, self.causal, key_mask, bias, self._rotations(x, axis))
        else:
            q, k, v = self._project(x)
            out = self._attend(*self._turned(q, k, axis, coordinates), v, axis, key_mask, bias)
        return self._gated(x, out.flatten(-2))

    def weights(
        self,
        x: Float[Tensor, "b *a d"],
        key_mask: Bool[Tensor, " b *a"] | None = None,
        attn_bias: Float[Tensor, "..."] | None = None,
        coordinates: Num[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b *a n l"]:
        """The attention weights of each site over its line, as in `forward`: [B, *A, heads, L]."""
        axis = input_axis(x, self.axis, self.qkv.in_features)
        q, k = self._turned(*self._project(x)[:2], axis, coordinates)
        return self._attend(q, k, own_places(k, axis), axis, key_mask, self._bias(x, attn_bias, axis))

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> KeyValueCache:
        """Return an empty cache for `length` steps along a causal axis, each a slab of the given shape.

        Raises:
            ValueError: the layer is not causal.
        """
        if not self.causal:
            raise ValueError("only causal attention has steps: build the layer with causal=True")
        lines, weight = (batch * prod(slab), self.kv_heads, length), self.qkv.weight
        single = weight.dtype == torch.float32 and torch.is_autocast_enabled(weight.device.type)
        dtype = torch.get_autocast_dtype(weight.device.type) if single else weight.dtype  # of what the projection gives
        keys, values = (weight.new_empty(*lines, width // self.kv_heads, dtype=dtype) for width in self.widths[1:])
        return KeyValueCache(keys, values)

    def step(self, x: Float[Tensor, "b *s d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b *s d"]:
        """The output at position `i` of the axis for its slab x [B, *S, D]; adds the keys and values to the cache.

        No weights are dropped, in training neither. Rotary positions are those of indices.
        """
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        if self.rotations is not None or self.options.rotary is not None:
            q, k = (part[:, 0] for part in self._turned(q[:, None], k[:, None], axis=1, place=i))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        seen, bias = self.options.seen(i), None
        if self.options.relative is not None:
            radius, back = self.options.relative, torch.arange(len(range(i + 1)[seen]), device=x.device)
            bias = self.table[:, radius - back.flip(0).clamp(max=radius)]
        out = attend_step(q, cache.keys[:, :, seen], cache.values[:, :, seen], bias)
        return self._gated(x, out.reshape(*x.shape[:-1], out.shape[1:].numel()))

    def _gated(self, x: Tensor, heads: Tensor) -> Tensor:
        """The output for concatenated heads [.., value_dim] of the input x."""
        return self.out(torch.sigmoid(self.gate(x)) * heads if self.options.gate else heads)

    def _rotations(self, x: Tensor, axis: int) -> Tensor | None:
        """The table of rotary positions, of indices along the axis: the one that is stored, or a new one on a CPU."""
        if self.options.rotary is None:
            return self.rotations
        dtype = torch.promote_types(x.dtype, torch.float32)
        return rotation_table(x.shape[axis], self.widths[0] // self.heads, self.options.rotary, dtype)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, *A, heads or kv_heads, width], normalised."""
        q, k, v = self.qkv(x).split(self.widths, dim=-1)
        q = q.unflatten(-1, (self.heads, -1))
        k, v = k.unflatten(-1, (self.kv_heads, -1)), v.unflatten(-1, (self.kv_heads, -1))
        if self.options.qk_norm:
            q, k = _normalised(q, self.query_norm), _normalised(k, self.key_norm)
        return q, k, v

    def _turned(
        self, q: Tensor, k: Tensor, axis: int, coordinates: Tensor | None = None, place: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their coordinates, or by their indices from `place` on."""
        base, rotations = self.options.rotary, self.rotations
        if base is not None:
            if place:
                coordinates = torch.arange(place, place + q.shape[axis], device=q.device)
            return rotary(q, axis, coordinates, base), rotary(k, axis, coordinates, base)
        if coordinates is not None:
            raise ValueError("coordinates are of rotary positions: give options with rotary=10000.0")
        if rotations is not None:
            return rotate(q, rotations[place:], axis), rotate(k, rotations[place:], axis)
        return q, k

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, axis: int, key_mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        options = self.options
        window = {"span": options.span, "dilation": options.dilation, "dropout": options.dropout * self.training}
        return axial_attention(q, k, v, axis, self.causal, key_mask, bias, **window)  # type: ignore[arg-type]

    def _bias(self, x: Tensor, attn_bias: Tensor | None, axis: int) -> Tensor | None:
        """The bias given plus that of the offset, [1, heads, L, L], or [1, heads, 1, span] of windows."""
        if self.options.relative is None:
            return attn_bias
        radius, span = self.options.relative, self.options.span
        if span is None:
            own = relative_bias(self.table, x.shape[axis])
        else:
            offset = torch.arange(span, device=x.device) - span // 2
            own = self.table[None, :, None, offset.clamp(-radius, radius) + radius]
        if attn_bias is None:
            return own
        return attn_bias + own.view(1, *[1] * (attn_bias.ndim - 4), *own.shape[1:])

    def extra_repr(self) -> str:
        """The settings shown by print."""
        rotated = "" if self.rotations is None else ", rotated"
        return f"heads={self.heads}, axis={self.axis}, causal={self.causal}, options={self.options}{rotated}"


class TiedAxialAttention(LineAttention):
    """Self-attention along one axis whose weights all lines along another share (Rao et al. 2021, MSA Transformer).

    Args:
        dim, heads: see `LineAttention`.
        axis: dimension attended along; by default 2, the columns of an alignment [B, rows, columns, D].
        tied: dimension whose lines share their weights; by default 1, the rows of an alignment.
        options: gate, qk_norm, rotary and relative; the others do not exist here.

    Raises:
        ValueError: options that do not exist here.
    """

    def __init__(self, dim: int, heads: int, axis: int = 2, tied: int = 1, options: AttentionOptions = NO_OPTIONS):
        there = AttentionOptions(
            gate=options.gate, qk_norm=options.qk_norm, rotary=options.rotary, relative=options.relative
        )
        if options != there:
            raise ValueError(f"tied attention takes gate, qk_norm, rotary and relative only, not {options}")
        super().__init__(dim, heads, axis, options=options)
        self.tied, self.packed = tied, False

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, axis: int, key_mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        tied = input_axis(q.flatten(-2), self.tied, q.shape[-2:].numel())
        return tied_axial_attention(q, k, v, axis, tied, key_mask=key_mask, attn_bias=bias)


def _normalised(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """`norm` of x, in the dtype of x: under autocast that is not the one of the gains."""
    return nn.functional.rms_norm(x, norm.normalized_shape) * norm.weight.to(x.dtype)


def options_of(axis: int, options: AttentionOptions | Mapping[int, AttentionOptions]) -> AttentionOptions:
    """The options of one axis, where all share them or some have their own."""
    return options if isinstance(options, AttentionOptions) else options.get(axis, NO_OPTIONS)


def widths(
    dim: int, heads: int, key_dim: int | None, value_dim: int | None, default: tuple[str, int] | None = None
) -> tuple[int, int]:
    """The widths of keys and of values, all heads together; `dim` by default, or, of keys, a named default.

    Raises:
        ValueError: one is not a positive multiple of `heads`; it names the argument that was given.
    """
    named = ("dim", dim)
    of_keys = (default or named) if key_dim is None else ("key_dim", key_dim)
    of_values = named if value_dim is None else ("value_dim", value_dim)
    for name, width in (of_keys, of_values):
        if heads < 1 or width < 1 or width % heads:
            raise ValueError(f"heads {heads} must divide {name} {width}, and both be at least 1")
    return of_keys[1], of_values[1]
