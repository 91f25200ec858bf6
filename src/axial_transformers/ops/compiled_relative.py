"""Position-sensitive attention (Wang et al. 2020, Axial-DeepLab, equation 4) by the engine, on a CPU."""

from collections.abc import Sequence
from ctypes import c_float, c_int64

from jaxtyping import Float
from torch import Tensor

from axial_transformers.engine.threads import parallel_ranges
from axial_transformers.ops import composed_relative
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.compiled_attention import (
    LinesInMemory,
    Operators,
    differentiable,
    engine_refuses,
    line_mask,
    lines_in_memory,
    pointer,
)
from axial_transformers.ops.operators import (
    SINGLE,
    check_extras,
    check_lines,
    check_tables,
    check_written,
    cpu_operator,
    engine,
)

PARTS_OF_TABLES = 16
"""Independent of the number of threads."""


def refuses(call: AttentionCall) -> str | None:
    """Return why it does not take a call, or None."""
    if call.tables is None:
        return "it computes equation 4 only"
    if call.q.device.type != "cpu":
        return "the engine runs on a CPU"
    return engine_refuses(call.q, min(len(call.tables[0]), call.q.shape[call.axis]))


def run(call: AttentionCall) -> Float[Tensor, "b *a n w"]:
    """Compute a call in float32; any number of derivatives."""
    assert call.tables is not None
    rows = len(call.tables[0])
    beyond = max(0, rows // 2 - (call.q.shape[call.axis] - 1))
    tables = tuple(table.float()[beyond : rows - beyond].contiguous() for table in call.tables)
    single = tuple(x.float() for x in call.tensors)
    return differentiable(_OPERATORS, call, (call.scale,), (line_mask(call),), tables, single).to(call.v.dtype)


@cpu_operator("axial_transformers::attend_relative", mutates_args=("out", "sums"))
def _forward_relative(
    qkv: Sequence[Tensor],
    tables: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    out: Tensor,
    sums: Tensor,
) -> None:
    check_written([out], [out], axis)
    lines = _of_lines([*qkv, out], [], tables, axis, causal, present, sums)

    def work(first: int, last: int) -> None:
        pieces = c_int64(first * lines.at_once), c_int64(last * lines.at_once)
        engine().relative_forward(*lines.arguments, *lines.extras, c_float(scale), pointer(sums), *pieces)

    parallel_ranges(work, lines.count)


@cpu_operator("axial_transformers::attend_relative_backward", mutates_args=("grads",))
def _backward_relative(
    qkv_grad: Sequence[Tensor],
    tables: Sequence[Tensor],
    axis: int,
    causal: bool,
    scale: float,
    present: Tensor | None,
    sums: Tensor,
    grads: Sequence[Tensor],
) -> None:
    check_written(grads, [*qkv_grad[:3], *tables][: len(grads)], axis)
    lines = _of_lines(qkv_grad, grads[:3], tables, axis, causal, present, sums)
    parts = min(PARTS_OF_TABLES, lines.count)
    found = [table.new_empty(parts, *table.shape) for table in tables]
    arguments = *lines.arguments, *lines.extras, c_float(scale), pointer(sums), *map(pointer, found), c_int64(parts)

    def work(first: int, last: int) -> None:
        engine().relative_backward(*arguments, c_int64(first), c_int64(last))

    parallel_ranges(work, parts)
    for d_table, of_parts in zip(grads[3:], found):
        d_table.copy_(of_parts.sum(0))


def _of_lines(
    lines: Sequence[Tensor],
    written: Sequence[Tensor],
    tables: Sequence[Tensor],
    axis: int,
    causal: bool,
    present: Tensor | None,
    sums: Tensor,
) -> LinesInMemory:
    check_lines(lines, axis, sums, dtypes=SINGLE)
    check_tables(tables, lines, axis)
    check_extras(lines[0], axis, None, None, present)
    rows, of_heads = tables[0].shape[:2]
    return lines_in_memory([*lines, *written], axis, causal, [present, *tables], radius=rows // 2, tables=of_heads)


def _formula(
    qkv: Sequence[Tensor], tables: Sequence[Tensor], axis: int, causal: bool, scale: float, present: Tensor | None
) -> Tensor:
    q = qkv[0]
    others = [size for dim, size in enumerate(q.shape[:-2]) if dim != axis]
    key_mask = None if present is None else present.view(*others, -1).movedim(-1, axis)
    query_table, key_table, value_table = tables
    of_tables = query_table, key_table, value_table
    return composed_relative.run(AttentionCall(*qkv, axis, causal, key_mask, tables=of_tables, scale=scale))


_OPERATORS = Operators(_forward_relative, _backward_relative, _formula)
