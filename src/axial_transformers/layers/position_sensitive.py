"""Position-sensitive axial attention (Wang et al. 2020, Axial-DeepLab, equation 4)."""

from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from axial_transformers.layers.blocks import ModuleListOf
from axial_transformers.layers.initialisation import Dense, normal_table
from axial_transformers.layers.lines import widths
from axial_transformers.ops import torch_relative
from axial_transformers.ops.argument_checks import check_odd, input_axis
from axial_transformers.ops.attention_call import AttentionCall, Tables, finite_where_absent, packed_call
from axial_transformers.ops.backends import attend
from axial_transformers.ops.torch_private import is_bare, is_forward_mode


class PositionSensitiveAxialAttention(nn.Module):
    """Attention along one axis with relative query, key and value encodings: [B, *A, D] -> [B, *A, D].

    Args:
        dim: width D.
        heads: number of heads N, a divisor of the widths below.
        axis: dimension to attend along: 1..d, or from the end (-2 is the innermost).
        size: longest line; every offset has an encoding (the paper's global attention).
        span: odd window size m, for lines of any length. Give either size or span.
        causal: attend only to the position itself and to earlier ones.
        key_dim: width of queries and keys, all heads together; default D / 2, as published.
        value_dim: width of values, all heads together; default D.
        normalisation: "none" is equation 4 as printed; "scale" divides scores by sqrt(K). "batch", the authors' code,
            normalises q, k, v, each term of the scores and both sums over the batch, so that examples depend on each
            other: not for autoregressive models.
        shared_tables: all heads share one set of tables, as published.
        bias: the linear layers have biases. Default: yes for "scale", no for "none", for "batch" only the output
            projection.
        project: a linear layer to width D follows the concatenated heads. Default: no, as published, unless value_dim
            is given.

    Raises:
        ValueError: options or widths do not fit, or (on a call) a line is longer than `size`.
    """

    def __init__(  # noqa: PLR0913
        self,
        dim: int,
        heads: int,
        axis: int,
        size: int | None = None,
        span: int | None = None,
        causal: bool = False,
        key_dim: int | None = None,
        value_dim: int | None = None,
        normalisation: Literal["none", "scale", "batch"] = "scale",
        shared_tables: bool = True,
        bias: bool | None = None,
        project: bool | None = None,
    ):
        super().__init__()
        if normalisation not in ("none", "scale", "batch"):
            raise ValueError(f"normalisation must be 'none', 'scale' or 'batch', not {normalisation!r}")
        self.dim, self.heads, self.axis, self.size, self.causal = dim, heads, axis, size, causal
        keys, values = widths(dim, heads, dim // 2 if key_dim is None else key_dim, value_dim)
        self.widths = keys, keys, values
        rows = _rows(size, span)
        tables = 1 if shared_tables else heads
        self.query_table = normal_table(rows, tables, keys // heads)
        self.key_table = normal_table(rows, tables, keys // heads)
        self.value_table = normal_table(rows, tables, values // heads)
        self.factor = 1 / sqrt(keys // heads) if normalisation == "scale" else 1.0
        linear = nn.Linear if normalisation == "batch" else Dense
        self.qkv = linear(dim, sum(self.widths), bias=normalisation == "scale" if bias is None else bias)
        self.normalise = BatchNormalise(sum(self.widths), heads, values) if normalisation == "batch" else None
        if project is None:
            project = value_dim is not None
        self.out = (
            Dense(values, dim, bias=normalisation != "none" if bias is None else bias) if project else nn.Identity()
        )

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at positions not attended to.

        With "batch", statistics of q, k and v cover all positions; those of scores cover present keys.
        """
        return self.out(attend(self._call(x, key_mask)).flatten(-2))

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a n w"]:
        """Return the attention weights: [B, *A, heads, positions of the line or window]."""
        return torch_relative.weights(self._call(x, key_mask))

    def _call(self, x: Tensor, key_mask: Tensor | None) -> AttentionCall:
        axis = input_axis(x, self.axis, self.dim)
        if self.size and x.shape[axis] > self.size:
            raise ValueError(
                f"axis {self.axis} of {list(x.shape)} has {x.shape[axis]} positions, more than size={self.size}"
            )
        qkv = self.qkv(finite_where_absent(x, key_mask))
        if self.normalise:
            qkv = self.normalise.of_qkv(qkv)
        packing = self.heads, *self.widths
        tables = self.query_table, self.key_table, self.value_table
        options = {"causal": self.causal, "key_mask": key_mask, "scale": self.factor, "norms": self.normalise}
        return packed_call(qkv, packing, axis, tables=tables, **options)


def _rows(size: int | None, span: int | None) -> int:
    """Return the number of offsets that have an encoding."""
    if span is None and size is not None and size > 0:
        return 2 * size - 1
    if size is None and span is not None:
        check_odd("span", span)
        return span
    raise ValueError(f"give one of size and span, at least 1, not size={size} and span={span}")


MIN_GAIN = 1e-20


class Norm(nn.BatchNorm1d):
    """Batch normalisation by channel; by a formula where only some pairs count, and in forward mode.

    Derivatives of torch's tangents are wrong in 2.13 (see `LayerNorm`).
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float

    def gain_and_shift(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factor of each channel, and what is added to it."""
        gain = self.weight * (variance + self.eps).rsqrt()
        return gain, self.bias - mean * gain

    def over(self, x: Float[Tensor, "m c l w"], allowed: Bool[Tensor, "*m l w"]) -> Float[Tensor, "m c l w"]:
        """Normalise over the allowed pairs; to index by a mask, a CPU would wait for the GPU."""
        mean = self.running_mean
        variance = self.running_var
        wide = x if x.dtype == torch.float64 else x.float()
        if self.training:
            count = allowed.expand(x.shape[0], 1, -1, -1).sum().clamp(min=1)
            mean = (wide * allowed).sum((0, 2, 3)) / count
            squares = ((wide - mean[:, None, None]) * allowed).square().sum((0, 2, 3))
            variance = squares / count
            self._count(self.running_mean, mean)
            self._count(self.running_var, squares / (count - 1).clamp(min=1))
            self.get_buffer("num_batches_tracked").add_(1)
        gain, shift = self.gain_and_shift(mean, variance)
        return (wide * gain[:, None, None] + shift[:, None, None]).to(x.dtype)

    def _count(self, average: Tensor, new: Tensor) -> None:
        average.lerp_(new.detach().to(average.dtype), self.momentum)


class ChannelsLastBatchNorm(Norm):
    """Batch normalisation of [.., C] over all other dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        if self.training and is_forward_mode():
            everywhere = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=x.device)
            return self.over(rows[..., None, None], everywhere).view(x.shape)
        return super().forward(rows).view(x.shape)


class ScoreNorm(Norm):
    """Batch normalisation of scores [M, heads, L, W] by head, over the pairs that attend; None: all."""

    def forward(self, term: Tensor, allowed: Tensor | None) -> Tensor:  # type: ignore[override]
        if allowed is None and self.training and is_forward_mode():
            allowed = torch.ones_like(term[:1, :1], dtype=torch.bool)
        if allowed is not None:
            return self.over(term, allowed)
        return super().forward(term.flatten(2)).view(term.shape)


class BatchNormalise(nn.Module):
    """Batch normalisation of q, k, v, each term of scores by head, and both sums by channel."""

    def __init__(
        self,
        qkv_dim: int,
        heads: int,
        value_dim: int,
    ):
        super().__init__()
        self.of_qkv = ChannelsLastBatchNorm(qkv_dim)
        self.of_terms = ModuleListOf(ScoreNorm(heads) for _ in range(3))
        self.of_content = ChannelsLastBatchNorm(value_dim)
        self.of_position = ChannelsLastBatchNorm(value_dim)

    def fold(self) -> bool:
        """Return True if `folded` computes what calls of the modules would."""
        norms = *self.of_terms, self.of_content, self.of_position
        return not self.training and all(is_bare(norm, ScoreNorm, ChannelsLastBatchNorm) for norm in norms)

    def folded(self, qkv: Tensor, tables: Tables) -> tuple[Tensor, Tables, Tensor]:
        """Turn running statistics into factors of equation 4, and a shift of the output.

        A softmax ignores shifts of the scores.
        """
        norms = *self.of_terms, self.of_content, self.of_position
        gains, shifts = zip(*(norm.gain_and_shift(norm.running_mean, norm.running_var) for norm in norms))
        product_gain, query_gain, key_gain, content_gain, position_gain = gains
        product_gain = torch.where(product_gain.abs() < MIN_GAIN, MIN_GAIN, product_gain)
        query, key, value = tables
        keys = product_gain.repeat_interleave(key.shape[-1])
        qkv = qkv * torch.cat([torch.ones_like(keys), keys, content_gain]).to(qkv.dtype)
        query = query * query_gain[:, None]
        key = key * (key_gain / product_gain)[:, None]
        value = value * position_gain.view(len(product_gain), -1)
        return qkv, (query, key, value), shifts[3] + shifts[4]

    def scores(self, terms: tuple[Tensor, Tensor, Tensor], allowed: Tensor | None) -> Tensor:
        first, second, third = (norm(term, allowed) for norm, term in zip(self.of_terms, terms))
        return first + second + third

    def output(self, content: Tensor, position: Tensor) -> Tensor:
        heads = content.shape[1]
        content, position = (x.transpose(1, 2).flatten(2) for x in (content, position))
        total = self.of_content(content) + self.of_position(position)
        return total.unflatten(-1, (heads, -1)).transpose(1, 2)
