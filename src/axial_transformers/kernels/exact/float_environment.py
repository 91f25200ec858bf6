"""The control register of floating-point arithmetic. Each thread has its own."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axial_transformers.kernels.compilation import exact
from axial_transformers.kernels.llvm import cgutils, intrinsic, ir, types

ON_X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
ON_ARM = platform.machine().lower() in ("aarch64", "arm64")
IEEE = 0x1F80 if ON_X86 else 0
"""Round to nearest, keep denormal numbers, raise nothing: MXCSR on x86, FPCR on ARM."""
NOTHING, REGISTER, MEMORY = ir.VoidType(), ir.IntType(64), ir.IntType(32)
ADDRESS = ir.IntType(8).as_pointer()


def _call(builder: Any, name: str, result: Any, *operands: Any) -> Any:
    kind = ir.FunctionType(result, [operand.type for operand in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)


@intrinsic
def _read(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if ON_ARM:  # inline assembly would end the process: numba starts no parser of it
            return _call(builder, "llvm.aarch64.get.fpcr", REGISTER)
        slot = cgutils.alloca_once_value(builder, MEMORY(IEEE))
        if ON_X86:
            _call(builder, "llvm.x86.sse.stmxcsr", NOTHING, builder.bitcast(slot, ADDRESS))
        return builder.zext(builder.load(slot), REGISTER)

    return types.int64(), generate


@intrinsic
def _write(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if ON_ARM:
            _call(builder, "llvm.aarch64.set.fpcr", NOTHING, *arguments)
        if ON_X86:
            slot = cgutils.alloca_once_value(builder, builder.trunc(arguments[0], MEMORY))
            _call(builder, "llvm.x86.sse.ldmxcsr", NOTHING, builder.bitcast(slot, ADDRESS))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@exact
def read_register() -> int:
    """Return this thread's register."""
    return _read()


@exact
def write_register(value: int) -> None:
    """Set this thread's register."""
    _write(value)


@contextmanager
def ieee_arithmetic() -> Iterator[None]:
    """Round to nearest and keep denormal numbers in this thread, and restore the register afterwards.

    Kernels run inside of it, and do not set the register themselves. A compiler may move their arithmetic to before
    such an instruction, but not to before the call of the kernel.
    """
    before = read_register()
    write_register(IEEE)
    try:
        yield
    finally:
        write_register(before)
