"""Attention along lines by compiled kernels, on a CPU: lines are read where a linear layer left them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from axial_transformers.kernels import Sizes, Strides, line_kernels, parallel_ranges
from axial_transformers.ops.attention_call import AttentionCall, Packing, unpacked
from axial_transformers.ops.line_groups import is_shared
from axial_transformers.ops.operators import (
    HAS_NUMBA,
    check_extras,
    check_lines,
    check_written,
    cpu_operator,
    strides_of_lines,
)
from axial_transformers.ops.torch_private import is_transformed

MAX_LENGTH = {torch.float32: 2048, torch.bfloat16: 512}
"""Keys of a query at most: beyond, torch is faster."""
PAYS_FROM = 2**18
PARTS_OF_BIAS = 32
"""Independent of the number of threads."""
AT_ONCE = 2**17
"""A core's own cache."""
TILES_PAY_FROM = 512
"""Length times width, in bfloat16."""
NONE, NO_MASK = np.zeros(0, np.float32), np.zeros(0, np.uint8)


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.q.device.type != "cpu":
        return "compiled kernels run on a CPU"
    if call.tables is not None or call.full:
        return "it takes lines of one grid, without tables"
    if call.key_mask is not None:
        return "it takes no key mask"
    if call.window is not None or call.dilation > 1 or call.dropout:
        return "it has no windows and no dropout"
    if call.bias is not None and not is_shared(call.bias):
        return "it takes one bias for all lines of an example"
    if call.bias is None and call.k.shape[-2] != call.v.shape[-2]:
        return "it takes as many heads of values as of keys"
    return kernels_refuse(call.q, call.q.shape[call.axis])


