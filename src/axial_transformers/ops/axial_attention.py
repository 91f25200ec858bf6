"""Attention along one axis of an N-D tensor, also with weights that lines share; `ops.reference` has the definition."""

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
    """Attention of every site to the sites of its own line along one axis: softmax(q . k / sqrt(K) + bias) v.

    Args:
        q: [B, *A, heads, head_dim]; examples and heads are independent of each other.
        k, v: [B, *A, heads, head_dim]; if they have fewer heads, a divisor, each serves as many successive heads of q
            (grouped queries, Ainslie et al. 2023). All three have one floating-point dtype.
        axis: the dimension of q that is attended along, 1..d (or counted from the end, -3 for the innermost axis).
        causal: a site attends to itself and the sites before it on its line (Ho et al. 2019, masked attention).
        key_mask: [B, *A], True where a site is present, for ragged sizes. A site whose line has none gets zeros.
        attn_bias: added to the scores; differentiable. [B, heads, L, L], queries before keys, for all lines of an
            example, or a bias a line, [B, *A without axis, heads, L, L]; any size may be 1. With a span its last size
            is the span: column R + j is of the key at o + j * dilation. Minus infinity excludes a key; a query without
            any key gets zeros.
        span: odd, 2R + 1: a site o attends to the sites o + j * dilation, j = -R..R, only (j <= 0 if causal), in time
            and memory linear in L.
        dilation: a site attends to every dilation-th site of its line only, itself among them.
        dropout: the probability with which a weight is set to zero; the others are divided by 1 - dropout.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` is not one of the axes of the data, shapes, dtypes or devices do not fit, an even span, a
            dilation below 1, a dropout outside 0 <= p < 1, or an `attn_bias` with a dilation but no span.
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
        span = None  # the window is never shorter than the line
    if attn_bias is not None:
        attn_bias = _bias_of_lines(attn_bias, q, axis, span, dilation)
    if dilation > 1 and not any_length:
        dilation = min(dilation, max(1, q.shape[axis]))  # no site then has another one in reach
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
    """`axial_attention` of queries, keys and values in one tensor, the output of one linear layer.

    Args:
        qkv: [B, *A, E], queries, then keys, then values, each a head after the other.
        widths: of queries, of keys, of values, all heads together; their sum is E.
        heads, axis, causal, key_mask, attn_bias: as for `axial_attention`, with q [B, *A, heads, head_dim].
        rotations: of queries and keys before the products, see `ops.positions.rotate`.
    """
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
    """Queries, keys and values [B, *A, heads, width] of a packed projection, those of a head beside each other.

    A head is then as far from the next as the last head of a site from the first of the next site, so that
    `axial_attention` needs no copy of them along any axis: the sites inside of an axis are more heads.

    Args:
        weight, bias: of the projection whose output `axial_self_attention` takes, with `heads` and `widths`.
    """

    def by_head(rows: Tensor) -> Tensor:
        return torch.cat([part.unflatten(0, (heads, -1)) for part in rows.split(widths)], dim=1).flatten(0, 1)

    qkv = linear(x, by_head(weight), None if bias is None else by_head(bias)).unflatten(-1, (heads, -1))
    q, k, v = qkv.split([width // heads for width in widths], dim=-1)
    return q, k, v


def by_head_pays(x: Float[Tensor, "b *a d"], axis: int, key_mask: Tensor | None) -> bool:
    """Whether `project_by_head` avoids copies along axis 1..d: on a GPU, not along the innermost, without a mask."""
    return copies_count(x.device) and key_mask is None and axis != x.ndim - 2


def own_places(k: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n l"]:
    """Values whose attention is its weights: 1 at the place of a key along the axis, 0 elsewhere."""
    length, axis = k.shape[axis], data_axis(k, axis)
    of_axis = [length if dim in (axis, k.ndim - 1) else 1 for dim in range(k.ndim)]
    return torch.eye(length, dtype=k.dtype, device=k.device).view(of_axis).expand(*k.shape[:-1], length)


def attend_step(
    q: Float[Tensor, "m n k"],
    keys: Float[Tensor, "m h s k"],
    values: Float[Tensor, "m h s w"],
    bias: Float[Tensor, "n s"] | None = None,
) -> Float[Tensor, "m n w"]:
    """Attention of one query a line to the s keys and values in a cache; successive heads of q may share theirs."""
    scores = (q.unflatten(1, (keys.shape[1], -1)) @ keys.mT) / sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias.unflatten(0, scores.shape[1:3])
    return (torch.softmax(scores, dim=-1) @ values).flatten(1, 2)


def _is_of_any_length(q: Float[Tensor, "b *a n k"], axis: int) -> bool:
    """Whether a graph is exported whose lines have any length: nothing may depend on a comparison of it."""
    return isinstance(q.shape[axis], torch.SymInt) and torch.compiler.is_exporting()


def _heads_to_one(x: Float[Tensor, "b *a h k"], q: Float[Tensor, "b *a n k"]) -> int:
    """Successive heads of q that share a head of keys or values x (grouped queries); 1 if they cannot."""
    heads, groups = q.shape[-2], x.shape[-2]
    return heads // groups if 0 < groups < heads and heads % groups == 0 else 1


def _bias_of_lines(bias: Tensor, q: Tensor, axis: int, span: int | None, dilation: int) -> Tensor:
    """`attn_bias` as [B, *A without axis, heads, L, L or span], where any size may be 1.

    Raises:
        ValueError: its shape does not fit, or there is a dilation without a span.
    """
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
    """Attention along the lines of every dilation-th site: L = places * dilation, and `dilation` is one more axis."""
    length = qkv[0].shape[axis]
    beyond = -length % dilation
    if key_mask is None and (isinstance(beyond, torch.SymInt) or beyond):
        key_mask = torch.ones(qkv[0].shape[:-2], dtype=torch.bool, device=qkv[0].device)

    def apart(x: Tensor, dim: int) -> Tensor:
        x = F.pad(x, [0, 0] * (x.ndim - 1 - dim) + [0, beyond])
        return x.unflatten(dim, (-1, dilation))

    if bias is not None:  # the new axis comes after `axis`
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
    """`axial_attention` with a bias, a window or dropout: the lines of each example are a group."""
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
            if span is not None:  # blocks cannot be counted: a mask of all pairs
                inside = inside & (offset.abs() <= span // 2 * dilation)
                bias = None if bias is None else _of_all_pairs(bias, offset // dilation)
            allowed = inside[None, None, None] if allowed is None else allowed & inside
        out = torch_attention.attend_groups(q, k, v, bias, allowed, dropout)
    return from_lines(out.flatten(0, 1), qkv[2], axis)


def _of_all_pairs(bias: Float[Tensor, "#b #m #n #l span"], steps: Tensor) -> Float[Tensor, "#b #m #n l l"]:
    """A bias of the places of a window as one of pairs, that are so many steps [L, L] apart; any number outside."""
    span = bias.shape[-1]
    column = (steps + span // 2).clamp(0, span - 1).expand(*bias.shape[:-2], -1, -1)
    return bias.expand(*bias.shape[:-2], steps.shape[0], span).gather(-1, column)


def _shared(bias: Tensor) -> bool:
    """Whether all lines of an example have the same bias [B, *A without axis, heads, L, L or span]."""
    return all(size == 1 for size in bias.shape[1:-3])


def _of_examples(bias: Tensor) -> Float[Tensor, "#b #n #l #l"]:
    """A shared bias without the axes of the lines."""
    return bias.reshape(len(bias), *bias.shape[-3:])


def _is_compiled(q: Float[Tensor, "b *a n k"], axis: int) -> bool:
    return compiled_can_run(q.device, q.dtype, q.shape[axis], prod(q.shape[:-1])) is None


def to_lines(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    """[B, *A, N, K] -> [lines, N, L, K]: the lines along `axis`, 1..d, as torch's kernels take them."""
    return x.movedim(axis, -3).flatten(0, -4).transpose(1, 2)


