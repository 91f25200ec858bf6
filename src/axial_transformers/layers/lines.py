"""Self-attention along one axis with options; causal ones also run slab by slab."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer, Num
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.ops.argument_checks import check_odd, check_tensors, input_axis
from axial_transformers.ops.attention_call import AttentionCall, finite_where_absent, packed_call
from axial_transformers.ops.axial_attention import attend_step, own_positions, tied_axial_attention
from axial_transformers.ops.backends import attend
from axial_transformers.ops.positions import relative_bias, rotary, rotate, rotation_table
from axial_transformers.storage.settings import COUNT, POSITIVE, SHARE, Bounds, check_settings


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options of `LineAttention`; all are off by default."""

    kv_heads: Annotated[int | None, COUNT] = None
    """Number of heads of keys and values (grouped-query attention), a divisor of queries'."""
    window: int | None = None
    """Window size, odd. Default: the whole line."""
    dilation: Annotated[int, COUNT] = 1
    """Attend only to every dilation-th position."""
    gate: bool = False
    """Multiply heads by the sigmoid of a linear layer, sigmoid(1) at first."""
    qk_norm: bool = False
    """Divide each head of queries and keys by its root mean square; multiply by learned gains."""
    rotary: Annotated[float | None, POSITIVE] = None
    """Base of rotary positions, usually 10000. Default: no rotary positions."""
    relative: Annotated[int | None, Bounds(least=0)] = None
    """Largest offset R with its own learned bias; larger ones share it. Default: no bias."""
    dropout: Annotated[float, SHARE] = 0.0
    """Probability that an attention weight is zero in training."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.window is not None:
            check_odd("window", self.window)
        if self.relative is not None and not self.window and self.dilation > 1:
            raise ValueError("relative positions with a dilation need a window: offsets are counted within the window")

    def seen(self, i: int) -> slice:
        """Return the positions that a causal query at i attends to, itself last."""
        reach = self.window // 2 * self.dilation if self.window else i
        return slice(max(i % self.dilation, i - reach), i + 1, self.dilation)


NO_OPTIONS = AttentionOptions()


Index = int | Integer[Tensor, "1"]
"""The number of a step; as a tensor, one CUDA graph serves all steps."""


class KeyValueCache(NamedTuple):
    """Keys and values of the slabs so far: [lines, heads, length, head width]."""

    keys: Tensor
    values: Tensor


class HeadNorm(nn.RMSNorm):
    """Root mean square normalisation in the dtype of the input, not of the gains."""

    def forward(self, x: Float[Tensor, "*s k"]) -> Float[Tensor, "*s k"]:
        return nn.functional.rms_norm(x, self.normalized_shape) * self.weight.to(x.dtype)


class LineAttention(nn.Module):
    """Self-attention along one axis, with options: [B, *A, D] -> [B, *A, D].

    y_o = W (sigmoid(g_o) * sum_p softmax_p(q_o . k_p / sqrt(K) + bias) v_p) + b

    Without options, this is the multi-head attention of Vaswani et al. 2017, section 3.2.2.

    Args:
        dim: width D.
        heads: number of heads N of queries, a divisor of the widths below.
        axis: dimension to attend along: 1..d, or from the end (-2 is the innermost), which a tensor and its slabs
            share.
        causal: attend only to the position itself and to earlier ones.
        options: see `AttentionOptions`.
        key_dim: width of queries, all heads together; default D.
        value_dim: width of the concatenated heads; default D.
        bias: the projections to queries, keys and values have biases; a gate always has one.
        residual: the layer ends a residual branch: its output projection starts at zero.
        project: a linear layer to width D follows the concatenated heads.
        out_bias: that layer has a bias.
        rotations: [L, K], rotary positions by a table stored with the weights, instead of `options.rotary`; see
            `ops.positions.rotation_table`.

    Raises:
        ValueError: heads do not divide widths, or `kv_heads` heads; or rotary positions come twice.
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
        key_dim, value_dim = widths(dim, heads, key_dim, value_dim)
        kv_heads = options.kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"kv_heads {kv_heads} must divide heads {heads}")
        if rotations is not None and options.rotary is not None:
            raise ValueError("rotary positions are given twice: give rotations or options with rotary, not both")
        self.dim = dim
        self.heads = heads
        self.kv_heads = kv_heads
        self.axis = axis
        self.causal = causal
        self.options = options
        self.widths = key_dim, key_dim // heads * kv_heads, value_dim // heads * kv_heads
        self.packed = replace(options, gate=False, relative=None, rotary=None) == NO_OPTIONS
        self.qkv = Dense(dim, sum(self.widths), bias=bias)
        self.out = Dense(value_dim, dim, residual, out_bias) if project else nn.Identity()
        if options.gate:
            self.gate = Dense(dim, value_dim, residual=True)
            nn.init.ones_(self.gate.bias)
        if options.qk_norm:
            self.query_norm = HeadNorm(key_dim // heads)
            self.key_norm = HeadNorm(key_dim // heads)
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
            key_mask: [B, *A], False at positions not attended to; their NaN and infinities count as zeros.
            attn_bias: see `axial_attention`.
            coordinates: of `options.rotary`, [L] or [B or 1, *A]; see `rotary`.
        """
        x = finite_where_absent(x, key_mask)
        call = self._call(x, key_mask, attn_bias, coordinates)
        return self._gated(x, self._attend(call).flatten(-2))

    def weights(
        self,
        x: Float[Tensor, "b *a d"],
        key_mask: Bool[Tensor, " b *a"] | None = None,
        attn_bias: Float[Tensor, "..."] | None = None,
        coordinates: Num[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b *a n l"]:
        """Return the attention weights: [B, *A, heads, L]."""
        call = self._call(finite_where_absent(x, key_mask), key_mask, attn_bias, coordinates)
        return self._attend(call._replace(v=own_positions(call.k, call.axis), qkv=None, packing=None))

    def _call(
        self,
        x: Tensor,
        key_mask: Tensor | None,
        attn_bias: Tensor | None,
        coordinates: Tensor | None,
    ) -> AttentionCall:
        """Return the call, of one packed tensor unless options or coordinates change queries and keys."""
        axis = input_axis(x, self.axis, self.dim)
        options = self.options
        bias = self._bias(x.shape[axis], attn_bias)
        if self.packed and coordinates is None and (not options.rotary or x.device.type == "cpu"):
            return packed_call(
                self.qkv(x),
                (self.heads, *self.widths),
                axis,
                causal=self.causal,
                key_mask=key_mask,
                bias=bias,
                rotations=self._rotations(x.shape[axis], x.dtype),
            )
        q, k, v = self._project(x)
        q, k = self._turned(q, k, axis, coordinates)
        check_tensors(key_mask, bias, q=q, k=k, v=v)
        dropout = options.dropout if self.training else 0.0
        return AttentionCall(q, k, v, axis, self.causal, key_mask, bias, options.window, options.dilation, dropout)

    def _attend(self, call: AttentionCall) -> Tensor:
        return attend(call)

    def start(
        self,
        batch: int,
        slab: tuple[int, ...],
        length: int,
    ) -> KeyValueCache:
        """Return an empty cache for `length` steps, each a slab of this shape."""
        if not self.causal:
            raise ValueError("only causal attention has steps: build the layer with causal=True")
        weight = next(self.parameters())
        device = weight.device.type
        dtype = weight.dtype
        if dtype == torch.float32 and device != "meta" and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        lines = batch * prod(slab), self.kv_heads, length
        keys, values = (
            torch.empty(*lines, width // self.kv_heads, dtype=dtype, device=weight.device) for width in self.widths[1:]
        )
        return KeyValueCache(keys, values)

    def step(
        self,
        x: Float[Tensor, "b *s d"],
        i: Index,
        cache: KeyValueCache,
    ) -> Float[Tensor, "b *s d"]:
        """Return the output for slab `i`; cache its keys and values.

        No weights are dropped. Rotary positions are indices. If `i` is a tensor, the layer has no options; it reads the
        whole cache, which must be finite, and masks later slabs.
        """
        q, k, v = (heads.flatten(0, -3) for heads in self._project(x))
        if self.rotations is not None or self.options.rotary:
            q, k = (heads[:, 0] for heads in self._turned(q[:, None], k[:, None], axis=1, position=i))
        keys, values = cache
        if isinstance(i, Tensor):
            assert self.options == NO_OPTIONS
            keys.index_copy_(2, i, k[:, :, None].to(keys.dtype))
            values.index_copy_(2, i, v[:, :, None].to(values.dtype))
            later = torch.arange(keys.shape[2], device=i.device) > i
            bias: Tensor | None = q.new_zeros(self.heads, 1).masked_fill(later, -torch.inf)
        else:
            keys[:, :, i] = k
            values[:, :, i] = v
            seen = self.options.seen(i)
            keys = keys[:, :, seen]
            values = values[:, :, seen]
            bias = self._step_bias(keys.shape[2])
        out = attend_step(q, keys, values, bias)
        return self._gated(x, out.reshape(*x.shape[:-1], out.shape[1:].numel()))

    def _step_bias(self, count: int) -> Tensor | None:
        """Return the bias of a causal query for the positions that it attends to, itself last: [heads, count]."""
        radius = self.options.relative
        if radius is None:
            return None
        back = torch.arange(count, device=self.table.device)
        return self.table[:, radius - back.flip(0).clamp(max=radius)]

    def _gated(self, x: Tensor, heads: Tensor) -> Tensor:
        return self.out(torch.sigmoid(self.gate(x)) * heads if self.options.gate else heads)

    def _rotations(self, length: int, dtype: torch.dtype) -> Tensor | None:
        if not self.options.rotary:
            return self.rotations
        wide = torch.promote_types(dtype, torch.float32)
        return rotation_table(length, self.widths[0] // self.heads, self.options.rotary, wide)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).split(self.widths, dim=-1)
        q = q.unflatten(-1, (self.heads, -1))
        k = k.unflatten(-1, (self.kv_heads, -1))
        v = v.unflatten(-1, (self.kv_heads, -1))
        if self.options.qk_norm:
            q = self.query_norm(q)
            k = self.key_norm(k)
        return q, k, v

    def _turned(
        self,
        q: Tensor,
        k: Tensor,
        axis: int,
        coordinates: Tensor | None = None,
        position: Index = 0,
    ) -> tuple[Tensor, Tensor]:
        base = self.options.rotary
        if base:
            if isinstance(position, int) and position:
                coordinates = torch.arange(position, position + q.shape[axis], device=q.device)
            return rotary(q, axis, coordinates, base), rotary(k, axis, coordinates, base)
        if coordinates is not None:
            raise ValueError("coordinates are of rotary positions: give options with rotary=10000.0")
        if self.rotations is None:
            return q, k
        rotations = self.rotations[position] if isinstance(position, Tensor) else self.rotations[position:]
        return rotate(q, rotations, axis), rotate(k, rotations, axis)

    def _bias(self, length: int, attn_bias: Tensor | None) -> Tensor | None:
        if self.options.relative is None:
            return attn_bias
        window = self.options.window
        if window:
            own = relative_bias(self.table, window)[:, :, window // 2, None]
        else:
            own = relative_bias(self.table, length)
        if attn_bias is None:
            return own
        return attn_bias + own.view(1, *[1] * (attn_bias.ndim - 4), *own.shape[1:])

    def extra_repr(self) -> str:
        rotated = "" if self.rotations is None else ", rotated"
        return f"heads={self.heads}, axis={self.axis}, causal={self.causal}, options={self.options}{rotated}"


class TiedAxialAttention(LineAttention):
    """Self-attention along one axis with weights shared by all lines along another, `tied` (Rao et al. 2021).

    The defaults are for an alignment [B, rows, columns, D]. It takes the options gate, qk_norm, rotary and relative.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        axis: int = 2,
        tied: int = 1,
        options: AttentionOptions = NO_OPTIONS,
    ):
        if replace(options, gate=False, qk_norm=False, rotary=None, relative=None) != NO_OPTIONS:
            raise ValueError(f"tied attention takes gate, qk_norm, rotary and relative only, not {options}")
        super().__init__(dim, heads, axis, options=options)
        self.tied = tied
        self.packed = False

    def _attend(self, call: AttentionCall) -> Tensor:
        tied = input_axis(call.q.flatten(-2), self.tied, call.q.shape[-2:].numel())
        return tied_axial_attention(
            call.q, call.k, call.v, call.axis, tied, key_mask=call.key_mask, attn_bias=call.bias
        )


def axis_options(axis: int, options: AttentionOptions | Mapping[int, AttentionOptions]) -> AttentionOptions:
    """Return the options of one axis."""
    return options if isinstance(options, AttentionOptions) else options.get(axis, NO_OPTIONS)


def widths(
    dim: int,
    heads: int,
    key_dim: int | None,
    value_dim: int | None,
) -> tuple[int, int]:
    """Return the widths of keys and values, multiples of `heads`."""
    key_dim, value_dim = (dim if width is None else width for width in (key_dim, value_dim))
    for width in (key_dim, value_dim):
        if heads < 1 or width < 1 or width % heads:
            raise ValueError(
                f"heads {heads} must divide dim, key_dim and value_dim, and all be at least 1, not {width}"
            )
    return key_dim, value_dim