def kernels_refuse(q: Float[Tensor, "b *a n k"], keys: int) -> str | None:
    """Return why compiled kernels do not take queries on a CPU, or None."""
    if not HAS_NUMBA:
        return "numba is not installed"
    if is_transformed() or torch.compiler.is_exporting():
        return "transforms of torch.func and exported graphs take operations of torch only"
    if q.dtype not in MAX_LENGTH:
        return "compiled kernels take float32 and bfloat16"
    if keys > MAX_LENGTH[q.dtype]:
        return "compiled kernels take float32 lines of at most 2048 positions, and bfloat16 lines of at most 512"
    # lines below 32 keys do not fill torch's vectors
    if max(keys, 32) * prod(q.shape[:-1]) < PAYS_FROM:
        return "with few scores, the call takes longer than torch's steps"
    return None


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call; first derivatives only."""
    tensors, bias, fixed = call.tensors, call.bias, (call.rotations,)
    if bias is None:
        return differentiable(_OPERATORS, call, (), fixed, (), tensors)
    if call.packing is None:
        tensors = call.operands
    heads, length = call.q.shape[-2], call.q.shape[call.axis]
    bias = bias.reshape(len(bias), *bias.shape[-3:]).float().expand(-1, heads, length, length)
    # float32, heads before examples, keys before queries
    return differentiable(_OPERATORS, call, (), fixed, (bias.transpose(0, 1).mT.contiguous(),), tensors)


class Operators(NamedTuple):
    """What kernels compute.

    forward(qkv, learned, axis, causal, *settings, *fixed, out, sums) writes the last two.
    backward(qkv_grad, learned, axis, causal, *settings, *fixed, sums, grads) writes the gradients of q, k and v, and
    those of `learned` if any is needed; qkv_grad is q, k, v and the gradient of out.
    """

    forward: Callable[..., None]
    backward: Callable[..., None]


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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sums, *tensors = ctx.saved_tensors
        fixed, learned, given = _apart(tensors, ctx.counts)
        before = 4 + len(fixed)
        grads = [x.new_empty(x.shape) for x in given]
        d_learned = [x.new_empty(x.shape) for x in learned if any(ctx.needs_input_grad[before : before + len(learned)])]
        parts, written = _parts(given, ctx.packing), [*_parts(grads, ctx.packing), *d_learned]
        ctx.operators.backward([*parts, grad], learned, *ctx.options, *fixed, sums, written)
        return *[None] * before, *(d_learned or [None] * len(learned)), *grads


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
    rotations: Tensor | None,
    out: Tensor,
    sums: Tensor,
) -> None:
    check_written([out], [out], axis)
    arrays, strides, sizes = _of_lines([*qkv, out], [], biases, axis, rotations, sums)
    kernels, extras = _kernels(qkv[0], sizes), _extras(biases, rotations, sizes)

    def work(first: int, last: int) -> None:
        pieces = first * sizes.at_once, last * sizes.at_once
        kernels.forward(*arrays, strides, sizes, causal, *extras, sums.numpy(), *pieces)

    parallel_ranges(work, len(sums) // (sizes.length * sizes.at_once))


@cpu_operator("axial_transformers::attend_lines_backward", mutates_args=("grads",))
def _backward(
    qkv_grad: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    causal: bool,
    rotations: Tensor | None,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    check_written(grads, [*qkv_grad[:3], *biases][: len(grads)], axis)
    arrays, strides, sizes = _of_lines(qkv_grad, grads[:3], biases, axis, rotations, sums)
    kernels, extras = _kernels(qkv_grad[0], sizes), _extras(biases, rotations, sizes)

    def work(first: int, last: int, d_bias: NDArray[np.float32] = NONE) -> None:
        pieces = first * sizes.at_once, last * sizes.at_once
        kernels.backward(*arrays, strides, sizes, causal, *extras, d_bias, sums.numpy(), *pieces)

    if len(grads) == 3:
        parallel_ranges(work, len(sums) // (sizes.length * sizes.at_once))
        return
    biases_of_lines, lines = grads[3].shape[:2].numel(), sizes.lines_to_bias
    parts = min(lines, -(-PARTS_OF_BIAS // biases_of_lines))
    sums_of_parts = np.zeros((biases_of_lines, parts, sizes.length**2), np.float32)

    def work_on_parts(first: int, last: int) -> None:
        for i, part in (divmod(number, parts) for number in range(first, last)):
            begin, end = i * lines + lines * part // parts, i * lines + lines * (part + 1) // parts
            work(begin, end, sums_of_parts[i, part])

    parallel_ranges(work_on_parts, biases_of_lines * parts)
    grads[3].copy_(torch.from_numpy(sums_of_parts.sum(axis=1)).view_as(grads[3]))


_OPERATORS = Operators(_forward, _backward)


def _of_lines(
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    biases: Sequence[Tensor],
    axis: int,
    rotations: Tensor | None,
    sums: Tensor,
) -> tuple[list[NDArray[Any]], tuple[Strides, ...], Sizes]:
    bias = biases[0] if biases else None
    check_lines(lines, axis, sums, grouped=bias is None)
    check_extras(lines[0], axis, bias, rotations)
    arrays, strides = flat_lines([*lines, *written], axis)
    sizes = sizes_of(lines[0], lines[2], axis)
    group, count = sizes.heads // lines[1].shape[-2], sizes.outer * sizes.inner
    if bias is None:
        return arrays, strides, sizes._replace(lines_to_bias=count, group=group, at_once=heads_at_once(sizes, group))
    return arrays, strides, sizes._replace(lines_to_bias=count // bias.shape[1], group=group)


def _kernels(q: Tensor, sizes: Sizes) -> Any:
    return line_kernels(q.dtype == torch.bfloat16, sizes.length * sizes.width >= TILES_PAY_FROM)


def _extras(
    biases: Sequence[Tensor], rotations: Tensor | None, sizes: Sizes
) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32]]:
    """Return an empty key mask, bias and rotations as arrays, of size 0 where there are none."""
    turns = np.zeros((0, sizes.width), np.float32)
    if rotations is not None:
        turns = np.ascontiguousarray(rotations.detach()[: sizes.length].float().numpy())
    return NO_MASK, biases[0].detach().flatten().numpy() if biases else NONE, turns


def flat_lines(tensors: Sequence[Tensor], axis: int) -> tuple[list[NDArray[Any]], tuple[Strides, ...]]:
    """Return flat arrays and strides (outer axes, inner axes, heads, `axis`), or copies."""
    arrays, strides = [], []
    for x in tensors:
        found = strides_of_lines(x.shape, x.stride(), axis)
        if found is None:
            x = x.contiguous()
            found = strides_of_lines(x.shape, x.stride(), axis)
        assert found is not None, "contiguous tensors have such strides"
        flat = x.detach().as_strided((found[0],), (1,))
        arrays.append((flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat).numpy())
        strides.append(Strides(*found[1]))
    return arrays, tuple(strides)


def sizes_of(q: Tensor, v: Tensor, axis: int) -> Sizes:
    """Return the sizes, without shares."""
    outer, inner = q.shape[:axis].numel(), q.shape[axis + 1 : -2].numel()
    return Sizes(outer, inner, q.shape[-2], q.shape[axis], q.shape[-1], v.shape[-1])


def heads_at_once(sizes: Sizes, group: int = 1) -> int:
    """Return the heads to load together."""
    heads, of_head = sizes.heads, sizes.length * (4 * sizes.width + 3 * sizes.value_width)
    return max(n for n in range(group, heads + 1, group) if heads % n == 0 and (n == group or n * of_head <= AT_ONCE))