def mask_of_lines(key_mask: Bool[Tensor, " b *a"] | None, axis: int) -> Bool[Tensor, "m l"] | None:
    """A mask of the lines along `axis`, 1..d; None stays None."""
    return None if key_mask is None else key_mask.movedim(axis, -1).flatten(0, -2)


def from_lines(out: Float[Tensor, "m n l w"], like: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "b *a n w"]:
    """The inverse of `to_lines`, onto the grid of `like`."""
    rest = [size for dim, size in enumerate(like.shape[:-2]) if dim != axis]
    return out.transpose(1, 2).unflatten(0, rest).movedim(-3, axis)


def _more_heads_are_a_view(x: Float[Tensor, "b *a n k"], axis: int) -> bool:
    """Whether there are sites inside of `axis`, and all [outer axes], and all [inner axes, heads], are evenly spaced.

    If so, and if the kernel takes as many heads, torch's fused kernels read the lines where they lie, by strides.
    """
    if not copies_count(x.device) or axis == x.ndim - 3:
        return False
    groups = range(axis - 1), range(axis + 1, x.ndim - 2)
    evenly = all(x.stride(d) == x.stride(d + 1) * x.shape[d + 1] for dims in groups for d in dims)
    heads = x.shape[axis + 1 : -1].numel()
    return evenly and torch_attention.most_lines(heads, x.shape[axis], x.shape[-1]) > 0


def _as_more_heads(x: Float[Tensor, "b *a n k"], axis: int) -> Float[Tensor, "m n l k"]:
    """[B, *A, N, K] -> [outer, inner * N, L, K]: the lines along `axis`; sites inside of it count as heads."""
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
    """Tied row attention (Rao et al. 2021, MSA Transformer): one set of weights for all lines along the axis `tied`.

    out[r, o] = sum_p softmax_p(sum_s q[s, o] . k[s, p] / sqrt(R K)) v[r, p], of [B, rows, columns, heads, K] with
    axis=2 and tied=1. It is `axial_attention` of heads R times as wide, those of all rows beside each other.

    Args:
        q, k, v: [B, *A, heads, head_dim], with the same number of heads.
        axis: the dimension attended along, 1..d, or counted from the end.
        tied: the dimension whose lines share their weights; another one.
        causal: as for `axial_attention`.
        key_mask: [B, *A], True where a site is present. Others add nothing to the scores and have the value zero; R
            counts the rows with a site that is present. A place that is absent from all rows is not attended to.
        attn_bias: as for `axial_attention` of the grid without the axis `tied`.

    Returns:
        [B, *A, heads, value_dim], the dtype of v.

    Raises:
        ValueError: `axis` and `tied` are not two axes of the data, or shapes or dtypes do not fit each other.
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
