"""Attention along lines by the engine, on a CPU: lines are read where a linear layer left them.

`engine/attention.c` computes it, and `engine/relative.c` equation 4 (`engine_relative`), which is a call with tables.
"""

from collections.abc import Sequence
from ctypes import c_float, c_int64
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from axial_transformers.engine import library, parallel_ranges
from axial_transformers.ops import torch_attention, torch_relative
from axial_transformers.ops.attention_call import AttentionCall, Packing, unpacked
from axial_transformers.ops.line_groups import line_bias, line_mask
from axial_transformers.ops.operators import (
    HAS_ENGINE,
    TABLES,
    check_memory,
    cpu_operator,
    integers,
    line_strides,
    pointer,
)
from axial_transformers.ops.torch_private import is_differentiated, is_observed, is_traced, is_transformed, is_wrapper

MAX_LENGTH = {torch.float32: 2048, torch.bfloat16: 512}
"""Keys of a query at most: beyond, torch is faster."""
PAYS_FROM = 2**18
"""Scores of a call in a compiled graph, or with a bias."""
PARTS_OF_BIAS, PARTS_OF_TABLES = 32, 16
"""Sums of a gradient, whose number does not depend on that of threads."""
AT_ONCE = 2**17
"""Numbers that a core's own cache holds."""
PAIRS = 2
"""For C: bfloat16, and the processor multiplies pairs of it (`engine/pairs.h`)."""


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.tables or call.full:
        return "it takes lines of one grid, without tables"
    if call.window or call.dilation > 1 or call.dropout:
        return "it has no windows and no dropout"
    if call.bias is None and call.k.shape[-2] != call.v.shape[-2]:
        return "it takes as many heads of values as of keys"
    return engine_refuses(call, call.q.shape[call.axis])


