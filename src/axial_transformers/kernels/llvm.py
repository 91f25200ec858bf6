"""The LLVM instructions of intrinsics: an adapter of llvmlite and numba.

Arrays are addresses; nothing is checked.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.core import registry
from numba.extending import intrinsic as numba_intrinsic
from numpy.typing import NDArray

__all__ = ["cgutils", "intrinsic", "ir", "types"]

Array = NDArray[np.float32]
Integers = NDArray[np.int64]

target: Any = registry.cpu_target
_, PROCESSOR, features = target.target_context.codegen().magic_tuple()
"""Part of numba's key."""
FEATURES = frozenset(features.split(","))
LANES = 16 if "+avx512f" in FEATURES else 8 if "+avx" in FEATURES else 4
"""float32 numbers in one register."""

cgutils: Any = numba_cgutils
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba_intrinsic


def instructions(write: Callable[..., None]) -> Callable[..., Any]:
    """Declare an intrinsic without a result, from a function of a builder and its arguments, as `unpacked`."""

    @wraps(write)
    def of_kinds(typing_context: Any, *kinds: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            write(builder, *unpacked(context, builder, signature, arguments))
            return context.get_dummy_value()

        return types.void(*kinds), generate

    return intrinsic(of_kinds)


def unpacked(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return the arguments of an intrinsic, arrays as the addresses of their first numbers. Nothing is checked."""
    return [
        context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, arguments)
    ]


def of_lanes(number: Any, lanes: int) -> Any:
    """Return a type of `lanes`."""
    return number if lanes == 1 else ir.VectorType(number, lanes)


def like(kind: Any, number: Any) -> Any:
    """Return a type of as many lanes."""
    return of_lanes(number, kind.count if isinstance(kind, ir.VectorType) else 1)


def constant(kind: Any, value: float) -> Any:
    """Return a constant in every lane."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def splat(builder: Any, number: Any, lanes: int) -> Any:
    """Return a number in every lane."""
    if lanes == 1:
        return number
    unset = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    single = builder.insert_element(unset, number, ir.IntType(32)(0))
    return builder.shuffle_vector(single, unset, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))


def hide_origin(builder: Any, number: Any) -> Any:
    """Return a number whose origin LLVM does not know.

    Of two addresses that it knows to be related, it computes one from the other. In a tile, the addresses of the rows
    would wait for each other in every step of a product.
    """
    kind = ir.FunctionType(number.type, [number.type])
    return builder.asm(kind, "", "=r,0", [number], side_effect=False)


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Return the given lanes of two vectors."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of as many vectors as they have lanes: exchange halves of rows, then quarters, and so on."""
    rows, lanes = list(rows), len(rows)
    half = lanes // 2
    while half:
        upper = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
        lower = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
        for i in (i for i in range(lanes) if not i & half):
            a, b = rows[i], rows[i + half]
            rows[i], rows[i + half] = shuffle(builder, a, b, upper), shuffle(builder, a, b, lower)
        half //= 2
    return rows


def load(builder: Any, data: Any, offset: Any, lanes: int = LANES) -> Any:
    """Load `lanes` numbers."""
    address = builder.gep(data, [offset])
    number = address.type.pointee
    return builder.load(builder.bitcast(address, of_lanes(number, lanes).as_pointer()), align=_bytes(number))


def store(builder: Any, value: Any, data: Any, offset: Any) -> None:
    """Store numbers."""
    address = builder.gep(data, [offset])
    builder.store(value, builder.bitcast(address, value.type.as_pointer()), align=_bytes(address.type.pointee))


def _bytes(number: Any) -> int:
    return number.width // 8 if isinstance(number, ir.IntType) else 4


def fused_multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, in one instruction if possible."""
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))
