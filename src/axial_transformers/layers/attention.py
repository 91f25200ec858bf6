"""Multi-head attention: along axes, over all sites, and from one tensor to another.

All are [B, *A, D] -> [B, *A, D] for any number of axes. Along a masked axis, the output can also be computed one
slab at a time, with a cache of keys and values.
"""

from collections.abc import Sequence
from math import prod
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.ops.argument_checks import check_width, input_axis
from axial_transformers.ops.axial_attention import (
    attend_step,
    axial_attention,
    axial_attention_weights,
    axial_self_attention,
    by_head_pays,
    project_by_head,
)
from axial_transformers.ops.compiled_attention import unpacked
from axial_transformers.ops.full_attention import full_attention, full_attention_weights
from axial_transformers.ops.rotations import rotate


class KeyValueCache(NamedTuple):
    """Keys and values of the slabs so far: [lines, heads, length, head width]; a slab has one site of each line."""

    keys: Tensor
    values: Tensor


class SelfAttention(nn.Module):
    """The linear layers around self-attention: `qkv` before it, `out` after it.

    Without biases and projection, one head is softmax(Q K^T / sqrt(K)) V with Q, K, V = X Wq, X Wk, X Wv, and several
    are the concatenation of these; with the projection, they are the multi-head attention of Vaswani et al. 2017,
    section 3.2.2.

    Args:
        dim: width D.
        heads: number of heads N, a divisor of the widths below; scores are scaled by 1/sqrt(key_dim / N).
        key_dim: width of queries and keys, all heads together; D if not given.
        value_dim: width of values, all heads together; D if not given.
        residual: whether the layer ends a residual branch: its output projection is then initialised to zero.
        bias: whether the linear layers have biases.
        project: whether a linear layer to width D follows; otherwise the output is the concatenated heads, of width
            value_dim.

    Raises:
        ValueError: a width that is not a positive multiple of `heads`.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        residual: bool = False,
        bias: bool = True,
        project: bool = True,
    ):
        super().__init__()
        self.heads = heads
        self.key_dim, self.value_dim = widths(dim, heads, key_dim, value_dim)
        self.qkv = Dense(dim, 2 * self.key_dim + self.value_dim, bias=bias)
        self.out = Dense(self.value_dim, dim, residual, bias) if project else nn.Identity()

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        check_width(x, self.qkv.in_features)
        return unpacked((self.qkv(x),), (self.heads, *self._widths))

    @property
    def _widths(self) -> tuple[int, int, int]:
        return self.key_dim, self.key_dim, self.value_dim


class FullAttention(SelfAttention):
    """Attention of every site to every site of the grid. With one head and a residual, it is the non-local block."""

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at sites not attended to."""
        q, k, v = self._project(x)
        return self.out(full_attention(q, k, v, key_mask).flatten(-2))

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "..."]:
        """The attention weights of each site over all sites: [B, *A, heads, *A]."""
        q, k, _ = self._project(x)
        return full_attention_weights(q, k, key_mask)