def engine_refuses(call: AttentionCall, keys: int) -> str | None:
    """Return why the engine does not take a call, or None."""
    q = call.q
    if q.device.type != "cpu":
        return "the engine runs on a CPU"
    if not HAS_ENGINE:
        return "the engine is not compiled"
    if is_wrapper(q):
        return "the engine reads memory, which a tensor of another class may lack"
    if is_transformed() or torch.compiler.is_exporting() or is_traced():
        return "transforms of torch.func, traces and exported graphs take operations of torch only"
    if q.dtype not in MAX_LENGTH:
        return "the engine takes float32 and bfloat16"
    if keys > MAX_LENGTH[q.dtype]:
        return "the engine takes float32 lines of at most 2048 positions, and bfloat16 lines of at most 512"
    if not q.numel() or not call.v.numel():
        return "there is nothing to compute"
    # lines below 32 keys do not fill torch's vectors
    if (torch.compiler.is_compiling() or call.bias is not None) and max(keys, 32) * prod(q.shape[:-1]) < PAYS_FROM:
        return "with few scores, a compiler fuses the call, and torch has the gradient of a bias sooner"
    return None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call; any number of derivatives."""
    bias = call.bias
    if bias is None:
        return differentiable(call, (), call.tensors)
    if not call.packing:
        q, k, v = call.operands
        call = call._replace(q=q, k=k, v=v, rotations=None)
    return differentiable(call, (_engine_bias(bias, call),), call.tensors)


def _engine_bias(bias: Float[Tensor, "..."], call: AttentionCall) -> Float[Tensor, "n m s l"]:
    """Return a bias in float32 as the engine takes it: heads before lines, keys before queries."""
    length = call.q.shape[call.axis]
    bias = line_bias(bias, call.others)
    if bias.shape[1] > 1:
        bias = bias.expand(len(call.q), -1, -1, -1, -1)
    bias = bias.float().expand(-1, -1, call.q.shape[-2], length, length).flatten(0, 1)
    return bias.transpose(0, 1).mT.contiguous()


def differentiable(
    call: AttentionCall,
    learned: tuple[Tensor, ...],
    tensors: tuple[Tensor, ...],
) -> Float[Tensor, "b *a n w"]:
    """Return the attention of one packed tensor, or of q, k, v, with a bias or three tables to learn."""
    present = line_mask(call)
    if present is not None:
        present = present.contiguous()
    options = call.axis, call.causal, call.scale
    out: Tensor = _Attention.apply(call.packing, options, len(learned), present, call.rotations, *learned, *tensors)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        packing: Packing | None,
        options: tuple[int, bool, float],
        count: int,
        present: Tensor | None,
        rotations: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        q, k, v = _unpacked(tensors[count:], packing)
        out = v.new_empty(*q.shape[:-1], v.shape[-1])
        sums = q.new_empty((q.shape[:-1].numel(), 2), dtype=torch.float32)
        forward: Any = _forward if is_observed(q) else _write_forward
        forward([q, k, v], tensors[:count], *options, present, rotations, out, sums)
        ctx.save_for_backward(sums, present, rotations, *tensors)
        ctx.packing = packing
        ctx.options = options
        ctx.count = count
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, present, rotations, *tensors = ctx.saved_tensors
        packing = ctx.packing
        count = ctx.count
        needed = ctx.needs_input_grad[5:]
        options = *ctx.options, present, rotations
        if not torch.compiler.is_compiling() and is_differentiated(grad):

            def formula(*given: Tensor) -> Tensor:
                return _formula(_unpacked(given[count:], packing), given[:count], *options)

            return *[None] * 5, *torch_attention.gradients_by(formula, tensors, needed, grad)
        learned = tensors[:count]
        given = tensors[count:]
        d_given = [x.new_empty(x.shape) for x in given]
        d_learned = []
        if any(needed[:count]) or count == TABLES:
            d_learned = [x.new_empty(x.shape) for x in learned]
        written = [*_unpacked(d_given, packing), *d_learned]
        backward: Any = _backward if is_observed(grad) else _write_backward
        backward([*_unpacked(given, packing), grad], learned, *options, sums, written)
        return *[None] * 5, *(d_learned or [None] * count), *d_given


def _unpacked(tensors: Sequence[Tensor], packing: Packing | None) -> Sequence[Tensor]:
    return unpacked(tensors[0], packing) if packing else tensors


def _formula(
    qkv: Sequence[Tensor],
    learned: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    rotations: Tensor | None,
) -> Tensor:
    """Return what `_forward` computes, by operations of torch."""
    q, k, v = qkv
    call = AttentionCall(q, k, v, axis, causal, rotations=rotations, scale=scale)
    if present is not None:
        mask = present.view(len(q), *call.others, -1).movedim(-1, axis)
        call = call._replace(key_mask=mask)
    if len(learned) == TABLES:
        query, key, value = learned
        return torch_relative.run(call._replace(tables=(query, key, value)))
    if learned:
        bias = learned[0].transpose(0, 1).mT
        others = call.others
        if len(bias) in (1, len(q)):  # one for all lines of an example
            others = [1] * len(others)
        call = call._replace(bias=bias.reshape(-1, *others, *bias.shape[1:]))
    return torch_attention.run(call)


def _write_forward(  # noqa: PLR0913
    qkv: Sequence[Tensor],
    learned: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    rotations: Tensor | None,
    out: Tensor,
    sums: Tensor,
) -> None:
    """Write the result, and `sums`, which `_backward` needs."""
    check_memory([*qkv, out], [out], learned, axis, present, rotations, sums)
    lines = _lines_in_memory([*qkv, out], [], learned, axis, causal, scale, present, rotations, sums)
    function = getattr(library(), "relative_forward" if len(learned) == TABLES else "attend_forward")

    def work(first: int, last: int) -> None:
        function(*lines.arguments, *lines.pieces(first, last))

    parallel_ranges(work, lines.groups)


_forward = cpu_operator("axial_transformers::attend_lines", mutates_args=("out", "sums"))(_write_forward)


def _write_backward(  # noqa: PLR0913
    qkv_grad: Sequence[Tensor],
    learned: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    """Write the gradients of q, k and v, then those of `learned`; they may be missing for a bias."""
    check_memory(qkv_grad, grads, learned, axis, present, rotations, sums)
    lines = _lines_in_memory(qkv_grad, grads[:3], learned, axis, causal, scale, present, rotations, sums)
    engine: Any = library()
    if len(learned) == TABLES:
        count = min(PARTS_OF_TABLES, lines.groups)
        sums_by_part = [table.new_empty(count, *table.shape) for table in learned]
        arguments = *lines.arguments, *map(pointer, sums_by_part), c_int64(count)
        parallel_ranges(lambda *bounds: engine.relative_backward(*arguments, *map(c_int64, bounds)), count)
        for grad, by_part in zip(grads[3:], sums_by_part):
            grad.copy_(by_part.sum(0))
    elif grads[3:]:
        grads[3].copy_(_bias_gradient(lines, grads[3].shape))
    else:
        arguments = *lines.arguments, pointer(None)
        parallel_ranges(lambda *bounds: engine.attend_backward(*arguments, *lines.pieces(*bounds)), lines.groups)


def _bias_gradient(lines: "_LinesInMemory", shape: torch.Size) -> Tensor:
    """Write the gradients of q, k and v, and return that of a bias: a sum over the lines that share it, in parts."""
    engine: Any = library()
    count = shape[:2].numel()
    share = lines.groups // count
    parts = min(share, -(-PARTS_OF_BIAS // count))
    sums_by_part = torch.zeros(parts, *shape)

    def work(first: int, last: int) -> None:
        for number in range(first, last):
            i, part = divmod(number, parts)
            pieces = lines.pieces(i * share + share * part // parts, i * share + share * (part + 1) // parts)
            engine.attend_backward(*lines.arguments, pointer(sums_by_part[part].flatten(0, 1)[i]), *pieces)

    parallel_ranges(work, count * parts)
    return sums_by_part.sum(0)


_backward = cpu_operator("axial_transformers::attend_lines_backward", mutates_args=("grads",))(_write_backward)


@register_flop_formula(torch.ops.axial_transformers.attend_lines)
def _count_flops(
    qkv: Sequence[torch.Size],
    learned: Sequence[torch.Size],
    axis: int,
    *_: Any,
    **__: Any,
) -> int:
    """Return FLOPs of products, from shapes, as torch counts those of the formula."""
    q, _, v = qkv[:3]
    keys = q[axis]
    products = q[-1] + v[-1]
    if len(learned) == TABLES:
        keys = min(keys, learned[0][0])
        products = 3 * q[-1] + 2 * v[-1]
    return 2 * prod(q[:-1]) * keys * products


@register_flop_formula(torch.ops.axial_transformers.attend_lines_backward)
def _count_backward_flops(*shapes: Any, **_: Any) -> int:
    flops: int = _count_flops(*shapes)
    return 2 * flops


class _LinesInMemory(NamedTuple):
    arguments: tuple[Any, ...]
    """What C takes: tensors, strides, sizes, mask, bias and rotations or tables and scale, sums."""
    groups: int
    """Number of groups, each of `at_once` pieces that are computed together."""
    at_once: int
    kept: tuple[Any, ...]
    """What must live as long as C runs."""

    def pieces(self, first: int, last: int) -> tuple[c_int64, c_int64]:
        return c_int64(first * self.at_once), c_int64(last * self.at_once)


def _lines_in_memory(  # noqa: PLR0913
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    learned: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
) -> _LinesInMemory:
    """Return what C takes; q, k, v and the result or its gradient are copied if their lines have no even strides."""
    q, k, v, _ = lines
    length = q.shape[axis]
    at_once = 1 if len(learned) == 1 else _heads_at_once(q, k, v, length)
    if len(learned) == TABLES:
        extras: list[Tensor | None] = [present, *learned]
        scales = [c_float(scale)]
    else:
        if rotations is not None:
            rotations = rotations.detach()[:length].float().contiguous()
        extras = [present, learned[0] if learned else None, rotations]
        scales = []
    tensors = [x if line_strides(x.shape, x.stride(), axis) else x.contiguous() for x in lines]
    tensors += written
    strides: list[int] = []
    for x in tensors:
        strides += line_strides(x.shape, x.stride(), axis) or ()
    arguments = (
        *map(pointer, tensors),
        integers(tuple(strides)),
        integers(_sizes(q, k, v, learned, axis, causal, at_once)),
        *map(pointer, extras),
        *scales,
        pointer(sums),
    )
    groups = q.shape[:-1].numel() // length // at_once
    return _LinesInMemory(arguments, groups, at_once, (tensors, extras))


def _sizes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    learned: Sequence[Tensor],
    axis: int,
    causal: bool,
    at_once: int,
) -> tuple[int, ...]:
    """Return the numbers of `Sizes` (engine/lines.h), in their order."""
    outer = q.shape[:axis].numel()
    inner = q.shape[axis + 1 : -2].numel()
    heads, width = q.shape[-2:]
    sharing = outer * inner
    radius = 0
    table_heads = 1
    if len(learned) == TABLES:
        radius = len(learned[0]) // 2
        table_heads = learned[0].shape[1]
    elif learned:
        sharing //= learned[0].shape[1]
    return (
        outer,
        inner,
        heads,
        q.shape[axis],
        width,
        v.shape[-1],
        sharing,
        heads // k.shape[-2],
        at_once,
        radius,
        table_heads,
        causal,
        _bfloat16(q),
    )


def _heads_at_once(q: Tensor, k: Tensor, v: Tensor, length: int) -> int:
    """Return how many heads of a line a core's cache holds: whole groups that share keys, at least one."""
    heads, width = q.shape[-2:]
    group = heads // k.shape[-2]
    numbers = length * (4 * width + 3 * v.shape[-1])
    at_once = group
    for count in range(group, heads + 1, group):
        if heads % count == 0 and count * numbers <= AT_ONCE:
            at_once = count
    return at_once


def _bfloat16(q: Tensor) -> int:
    """Return for C whether tensors are bfloat16, and how they are multiplied."""
    if q.dtype != torch.bfloat16:
        return 0
    engine: Any = library()
    return PAIRS if engine.multiplies_pairs else 1
