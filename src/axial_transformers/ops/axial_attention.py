"""Attention along one axis of an N-D tensor; `ops.reference` defines it."""

from collections.abc import Callable
from functools import partial
from math import prod, sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.ops import compiled_attention, torch_attention
from axial_transformers.ops.argument_checks import check_options, check_tensors, data_axis
from axial_transformers.ops.kernel_choice import compiled_can_run, copies_count
from axial_transformers.ops.linear import linear
from axial_transformers.ops.positions import rotate


def axial_attention(  # noqa: PLR0913
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a h k"],
    v: Float[Tensor, "b *a h w"],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    *,
    span: int | None = None,
    dilation: int = 1,
    dropout: float = 0.0,
) -> Float[Tensor, "b *a n w"]:
    """Attend from every site to the sites of its line along one axis: softmax(q . k / sqrt(K) + bias) v.

    Args:
        q: [B, *A, heads, head_dim].
        k, v: [B, *A, heads, head_dim], of q's dtype. May have fewer heads (grouped-query attention, Ainslie et al.
            2023); their number must divide q's.
        axis: dimension of q to attend along: 1..d, or from the end (-3 is the innermost axis).
        causal: attend only to the site itself and to earlier ones.
        key_mask: [B, *A], True where a site is present (PyTorch's `key_padding_mask` is the opposite). A query without
            any key gets zeros.
        attn_bias: added to the scores, differentiable; minus infinity excludes a key. [B, heads, L, L], queries before
            keys, or [B, *A without axis, heads, L, L], a bias per line; any size may be 1. With a span, the last size
            is the span: column R + j belongs to the key at o + j * dilation.
        span: odd window size 2R + 1: site o attends to o + j * dilation for |j| <= R. Time and memory are linear in L.
        dilation: attend only to every dilation-th site, the site itself included.
        dropout: probability p that a weight becomes zero; the others are divided by 1 - p.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: shapes, dtypes, devices or options do not fit, or `attn_bias` has a dilation but no span.
    """
    axis = data_axis(q, axis)
    sharing = _heads_to_one(k, q), _heads_to_one(v, q)
    of_keys, of_values = ((*x.shape[:-2], x.shape[-2] * heads) for x, heads in zip((k, v), sharing))
    if q.shape != (*of_keys, k.shape[-1]) or of_values != of_keys:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all but v's last size; only "
            "the heads of k and v may be fewer, a divisor of those of q"
        )
    check_tensors(key_mask, attn_bias, q=q, k=k, v=v)
    check_options(span, dilation, dropout)
    any_length = _is_of_any_length(q, axis)
    if span is not None and attn_bias is None and not any_length and span // 2 * dilation >= q.shape[axis] - 1:
        span = None
    if attn_bias is not None:
        attn_bias = _bias_of_lines(attn_bias, q, axis, span, dilation)
    if dilation > 1 and not any_length:
        dilation = min(dilation, max(1, q.shape[axis]))
    if dilation > 1 and not any_length:
        attend = partial(axial_attention, causal=causal, span=span, dropout=dropout)
        return _dilated((q, k, v), axis, dilation, key_mask, attn_bias, attend)
    optional = attn_bias is not None or span is not None or dropout or dilation > 1
    if not optional and sharing[0] == sharing[1] and _is_compiled(q, axis):
        return compiled_attention.attend((q, k, v), None, axis, causal, key_mask)
    k, v = (x.repeat_interleave(heads, dim=-2) if heads > 1 else x for x, heads in zip((k, v), sharing))
    if optional:
        return _with_options((q, k, v), axis, causal, key_mask, attn_bias, span, dropout, dilation)
    if key_mask is None and all(_more_heads_are_a_view(x, axis) for x in (q, k, v)):
        out = torch_attention.attend(_as_more_heads(q, axis), _as_more_heads(k, axis), _as_more_heads(v, axis), causal)
        return out.transpose(1, 2).reshape(v.shape)
    mask = mask_of_lines(key_mask, axis)
    out = torch_attention.attend(to_lines(q, axis), to_lines(k, axis), to_lines(v, axis), causal, mask)
    return from_lines(out, q, axis)