class AxisAttention(SelfAttention):
    """Self-attention along one axis: [B, *A, D] -> [B, *A, D].

    Args:
        dim, heads, key_dim, value_dim, residual, bias, project: see `SelfAttention`; `residual` is True by default.
        axis: dimension of the input attended along: 1..d, or counted from the end, where -2 is the innermost axis.
            Counted from the end, it is the same in a whole tensor and in a slab of it.
        masked: whether a site attends only to itself and to earlier sites along the axis.
        rotations: [L, K], see `ops.rotations.rotation_table`, a constant that is stored with the weights: queries and
            keys, K wide each, are rotated by the row of their place along the axis, which has at most L. None: not.
    """

    rotations: Tensor | None

    def __init__(  # noqa: PLR0913
        self,
        dim: int,
        heads: int,
        axis: int,
        masked: bool = False,
        key_dim: int | None = None,
        value_dim: int | None = None,
        residual: bool = True,
        bias: bool = True,
        project: bool = True,
        rotations: Float[Tensor, "l k"] | None = None,
    ):
        super().__init__(dim, heads, key_dim, value_dim, residual, bias, project)
        self.axis, self.masked = axis, masked
        self.register_buffer("rotations", rotations)

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at sites not attended to."""
        axis = input_axis(x, self.axis, self.qkv.in_features)
        if by_head_pays(x, axis, key_mask):
            q, k, v = project_by_head(x, self.qkv.weight, self.qkv.bias, self.heads, self._widths)
            q, k = (self._rotated(part, axis) for part in (q, k))
            out = axial_attention(q, k, v, axis, self.masked)
        else:
            packed = self.qkv(x), self.heads, self._widths
            out = axial_self_attention(*packed, axis, self.masked, key_mask, rotations=self.rotations)
        return self.out(out.flatten(-2))

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "..."]:
        """The attention weights of each site over its line: [B, *A, heads, L]."""
        axis = input_axis(x, self.axis, self.qkv.in_features)
        q, k = (self._rotated(part, axis) for part in self._project(x)[:2])
        return axial_attention_weights(q, k, axis, self.masked, key_mask)

    def start(self, batch: int, slab: tuple[int, ...], length: int) -> KeyValueCache:
        """An empty cache for `length` steps along a masked axis, each a slab of the given shape."""
        assert self.masked, "only masked attention can be computed step by step"
        lines = (batch * prod(slab), self.heads, length)
        return KeyValueCache(
            self.qkv.weight.new_empty(*lines, self.key_dim // self.heads),
            self.qkv.weight.new_empty(*lines, self.value_dim // self.heads),
        )

    def step(self, x: Float[Tensor, "b *s d"], i: int, cache: KeyValueCache) -> Float[Tensor, "b *s d"]:
        """The output at position `i` of the axis for its slab x [B, *S, D]; adds the keys and values to the cache."""
        q, k, v = (part.flatten(0, -3) for part in self._project(x))
        if self.rotations is not None:
            q, k = (rotate(part[:, None], self.rotations[i : i + 1], axis=1)[:, 0] for part in (q, k))
        cache.keys[:, :, i], cache.values[:, :, i] = k, v
        out = attend_step(q, cache.keys[:, :, : i + 1], cache.values[:, :, : i + 1])
        return self.out(out.reshape(*x.shape[:-1], self.value_dim))

    def _rotated(self, heads: Tensor, axis: int) -> Tensor:
        return heads if self.rotations is None else rotate(heads, self.rotations, axis)

    def extra_repr(self) -> str:
        """The settings shown by print."""
        rotated = "" if self.rotations is None else ", rotated"
        return f"heads={self.heads}, axis={self.axis}, masked={self.masked}{rotated}"


class AxialAttention(nn.Module):
    """Attention along one axis, along several one after the other, or the sum of several.

    The weights of axis N are named `layers.axis_N`; where it comes again, `layers.axis_N_round_2` and so on.

    Args:
        dim, heads, key_dim, value_dim, bias, project: see `SelfAttention`; every axis has its own linear layers.
        axes: dimensions of the input attended along, 1..d or from the end (-2 is the innermost), in this order; a
            single one may be given as a number. By
            default those of images [B, H, W, D], rows first and then columns, as in the blocks of Ho et al. 2019.
        combine: "sequence" applies each attention to the output of the one before; "sum" adds the outputs of all.
        causal: those of `axes` along which a site attends only to itself and to earlier sites.

    Raises:
        ValueError: no axes, one that the input lacks (on a call), `causal` names one that is not attended along, an
            unknown `combine`, or a sequence without projections whose value_dim is not D.
    """

    def __init__(  # noqa: PLR0913
        self,
        dim: int,
        heads: int,
        axes: int | Sequence[int] = (2, 1),
        combine: Literal["sequence", "sum"] = "sequence",
        causal: Sequence[int] = (),
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        project: bool = True,
    ):
        super().__init__()
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        check_axes(axes, causal)
        if combine not in ("sequence", "sum"):
            raise ValueError(f"combine must be 'sequence' or 'sum', not {combine!r}")
        if combine == "sequence" and len(axes) > 1 and not project and value_dim not in (None, dim):
            raise ValueError(f"without projections, a sequence of attentions needs value_dim {dim}, not {value_dim}")
        self.combine = combine
        self.layers = nn.ModuleDict()
        for i, axis in enumerate(axes):
            again = axes[:i].count(axis)
            self.layers[f"axis_{axis}" + (f"_round_{again + 1}" if again else "")] = AxisAttention(
                dim, heads, axis, axis in causal, key_dim, value_dim, residual=False, bias=bias, project=project
            )

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at sites not attended to."""
        if self.combine == "sum":
            outs = [layer(x, key_mask) for layer in self.layers.values()]
            return sum(outs[1:], outs[0])
        for layer in self.layers.values():
            x = layer(x, key_mask)
        return x

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> list[Float[Tensor, "b *a n l"]]:
        """The attention weights of each site over its lines: [B, *A, heads, L] for each of `axes`."""
        weights = []
        for layer in self.layers.values():
            assert isinstance(layer, AxisAttention)
            weights.append(layer.weights(x, key_mask))
            if self.combine == "sequence":
                x = layer(x, key_mask)
        return weights


