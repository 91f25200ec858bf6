"""Attention along lines by the engine, on a CPU: lines are read where a linear layer left them."""

from collections.abc import Callable, Sequence
from ctypes import c_int64, c_void_p
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from axial_transformers.engine.library import address
from axial_transformers.engine.threads import parallel_ranges
from axial_transformers.ops import composed_attention
from axial_transformers.ops.attention_call import AttentionCall, Packing, unpacked
from axial_transformers.ops.line_groups import is_shared, mask_of_lines
from axial_transformers.ops.operators import (
    check_extras,
    check_lines,
    check_written,
    cpu_operator,
    engine,
    has_engine,
    strides_of_lines,
)
from axial_transformers.ops.torch_private import is_transformed

MAX_LENGTH = {torch.float32: 2048, torch.bfloat16: 512}
"""Keys of a query at most: beyond, torch is faster."""
PAYS_FROM = 2**18
PARTS_OF_BIAS = 32
"""Independent of the number of threads."""
AT_ONCE = 2**17
"""Numbers that a core's own cache holds."""


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.q.device.type != "cpu":
        return "the engine runs on a CPU"
    if call.tables is not None or call.full:
        return "it takes lines of one grid, without tables"
    if call.window is not None or call.dilation > 1 or call.dropout:
        return "it has no windows and no dropout"
    if call.bias is None and call.k.shape[-2] != call.v.shape[-2]:
        return "it takes as many heads of values as of keys"
    return engine_refuses(call.q, call.q.shape[call.axis])


def engine_refuses(q: Float[Tensor, "b *a n k"], keys: int) -> str | None:
    """Return why the engine does not take queries on a CPU, or None."""
    if not has_engine():
        return "the engine is not compiled"
    if is_transformed() or torch.compiler.is_exporting():
        return "transforms of torch.func and exported graphs take operations of torch only"
    if q.dtype not in MAX_LENGTH:
        return "the engine takes float32 and bfloat16"
    if keys > MAX_LENGTH[q.dtype]:
        return "the engine takes float32 lines of at most 2048 positions, and bfloat16 lines of at most 512"
    # lines below 32 keys do not fill torch's vectors
    if max(keys, 32) * prod(q.shape[:-1]) < PAYS_FROM:
        return "with few scores, the call takes longer than torch's steps"
    return None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call; any number of derivatives."""
    tensors, bias, present = call.tensors, call.bias, line_mask(call)
    if bias is None:
        return differentiable(_OPERATORS, call, (), (present, call.rotations), (), tensors)
    if call.packing is None:
        tensors, call = call.operands, call._replace(rotations=None)
    heads, length, others = call.q.shape[-2], call.q.shape[call.axis], bias.shape[1:-3]
    if not is_shared(bias):
        others = tuple(size for dim, size in enumerate(call.q.shape[:-2]) if dim not in (0, call.axis))
        bias = bias.expand(len(call.q), *others, -1, -1, -1)
    bias = bias.float().expand(*bias.shape[:-3], heads, length, length).flatten(0, -4)
    # float32, heads before lines, keys before queries
    biases = (bias.transpose(0, 1).mT.contiguous(),)
    return differentiable(_OPERATORS, call, (), (present, call.rotations), biases, tensors)


def line_mask(call: AttentionCall) -> Bool[Tensor, "m l"] | None:
    """Return where keys of the lines are present."""
    present = mask_of_lines(call.key_mask, call.axis)
    return None if present is None else present.contiguous()


class Operators(NamedTuple):
    """What the engine computes.

    forward(qkv, learned, axis, causal, *settings, *fixed, out, sums) writes the last two.
    backward(qkv_grad, learned, axis, causal, *settings, *fixed, sums, grads) writes the gradients of q, k and v, and
    those of `learned` if any is needed; qkv_grad is q, k, v and the gradient of out.
    formula(qkv, learned, axis, causal, *settings, *fixed) returns out, by operations of torch.
    """

    forward: Callable[..., None]
    backward: Callable[..., None]
    formula: Callable[..., Tensor]


def differentiable(
    operators: Operators,
    call: AttentionCall,
    settings: tuple[float, ...],
    fixed: tuple[Tensor | None, ...],
    learned: tuple[Tensor, ...],
    tensors: tuple[Tensor, ...],
) -> Float[Tensor, "b *a n w"]:
    """Return the result of operators: `fixed` has no gradient, `learned` and `tensors` (one, or q, k, v) have."""
    options = call.axis, call.causal, *settings
    counts = len(fixed), len(learned)
    out: Tensor = _Attention.apply(operators, call.packing, options, counts, *fixed, *learned, *tensors)  # type: ignore[no-untyped-call]
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        operators: Operators,
        packing: Packing | None,
        options: tuple[Any, ...],
        counts: tuple[int, int],
        *tensors: Tensor,
    ) -> Tensor:
        fixed, learned, given = _apart(tensors, counts)
        q, k, v = _parts(given, packing)
        out = v.new_empty(*q.shape[:-1], v.shape[-1])
        sums = q.new_empty((q.shape[:-1].numel(), 2), dtype=torch.float32)
        operators.forward([q, k, v], learned, *options, *fixed, out, sums)
        ctx.save_for_backward(sums, *tensors)
        ctx.operators, ctx.packing, ctx.options, ctx.counts = operators, packing, options, counts
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *tensors = ctx.saved_tensors
        fixed, learned, given = _apart(tensors, ctx.counts)
        before = 4 + len(fixed)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # a derivative of this gradient is wanted

            def formula(*tensors: Tensor) -> Tensor:
                learned, given = tensors[: ctx.counts[1]], tensors[ctx.counts[1] :]
                return ctx.operators.formula(_parts(given, ctx.packing), learned, *ctx.options, *fixed)

            return *[None] * before, *gradients_by(formula, [*learned, *given], ctx.needs_input_grad[before:], grad)
        grads = [x.new_empty(x.shape) for x in given]
        d_learned = [x.new_empty(x.shape) for x in learned if any(ctx.needs_input_grad[before : before + len(learned)])]
        parts, written = _parts(given, ctx.packing), [*_parts(grads, ctx.packing), *d_learned]
        ctx.operators.backward([*parts, grad], learned, *ctx.options, *fixed, sums, written)
        return *[None] * before, *(d_learned or [None] * len(learned)), *grads


def gradients_by(
    formula: Callable[..., Tensor], tensors: Sequence[Tensor], needed: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """Return the gradients of a formula's arguments, as differentiable results; None where not needed."""
    own = [x.view_as(x) for x in tensors]  # apart, where one tensor is two arguments
    wanted = [x for x, needs in zip(own, needed) if needs]
    found = iter(torch.autograd.grad(formula(*own), wanted, grad, create_graph=True, allow_unused=True))
    return [next(found) if needs else None for needs in needed]