def axial_self_attention(
    qkv: Float[Tensor, "b *a e"],
    heads: int,
    widths: tuple[int, int, int],
    axis: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
    rotations: Float[Tensor, "l k"] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Return `axial_attention` of one tensor: queries, then keys, then values, head after head."""
    axis = data_axis(qkv.unsqueeze(-1), axis)
    check_tensors(key_mask, attn_bias, rotations, k=qkv.unsqueeze(-1))
    packing = heads, *widths
    q, k, v = compiled_attention.unpacked((qkv,), packing)
    bias = None if attn_bias is None else _bias_of_lines(attn_bias, q, axis, span=None, dilation=1)
    if _is_compiled(q, axis) and (bias is None or _shared(bias)):
        bias = None if bias is None else _of_examples(bias)
        return compiled_attention.attend((qkv,), packing, axis, causal, key_mask, bias, rotations)
    if rotations is not None:
        q, k = (rotate(part, rotations, axis) for part in (q, k))
    return axial_attention(q, k, v, axis, causal, key_mask, attn_bias)


def project_by_head(
    x: Float[Tensor, "b *a d"],
    weight: Float[Tensor, "e d"],
    bias: Float[Tensor, " e"] | None,
    heads: int,
    widths: tuple[int, int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a packed projection, grouped by head.

    Inner sites then act as more heads, and attention copies nothing.
    """

    def by_head(rows: Tensor) -> Tensor:
        return torch.cat([part.unflatten(0, (heads, -1)) for part in rows.split(widths)], dim=1).flatten(0, 1)

    qkv = linear(x, by_head(weight), None if bias is None else by_head(bias)).unflatten(-1, (heads, -1))
    q, k, v = qkv.split([width // heads for width in widths], dim=-1)
    return q, k, v


def by_head_pays(x: Float[Tensor, "b *a d"], axis: int, key_mask: Tensor | None) -> bool:
    """Return True if `project_by_head` avoids copies."""
    return copies_count(x.device) and key_mask is None and axis != x.ndim - 2


def own_places(k: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n l"]:
    """Return values whose attention is its weights."""
    length, axis = k.shape[axis], data_axis(k, axis)
    of_axis = [length if dim in (axis, k.ndim - 1) else 1 for dim in range(k.ndim)]
    return torch.eye(length, dtype=k.dtype, device=k.device).view(of_axis).expand(*k.shape[:-1], length)


def attend_step(
    q: Float[Tensor, "m n k"],
    keys: Float[Tensor, "m h s k"],
    values: Float[Tensor, "m h s w"],
    bias: Float[Tensor, "n s"] | None = None,
) -> Float[Tensor, "m n w"]:
    """Attend from one query per line to cached keys and values."""
    scores = (q.unflatten(1, (keys.shape[1], -1)) @ keys.mT) / sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias.unflatten(0, scores.shape[1:3])
    return (torch.softmax(scores, dim=-1) @ values).flatten(1, 2)


def _is_of_any_length(q: Float[Tensor, "b *a n k"], axis: int) -> bool:
    return isinstance(q.shape[axis], torch.SymInt) and torch.compiler.is_exporting()


def _heads_to_one(x: Float[Tensor, "b *a h k"], q: Float[Tensor, "b *a n k"]) -> int:
    heads, groups = q.shape[-2], x.shape[-2]
    return heads // groups if 0 < groups < heads and heads % groups == 0 else 1


def _bias_of_lines(bias: Tensor, q: Tensor, axis: int, span: int | None, dilation: int) -> Tensor:
    if not bias.is_floating_point():
        raise ValueError(f"attn_bias is added to the scores, and must be of a floating-point dtype, not {bias.dtype}")
    if span is None and dilation > 1:
        raise ValueError("attn_bias with a dilation needs a span: its columns are then the places of the window")
    length, others = q.shape[axis], [size for dim, size in enumerate(q.shape[:-2]) if dim not in (0, axis)]
    keys = length if span is None else span
    full = [q.shape[0], *others, q.shape[-2], length, keys]
    of_lines = bias[:, *[None] * len(others)] if bias.ndim == 4 else bias
    if of_lines.ndim != len(full) or any(a not in (1, b) for a, b in zip(of_lines.shape, full)):
        by_line = f", or {full} for one a line" if others else ""
        raise ValueError(
            f"attn_bias must be {[full[0], *full[-3:]]}{by_line}, with sizes of 1 where it is the same, not "
            f"{list(bias.shape)}"
        )
    return of_lines if span is None else of_lines.expand(*of_lines.shape[:-1], span)


def _dilated(
    qkv: tuple[Tensor, Tensor, Tensor],
    axis: int,
    dilation: int,
    key_mask: Tensor | None,
    bias: Tensor | None,
    attend: Callable[..., Tensor],
) -> Tensor:
    length = qkv[0].shape[axis]
    beyond = -length % dilation
    if key_mask is None and (isinstance(beyond, torch.SymInt) or beyond):
        key_mask = torch.ones(qkv[0].shape[:-2], dtype=torch.bool, device=qkv[0].device)

    def apart(x: Tensor, dim: int) -> Tensor:
        x = F.pad(x, [0, 0] * (x.ndim - 1 - dim) + [0, beyond])
        return x.unflatten(dim, (-1, dilation))

    if bias is not None:
        rows = bias.unsqueeze(-2) if bias.shape[-2] == 1 else apart(bias, bias.ndim - 2)
        bias = rows.movedim(-2, axis)
    key_mask = None if key_mask is None else apart(key_mask, axis)
    out = attend(*(apart(x, axis) for x in qkv), axis, key_mask=key_mask, attn_bias=bias)
    return out.flatten(axis, axis + 1).narrow(axis, 0, length)


def _with_options(
    qkv: tuple[Tensor, Tensor, Tensor],
    axis: int,
    causal: bool,
    key_mask: Tensor | None,
    bias: Tensor | None,
    span: int | None,
    dropout: float,
    dilation: int,
) -> Tensor:
    if bias is not None and span is None and not dropout and _shared(bias) and _is_compiled(qkv[0], axis):
        return compiled_attention.attend(qkv, None, axis, causal, key_mask, _of_examples(bias))
    sizes = qkv[0].shape[:-2]
    batch, length, others = sizes[0], sizes[axis], sizes[1:axis] + sizes[axis + 1 :]
    lines = prod(others)
    q, k, v = (to_lines(x, axis).unflatten(0, (batch, lines)) for x in qkv)
    present = None if key_mask is None else key_mask.movedim(axis, -1).reshape(batch, lines, length)
    if bias is not None:
        if not _shared(bias):
            bias = bias.expand(-1, *others, -1, -1, -1)
        bias = bias.flatten(1, -4) if others else bias.unsqueeze(1)
    if span is not None and not _is_of_any_length(qkv[0], axis):
        out = torch_attention.attend_windows(q, k, v, span, causal, bias, present, dropout)
    else:
        allowed = None if present is None else present[:, :, None, None, :]
        if causal or dilation > 1 or span is not None:
            place = torch.arange(length, device=q.device)
            offset = place - place[:, None]
            inside = offset % dilation == 0
            if causal:
                inside = inside & (offset <= 0)
            if span is not None:  # blocks cannot be counted, so mask all pairs
                inside = inside & (offset.abs() <= span // 2 * dilation)
                bias = None if bias is None else _of_all_pairs(bias, offset // dilation)
            allowed = inside[None, None, None] if allowed is None else allowed & inside
        out = torch_attention.attend_groups(q, k, v, bias, allowed, dropout)
    return from_lines(out.flatten(0, 1), qkv[2], axis)


def _of_all_pairs(bias: Float[Tensor, "#b #m #n #l span"], steps: Tensor) -> Float[Tensor, "#b #m #n l l"]:
    span = bias.shape[-1]
    column = (steps + span // 2).clamp(0, span - 1).expand(*bias.shape[:-2], -1, -1)
    return bias.expand(*bias.shape[:-2], steps.shape[0], span).gather(-1, column)


def _shared(bias: Tensor) -> bool:
    return all(size == 1 for size in bias.shape[1:-3])


def _of_examples(bias: Tensor) -> Float[Tensor, "#b #n #l #l"]:
    return bias.reshape(len(bias), *bias.shape[-3:])


def _is_compiled(q: Float[Tensor, "b *a n k"], axis: int) -> bool:
    return compiled_can_run(q.device, q.dtype, q.shape[axis], prod(q.shape[:-1])) is None


def to_lines(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    """Return the lines along `axis`, 1..d."""
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def mask_of_lines(key_mask: Bool[Tensor, " b *a"] | None, axis: int) -> Bool[Tensor, "m l"] | None:
    """Return the mask of the lines along `axis`."""
    return None if key_mask is None else key_mask.movedim(axis, -1).flatten(0, -2)


def from_lines(out: Float[Tensor, "m n l w"], like: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n w"]:
    """Undo `to_lines`, onto the grid of `like`."""
    rest = [size for dim, size in enumerate(like.shape[:-2]) if dim != axis]
    return out.transpose(1, 2).unflatten(0, rest).movedim(-3, axis)


def _more_heads_are_a_view(x: Float[Tensor, "b *a n k"], axis: int) -> bool:
    if not copies_count(x.device) or axis == x.ndim - 3:
        return False
    groups = range(axis - 1), range(axis + 1, x.ndim - 2)
    evenly = all(x.stride(d) == x.stride(d + 1) * x.shape[d + 1] for dims in groups for d in dims)
    heads = x.shape[axis + 1 : -1].numel()
    return evenly and torch_attention.most_lines(heads, x.shape[axis], x.shape[-1]) > 0


def _as_more_heads(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    return x.flatten(axis + 1, -2).flatten(0, axis - 1).transpose(1, 2)


def tied_axial_attention(
    q: Float[Tensor, "b *a n k"],
    k: Float[Tensor, "b *a n k"],
    v: Float[Tensor, "b *a n w"],
    axis: int,
    tied: int,
    causal: bool = False,
    key_mask: Bool[Tensor, " b *a"] | None = None,
    attn_bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "b *a n w"]:
    """Attend with one set of weights for all lines along `tied` (Rao et al. 2021, MSA Transformer).

    out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p] for [B, rows, columns, heads, K], with
    axis=2 and tied=1.

    Args:
        q, k, v: [B, *A, heads, head_dim], with equal numbers of heads.
        axis: dimension to attend along: 1..d, or from the end.
        tied: another dimension, whose lines share their weights.
        causal: see `axial_attention`.
        key_mask: [B, *A], True where a site is present. Absent sites have scores and values of zero. R counts rows with
            a present site. Columns absent from all rows are excluded.
        attn_bias: see `axial_attention`, for the grid without the axis `tied`.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` and `tied` are not two axes of the data, or shapes or dtypes do not fit.
    """
    axis, tied = data_axis(q, axis), data_axis(q, tied)
    if axis == tied:
        raise ValueError(f"attention along axis {axis} cannot be tied over the same axis")
    check_tensors(key_mask, attn_bias, q=q, k=k, v=v)
    if q.shape != k.shape or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} must share all but v's last size")
    rows = q.shape[tied]
    if key_mask is not None:
        wide = torch.promote_types(q.dtype, torch.float32)
        there = key_mask.any(dim=axis, keepdim=True).sum(dim=tied, keepdim=True).clamp(min=1).to(wide)
        absent = ~key_mask[..., None, None]
        q, k, v = (x.masked_fill(absent, 0) for x in (q, k, v))
        q = q * (rows / there)[..., None, None].sqrt().to(q.dtype)
        key_mask = key_mask.any(dim=tied)

    def beside(x: Tensor) -> Tensor:
        return x.movedim(tied, -2).flatten(-2)

    out = axial_attention(beside(q), beside(k), beside(v), axis - (axis > tied), causal, key_mask, attn_bias)
    return out.unflatten(-1, (rows, v.shape[-1])).movedim(-2, tied)