class CrossAttention(nn.Module):
    """Attention of every site of one tensor to every site of another, the context, which may have another grid.

    Args:
        dim, heads, key_dim, value_dim, bias, project: see `SelfAttention`.
        context_dim: width of the context; D if not given.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        context_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        project: bool = True,
    ):
        super().__init__()
        self.heads = heads
        self.key_dim, self.value_dim = widths(dim, heads, key_dim, value_dim)
        self.q = Dense(dim, self.key_dim, bias=bias)
        self.kv = Dense(context_dim or dim, self.key_dim + self.value_dim, bias=bias)
        self.out = Dense(self.value_dim, dim, bias=bias) if project else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "b *a d"],
        context: Float[Tensor, "b *e c"],
        key_mask: Bool[Tensor, " b *e"] | None = None,
    ) -> Float[Tensor, "b *a d"]:
        """x [B, *A, D], context [B, *E, C] -> [B, *A, D]; key_mask [B, *E] is False at sites not attended to."""
        q, k, v = self._project(x, context)
        return self.out(full_attention(q, k, v, key_mask).flatten(-2))

    def weights(
        self,
        x: Float[Tensor, "b *a d"],
        context: Float[Tensor, "b *e c"],
        key_mask: Bool[Tensor, " b *e"] | None = None,
    ) -> Float[Tensor, "..."]:
        """The attention weights of each site over the context: [B, *A, heads, *E]."""
        q, k, _ = self._project(x, context)
        return full_attention_weights(q, k, key_mask)

    def _project(self, x: Tensor, context: Tensor) -> tuple[Tensor, ...]:
        check_width(x, self.q.in_features)
        k, v = self.kv(context).split([self.key_dim, self.value_dim], dim=-1)
        return tuple(part.unflatten(-1, (self.heads, -1)) for part in (self.q(x), k, v))


class ChannelsFirst(nn.Module):
    """A layer on [B, *A, D] as one on [B, D, *A], the layout of convolutions; masks are [B, *A]."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Float[Tensor, "b d *a"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b d *a"]:
        """[B, D, *A] -> [B, D, *A]."""
        out = self.layer(x.movedim(1, -1), key_mask).movedim(-1, 1)
        return out.contiguous() if torch.compiler.is_compiling() else out  # inductor fails to compare dynamic strides

    def weights(
        self, x: Float[Tensor, "b d *a"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "..."] | list[Float[Tensor, "..."]]:
        """Those of the layer for x with channels last."""
        return self.layer.weights(x.movedim(1, -1), key_mask)  # type: ignore[operator]


def check_axes(axes: Sequence[int], causal: Sequence[int]) -> None:
    """Raises ValueError unless there are axes, all of the data as far as can be known, and `causal` are among them."""
    if not axes or {0, -1} & set(axes):
        raise ValueError(f"axes must be 1..d of [B, *A, D], or -2 and below from the end, at least one, not {axes}")
    if not set(causal) <= set(axes):
        raise ValueError(f"causal {tuple(causal)} must be among axes {axes}")


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