def _apart(tensors: Sequence[Any], counts: tuple[int, int]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    fixed, learned = counts
    return tensors[:fixed], tensors[fixed : fixed + learned], tensors[fixed + learned :]


def _parts(tensors: Sequence[Tensor], packing: Packing | None) -> Sequence[Tensor]:
    return tensors if packing is None else unpacked(tensors[0], packing)


@cpu_operator("axial_transformers::attend_lines", mutates_args=("out", "sums"))
def _forward(
    qkv: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    present: Tensor | None,
    rotations: Tensor | None,
    out: Tensor,
    sums: Tensor,
) -> None:
    check_written([out], [out], axis)
    lines = _of_lines([*qkv, out], [], biases, axis, causal, present, rotations, sums)

    def work(first: int, last: int) -> None:
        pieces = c_int64(first * lines.at_once), c_int64(last * lines.at_once)
        engine().attend_forward(*lines.arguments, *lines.extras, pointer(sums), *pieces)

    parallel_ranges(work, lines.count)


@cpu_operator("axial_transformers::attend_lines_backward", mutates_args=("grads",))
def _backward(
    qkv_grad: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    present: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    check_written(grads, [*qkv_grad[:3], *biases][: len(grads)], axis)
    lines = _of_lines(qkv_grad, grads[:3], biases, axis, causal, present, rotations, sums)

    def work(first: int, last: int, d_bias: Tensor | None = None) -> None:
        pieces = c_int64(first * lines.at_once), c_int64(last * lines.at_once)
        engine().attend_backward(*lines.arguments, *lines.extras, pointer(sums), pointer(d_bias), *pieces)

    if len(grads) == 3:
        parallel_ranges(work, lines.count)
        return
    count, share = grads[3].shape[:2].numel(), lines.count // grads[3].shape[:2].numel()
    parts = min(share, -(-PARTS_OF_BIAS // count))
    sums_of_parts = torch.zeros(count, parts, *grads[3].shape[2:])

    def work_on_parts(first: int, last: int) -> None:
        for i, part in (divmod(number, parts) for number in range(first, last)):
            begin, end = i * share + share * part // parts, i * share + share * (part + 1) // parts
            work(begin, end, sums_of_parts[i, part])

    parallel_ranges(work_on_parts, count * parts)
    grads[3].copy_(sums_of_parts.sum(1).view_as(grads[3]))


def _formula(
    qkv: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    present: Tensor | None,
    rotations: Tensor | None,
) -> Tensor:
    q, bias = qkv[0], biases[0].transpose(0, 1).mT if biases else None
    others = [size for dim, size in enumerate(q.shape[:-2]) if dim not in (0, axis)]
    if bias is not None:
        lines = [1] * len(others) if len(bias) in (1, len(q)) else others
        bias = bias.view(-1, *lines, *bias.shape[1:])
    if present is not None:
        present = present.view(len(q), *others, -1).movedim(-1, axis)
    return composed_attention.run(AttentionCall(*qkv, axis, causal, present, bias, rotations=rotations))


_OPERATORS = Operators(_forward, _backward, _formula)


class LinesInMemory(NamedTuple):
    """What C takes of a call: `arguments` are tensors, strides and sizes, `extras` mask, bias and rotations."""

    arguments: tuple[c_void_p, ...]
    extras: tuple[c_void_p, ...]
    at_once: int
    """Pieces to compute together."""
    count: int
    """Numbers of such pieces."""
    kept: tuple[Any, ...]
    """What must live as long as C runs."""


def _of_lines(
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    present: Tensor | None,
    rotations: Tensor | None,
    sums: Tensor,
) -> LinesInMemory:
    bias = biases[0] if biases else None
    check_lines(lines, axis, sums, grouped=bias is None)
    check_extras(lines[0], axis, bias, rotations, present)
    group = lines[0].shape[-2] // lines[1].shape[-2]
    if rotations is not None:
        rotations = rotations.detach()[: lines[0].shape[axis]].float().contiguous()
    biases_of_head = None if bias is None else bias.shape[1]
    return lines_in_memory([*lines, *written], axis, causal, [present, bias, rotations], group, biases_of_head)


def lines_in_memory(
    tensors: Sequence[Tensor],
    axis: int,
    causal: bool,
    extras: Sequence[Tensor | None],
    group: int = 1,
    biases: int | None = None,
    radius: int = 0,
    tables: int = 1,
) -> LinesInMemory:
    """Return what C takes of tensors [B, *A, heads, width], of which those that strides do not describe are copied."""
    q, v = tensors[0], tensors[2]
    outer, inner, heads, length = q.shape[:axis].numel(), q.shape[axis + 1 : -2].numel(), q.shape[-2], q.shape[axis]
    of_head = length * (4 * q.shape[-1] + 3 * v.shape[-1])
    shares = [n for n in range(group, heads + 1, group) if heads % n == 0 and (n == group or n * of_head <= AT_ONCE)]
    at_once = 1 if biases else max(shares)
    even = [x if strides_of_lines(x.shape, x.stride(), axis) else x.contiguous() for x in tensors]
    strides = np.array([strides_of_lines(x.shape, x.stride(), axis) for x in even], np.int64)
    numbers = (
        outer,
        inner,
        heads,
        length,
        q.shape[-1],
        v.shape[-1],
        outer * inner // (biases or 1),
        group,
        at_once,
        radius,
    )
    sizes = np.array([*numbers, tables, causal, q.dtype == torch.bfloat16], np.int64)
    arguments = (*map(pointer, even), address(strides), address(sizes))
    count = outer * inner * heads // at_once
    return LinesInMemory(arguments, tuple(map(pointer, extras)), at_once, count, (even, strides, sizes, extras))


def pointer(x: Tensor | None) -> c_void_p:
    """Return where a tensor begins in memory; NULL without one."""
    return c_void_p(None if x is None else x.data_ptr())
