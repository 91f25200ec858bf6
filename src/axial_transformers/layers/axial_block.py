"""A residual block: attention along several axes, then a feedforward part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from axial_transformers.layers.attention import check_among_axes, check_axes
from axial_transformers.layers.blocks import Branch, FeedforwardBlock
from axial_transformers.layers.initialisation import LayerNorm
from axial_transformers.layers.lines import NO_OPTIONS, AttentionOptions, LineAttention, axis_options
from axial_transformers.ops.argument_checks import check_width
from axial_transformers.ops.attention_call import finite_where_absent


class AxialBlock(nn.Module):
    """x + Attention(LayerNorm(x)) for each axis in turn, then x + Feedforward(LayerNorm(x)).

    It begins as the identity: the last layer of every branch starts at zero, or, with a `layer_scale`, its gain is
    small.

    Args:
        dim: width D.
        heads: number of heads, a divisor of D.
        axes: dimensions to attend along, in order, each once: 1..d, or from the end (-2 is the innermost). Default:
            rows, then columns, of images [B, H, W, D].
        causal: those of `axes` along which a position attends only to itself and to earlier ones.
        mlp_ratio: hidden width of the feedforward part, over D.
        dropout: probability of dropout at the end of each branch.
        drop_path: probability that a branch of an example is dropped in training (stochastic depth).
        layer_scale: first gain of each channel of a branch, usually 1e-5; default: no gains.
        options: for all axes, or by axis: see `AttentionOptions`.

    Raises:
        ValueError: `axes` do not fit `causal` or `options`, or hold 0, -1 or one twice; or `drop_path` is out of range.
    """

    def __init__(  # noqa: PLR0913
        self,
        dim: int,
        heads: int,
        axes: Sequence[int] = (2, 1),
        causal: Sequence[int] = (),
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        options: AttentionOptions | Mapping[int, AttentionOptions] = NO_OPTIONS,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
    ):
        super().__init__()
        axes = tuple(axes)
        check_axes(axes, causal, options)
        if len(set(axes)) < len(axes):
            raise ValueError(f"axes must be named once each, not {axes}")
        self.dim = dim
        self.axes = axes
        self.norms = nn.ModuleDict({f"axis_{axis}": LayerNorm(dim) for axis in axes})
        self.attentions = nn.ModuleDict(
            {
                f"axis_{axis}": LineAttention(
                    dim, heads, axis, axis in causal, axis_options(axis, options), residual=layer_scale is None
                )
                for axis in axes
            }
        )

        def branch() -> Branch:
            return Branch(dropout, drop_path, None if layer_scale is None else torch.full((dim,), layer_scale))

        self.branches = nn.ModuleDict({f"axis_{axis}": branch() for axis in axes})
        self.feedforward = FeedforwardBlock(dim, round(mlp_ratio * dim), branch(), layer_scale is None)

    def forward(
        self,
        x: Float[Tensor, "b *a d"],
        key_mask: Bool[Tensor, " b *a"] | None = None,
        attn_bias: Mapping[int, Float[Tensor, "..."]] | None = None,
        coordinates: Mapping[int, Num[Tensor, "..."]] | None = None,
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D].

        Args:
            x: [B, *A, D].
            key_mask: [B, *A], False at positions not attended to; their NaN and infinities count as zeros.
            attn_bias: by axis, see `axial_attention`.
            coordinates: by axis, see `rotary`.
        """
        check_width(x, self.dim)
        x = finite_where_absent(x, key_mask)
        for norm, attention, branch, *more in self._parts(attn_bias, coordinates):
            x = branch.add_to(x, attention(norm(x), key_mask, *more))
        return self.feedforward(x)

    def weights(
        self,
        x: Float[Tensor, "b *a d"],
        key_mask: Bool[Tensor, " b *a"] | None = None,
        attn_bias: Mapping[int, Float[Tensor, "..."]] | None = None,
        coordinates: Mapping[int, Num[Tensor, "..."]] | None = None,
    ) -> list[Float[Tensor, "b *a n l"]]:
        """Return the attention weights for each of `axes`: [B, *A, heads, L]."""
        check_width(x, self.dim)
        x = finite_where_absent(x, key_mask)
        weights = []
        for norm, attention, branch, *more in self._parts(attn_bias, coordinates):
            weights.append(attention.weights(norm(x), key_mask, *more))
            x = branch.add_to(x, attention(norm(x), key_mask, *more))
        return weights

    def _parts(
        self, attn_bias: Mapping[int, Tensor] | None, coordinates: Mapping[int, Tensor] | None
    ) -> Iterator[tuple[Any, Any, Any, Tensor | None, Tensor | None]]:
        attn_bias = attn_bias or {}
        coordinates = coordinates or {}
        check_among_axes("attn_bias", attn_bias, self.axes)
        check_among_axes("coordinates", coordinates, self.axes)
        for axis in self.axes:
            name = f"axis_{axis}"
            of_axis = self.norms[name], self.attentions[name], self.branches[name]
            yield *of_axis, attn_bias.get(axis), coordinates.get(axis)
