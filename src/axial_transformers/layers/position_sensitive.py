"""Position-sensitive axial attention (Wang et al. 2020, Axial-DeepLab, equation 4)."""

from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from axial_transformers.layers.initialisation import Dense, normal_table
from axial_transformers.layers.lines import widths
from axial_transformers.ops import engine_relative
from axial_transformers.ops.argument_checks import check_odd, input_axis
from axial_transformers.ops.attention_call import AttentionCall, Tables, finite_where_absent, packed_call
from axial_transformers.ops.backends import attend, choose
from axial_transformers.ops.line_groups import from_lines, mask_of_lines, to_lines
from axial_transformers.ops.torch_private import is_bare, is_forward_mode
from axial_transformers.ops.torch_relative import Window, similarities, softmax_over, weighted_values


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
        self.qkv: nn.Linear
        self.normalise: BatchNormalise | None = None
        self.factor = 1 / sqrt(keys // heads) if normalisation == "scale" else 1.0
        if normalisation == "batch":
            self.qkv = nn.Linear(dim, sum(self.widths), bias=bool(bias))
            self.normalise = BatchNormalise(sum(self.widths), heads, values)
        else:
            self.qkv = Dense(dim, sum(self.widths), bias=normalisation == "scale" if bias is None else bias)
        project = value_dim is not None if project is None else project
        bias = normalisation != "none" if bias is None else bias
        self.out = Dense(values, dim, bias=bias) if project else nn.Identity()

    def forward(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a d"]:
        """[B, *A, D] -> [B, *A, D]; key_mask [B, *A] is False at positions not attended to.

        With "batch", statistics of q, k and v cover all positions; those of scores cover present keys.
        """
        axis = self._check_length(x)
        x = finite_where_absent(x, key_mask)
        qkv = self._normalised(x)
        shift = None
        tables: Tables = self.query_table, self.key_table, self.value_table
        if self.normalise and self.normalise.folds() and self._is_compiled(qkv, axis, tables):
            qkv, tables, shift = self.normalise.folded(qkv, self.widths, tables)
        elif self.normalise:
            q, k, v, window = self._lines(qkv, axis, key_mask)
            weights = self._weights(q, k, window).to(v.dtype)
            lines = self.normalise.output(*weighted_values(weights, v, self.value_table, window))
            return self.out(from_lines(lines, x.unsqueeze(-1), axis).flatten(-2))
        packing = self.heads, *self.widths
        call = packed_call(qkv, packing, axis, self.causal, key_mask, tables=tables, scale=self.factor)
        out = attend(call).flatten(-2)
        return self.out(out if shift is None else out + shift)

    def weights(
        self, x: Float[Tensor, "b *a d"], key_mask: Bool[Tensor, " b *a"] | None = None
    ) -> Float[Tensor, "b *a n w"]:
        """Return the attention weights: [B, *A, heads, positions of the line or window]."""
        axis = self._check_length(x)
        x = finite_where_absent(x, key_mask)
        q, k, _, window = self._lines(self._normalised(x), axis, key_mask)
        return from_lines(self._weights(q, k, window), x.unsqueeze(-1), axis)

    def _lines(self, qkv: Tensor, axis: int, key_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Window]:
        parts = (part.unflatten(-1, (self.heads, -1)) for part in qkv.split(self.widths, dim=-1))
        q, k, v = (to_lines(part, axis) for part in parts)
        present = mask_of_lines(key_mask, axis)
        return q, k, v, Window.of(q.shape[-2], len(self.query_table), self.causal, qkv.device, present)

    def _is_compiled(self, qkv: Tensor, axis: int, tables: Tables) -> bool:
        """Return True if the compiled backend takes a call of folded statistics."""
        q = qkv.unsqueeze(-2).expand(*qkv.shape[:-1], self.heads, -1)  # of the right sizes but the last
        return choose(AttentionCall(q, q, q, axis, self.causal, tables=tables)) is engine_relative

    def _check_length(self, x: Tensor) -> int:
        axis = input_axis(x, self.axis, self.dim)
        if self.size and x.shape[axis] > self.size:
            raise ValueError(
                f"axis {self.axis} of {list(x.shape)} has {x.shape[axis]} positions, more than size={self.size}"
            )
        return axis

    def _weights(self, q: Tensor, k: Tensor, window: Window) -> Tensor:
        terms = similarities(q, k, self.query_table, self.key_table, window)
        if self.normalise:
            return softmax_over(self.normalise.scores(terms, window), window)
        return softmax_over((terms[0] + terms[1] + terms[2]) * self.factor, window)

    def _normalised(self, x: Tensor) -> Tensor:
        return self.normalise.of_qkv(self.qkv(x)) if self.normalise else self.qkv(x)


def _rows(size: int | None, span: int | None) -> int:
    """Return the number of offsets that have an encoding."""
    if span is None and size is not None and size > 0:
        return 2 * size - 1
    if size is None and span is not None:
        check_odd("span", span)
        return span
    raise ValueError(f"give one of size and span, at least 1, not size={size} and span={span}")


class ChannelsLastBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of [.., C] over all other dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        if self.training and is_forward_mode():
            return _normalised_in_forward_mode(self, rows[..., None]).view(x.shape)
        return super().forward(rows).view(x.shape)


MIN_GAIN = 1e-20


class ScoreNorm(nn.BatchNorm1d):
    """Batch normalisation of scores [M, heads, L, W] by head, over the pairs that attend."""

    def forward(self, term: Tensor, window: Window) -> Tensor:  # type: ignore[override]
        if not window.complete:
            return _normalised_over(self, term, window.allowed)
        if self.training and is_forward_mode():
            return _normalised_in_forward_mode(self, term.flatten(2)).view(term.shape)
        return super().forward(term.flatten(2)).view(term.shape)


class BatchNormalise(nn.Module):
    """Batch normalisation of q, k, v, each term of scores by head, and both sums by channel."""

    def __init__(self, qkv_dim: int, heads: int, value_dim: int):
        super().__init__()
        self.of_qkv = ChannelsLastBatchNorm(qkv_dim)
        self.of_terms = nn.ModuleList(ScoreNorm(heads) for _ in range(3))
        self.of_content = ChannelsLastBatchNorm(value_dim)
        self.of_position = ChannelsLastBatchNorm(value_dim)

    def scores(self, terms: tuple[Tensor, Tensor, Tensor], window: Window) -> Tensor:
        first, second, third = (norm(term, window) for norm, term in zip(self.of_terms, terms))
        return first + second + third

    def folds(self) -> bool:
        """Return True if `folded` computes what calls of the modules would."""
        norms = *self.of_terms, self.of_content, self.of_position
        return not self.training and all(is_bare(norm, ScoreNorm, ChannelsLastBatchNorm) for norm in norms)

    def folded(
        self, qkv: Tensor, widths: tuple[int, int, int], tables: Tables
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor], Tensor]:
        """Turn running statistics into factors of equation 4, and a shift of the output.

        A softmax ignores shifts of the scores.
        """
        of_product, of_query, of_key = (_gain_and_shift(norm)[0] for norm in self.of_terms)
        of_product = torch.where(of_product.abs() < MIN_GAIN, MIN_GAIN, of_product)
        (of_content, shift), (of_position, more) = (
            _gain_and_shift(norm) for norm in (self.of_content, self.of_position)
        )
        heads = len(of_product)
        of_keys = of_product.repeat_interleave(widths[1] // heads)
        qkv = qkv * torch.cat([torch.ones_like(of_keys), of_keys, of_content]).to(qkv.dtype)
        query, key, value = tables
        per_head = query * of_query[:, None], key * (of_key / of_product)[:, None], value * of_position.view(heads, -1)
        return qkv, per_head, shift + more

    def output(self, of_content: Tensor, of_position: Tensor) -> Tensor:
        heads = of_content.shape[1]
        of_content, of_position = (part.transpose(1, 2).flatten(2) for part in (of_content, of_position))
        total = self.of_content(of_content) + self.of_position(of_position)
        return total.unflatten(-1, (heads, -1)).transpose(1, 2)


def _gain_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(norm, nn.BatchNorm1d)
    gain = norm.weight * (norm.get_buffer("running_var") + norm.eps).rsqrt()
    return gain, norm.bias - norm.get_buffer("running_mean") * gain


def _normalised_in_forward_mode(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Normalise x [M, C, L] by a formula: derivatives of torch's tangents are wrong in 2.13 (see `LayerNorm`)."""
    everywhere = torch.ones(1, 1, x.shape[-1], 1, dtype=torch.bool, device=x.device)
    return _normalised_over(norm, x[..., None], everywhere)[..., 0]


def _normalised_over(norm: nn.BatchNorm1d, x: Tensor, allowed: Tensor) -> Tensor:
    """Normalise over the allowed pairs; to index by a mask, a CPU would wait for the GPU."""
    mean = norm.get_buffer("running_mean")
    variance = norm.get_buffer("running_var")
    wide = x if x.dtype == torch.float64 else x.float()
    if norm.training:
        assert norm.momentum is not None
        averages = (mean, variance)
        count = allowed.expand(x.shape[0], 1, -1, -1).sum().clamp(min=1)
        mean = (wide * allowed).sum((0, 2, 3)) / count
        squares = ((wide - mean[:, None, None]) * allowed).square().sum((0, 2, 3))
        variance = squares / count
        for average, new in zip(averages, (mean, squares / (count - 1).clamp(min=1))):
            average.lerp_(new.detach().to(average.dtype), norm.momentum)
        norm.get_buffer("num_batches_tracked").add_(1)
    gain = norm.weight * (variance + norm.eps).rsqrt()
    return (wide * gain[:, None, None] + (norm.bias - mean * gain)[:, None, None]).to(x.dtype)
