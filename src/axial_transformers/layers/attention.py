"""Multi-head attention along several axes, over all positions, and across tensors."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense
from axial_transformers.layers.lines import NO_OPTIONS, AttentionOptions, LineAttention, axis_options, widths
from axial_transformers.ops.argument_checks import check_width
from axial_transformers.ops.attention_call import finite_where_absent, unpacked
from axial_transformers.ops.axial_attention import full_attention, full_attention_weights


class FullAttention(nn.Module):
    """Attention of every position to every position; with one head and a residual, the non-local block.

    Args:
        dim, heads, key_dim, value_dim, project: see `LineAttention`.
        bias: the linear layers have biases.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        project: bool = True,
    ):
        super().__init__()
        self.dim = dim
        self.heads = heads
        key_dim, value_dim = widths(dim, heads, key_dim, value_dim)
        self.widths = key_dim, key_dim, value_dim
        self.qkv = Dense(dim, sum(self.widths), bias=bias)
        self.out = Dense(value_dim, dim, bias=bias) if project else nn.Identity()

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at positions not attended to."""
        q, k, v = self._project(x, key_mask)
        return self.out(full_attention(q, k, v, key_mask).flatten(-2))

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "..."]:
        """Return the attention weights over all positions: [B, *A, heads, *A]."""
        q, k, _ = self._project(x, key_mask)
        return full_attention_weights(q, k, key_mask)

    def _project(self, x: Tensor, key_mask: Tensor | None) -> tuple[Tensor, ...]:
        check_width(x, self.dim)
        return unpacked(self.qkv(finite_where_absent(x, key_mask)), (self.heads, *self.widths))


class AxialAttention(nn.Module):
    """Attention along one axis, along several in turn, or the sum of several.

    The weights of axis N are named `layers.axis_N`; a repetition is `layers.axis_N_round_2` and so on.

    Args:
        dim, heads, key_dim, value_dim, project: see `LineAttention`; every axis has its own linear layers.
        axes: dimensions to attend along, in order: 1..d, or from the end (-2 is the innermost); one may be a number.
            Default: rows, then columns, of images [B, H, W, D], as in Ho et al. 2019.
        combine: "sequence" feeds each attention with the previous output; "sum" adds all outputs.
        causal: those of `axes` along which a position attends only to itself and to earlier positions.
        bias: the linear layers have biases; a gate always has one.
        options: for all axes, or by axis: see `AttentionOptions`.

    Raises:
        ValueError: an option is unknown, or `axes`, `causal`, `options`, widths and (on a call) the input do not fit.
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
        options: AttentionOptions | Mapping[int, AttentionOptions] = NO_OPTIONS,
    ):
        super().__init__()
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        check_axes(axes, causal, options)
        if combine not in ("sequence", "sum"):
            raise ValueError(f"combine must be 'sequence' or 'sum', not {combine!r}")
        if combine == "sequence" and len(axes) > 1 and not project and value_dim not in (None, dim):
            raise ValueError(f"without projections, a sequence of attentions needs value_dim {dim}, not {value_dim}")
        self.combine = combine
        self.layers = nn.ModuleDict()
        for i, axis in enumerate(axes):
            again = axes[:i].count(axis)
            self.layers[f"axis_{axis}" + (f"_round_{again + 1}" if again else "")] = LineAttention(
                dim,
                heads,
                axis,
                axis in causal,
                axis_options(axis, options),
                key_dim,
                value_dim,
                bias,
                project=project,
                out_bias=bias,
            )

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at positions not attended to."""
        if self.combine == "sum":
            outs = [layer(x, key_mask) for layer in self.layers.values()]
            return sum(outs[1:], outs[0])
        for layer in self.layers.values():
            x = layer(x, key_mask)
        return x

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> list[Float[Tensor, "b *a n l"]]:
        """Return the attention weights for each of `axes`: [B, *A, heads, L]."""
        weights = []
        for layer in self.layers.values():
            assert isinstance(layer, LineAttention)
            weights.append(layer.weights(x, key_mask))
            if self.combine == "sequence":
                x = layer(x, key_mask)
        return weights


class CrossAttention(nn.Module):
    """Attention of every position of one tensor to every position of another, the context, on any grid.

    Args:
        dim, heads, key_dim, value_dim, bias, project: see `FullAttention`.
        context_dim: width of the context; default D.
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
        self.dim = dim
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
        """x [B, *A, D], context [B, *E, C] -> [B, *A, D]; key_mask [B, *E] is False at positions not attended to."""
        q, k, v = self._project(x, finite_where_absent(context, key_mask))
        return self.out(full_attention(q, k, v, key_mask).flatten(-2))

    def weights(
        self,
        x: Float[Tensor, "b *a d"],
        context: Float[Tensor, "b *e c"],
        key_mask: Bool[Tensor, " b *e"] | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the attention weights over the context: [B, *A, heads, *E]."""
        q, k, _ = self._project(x, finite_where_absent(context, key_mask))
        return full_attention_weights(q, k, key_mask)

    def _project(self, x: Tensor, context: Tensor) -> tuple[Tensor, ...]:
        check_width(x, self.dim)
        k, v = self.kv(context).split([self.key_dim, self.value_dim], dim=-1)
        return tuple(heads.unflatten(-1, (self.heads, -1)) for heads in (self.q(x), k, v))


class ChannelsFirst(nn.Module):
    """A layer of [B, *A, D] applied to [B, D, *A], the layout of convolutions; masks are [B, *A]."""

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
        """Return the layer's weights."""
        return self.layer.weights(x.movedim(1, -1), key_mask)  # type: ignore[operator]


def check_axes(
    axes: Sequence[int],
    causal: Sequence[int],
    options: AttentionOptions | Mapping[int, AttentionOptions],
) -> None:
    """Check that there are axes, with the others among them."""
    if not axes or {0, -1} & set(axes):
        raise ValueError(f"axes must be 1..d of [B, *A, D], or -2 and below from the end, at least one, not {axes}")
    check_among_axes("causal", causal, axes)
    check_among_axes("options", options if isinstance(options, Mapping) else (), axes)


def check_among_axes(
    name: str,
    given: Sequence[int] | Mapping[int, object],
    axes: Sequence[int],
) -> None:
    """Check that only known axes are given."""
    if not set(given) <= set(axes):
        raise ValueError(f"{name} {tuple(given)} must be among axes {axes}")
