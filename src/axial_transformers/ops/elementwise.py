"""Quick GELU, dropout and shifts; large ones by the engine."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from ctypes import c_float, c_int32, c_int64, c_uint64
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from axial_transformers.engine import library, parallel_ranges
from axial_transformers.ops.operators import HAS_ENGINE, cpu_operator, pointer
from axial_transformers.ops.torch_private import is_differentiated, is_recorded, is_transformed

STEEPNESS = 1.702
PAYS_FROM = 2**16
UNIT = 1024
GOLDEN, FACTORS = -0x61C8864680B583EB, (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Constants of SplitMix64 (Steele et al. 2014)."""


def quick_gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return x * sigmoid(1.702 x), the authors' nonlinearity; any number of derivatives."""
    if is_recorded():  # the compiler fuses by itself
        return x * torch.sigmoid(STEEPNESS * x)
    return _QuickGELU.apply(x)


def dropout(x: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Zero each number with probability p, else divide by 1 - p. A CPU rounds p to a multiple of 2^-16."""
    dropped = round(p * 2**16)
    if x.device.type != "cpu" or is_transformed() or not 0 < dropped < 2**16:
        return F.dropout(x, p)
    return x * _kept(x.detach(), dropped).to(x.dtype).mul_(_scale(dropped))


def add_dropped(
    x: Float[Tensor, "*s"],
    y: Float[Tensor, "*s"],
    p: float,
) -> Float[Tensor, "*s"]:
    """Return x + dropout(y, p), with equal random bits."""
    dropped = round(p * 2**16)
    fits = x.shape == y.shape and torch.promote_types(x.dtype, y.dtype) == x.dtype and 0 < dropped < 2**16
    if is_recorded() or not (fits and _pays(x) and _pays(y)):
        return x + dropout(y, p)
    return _AddDropped.apply(x, y, dropped)


def _scale(dropped: int) -> float:
    return 2**16 / (2**16 - dropped)


@cpu_operator(  # hidden from torch.compile, whose random numbers are slower
    "axial_transformers::kept",
    fake=lambda x, dropped: x.new_empty(x.shape, dtype=torch.bool),
    tags=(torch.Tag.nondeterministic_seeded,),
)
def _kept(x: Tensor, dropped: int) -> Tensor:
    """Return what is kept. Torch's dropout samples once per number, this once."""
    return _kept_by(_seed(), x, dropped)


def _kept_by(
    seed: int,
    x: Tensor,
    dropped: int,
) -> Tensor:
    bits = (torch.arange(1, -(-x.numel() // 4) + 1, device=x.device) * GOLDEN).add_(seed)
    for shift, factor in zip((30, 27, 31), (*FACTORS, 1)):  # int64 alone would copy the sign
        bits = bits.bitwise_xor_((bits >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(factor)
    return bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15


_generator: ContextVar[torch.Generator | None] = ContextVar("generator of dropout", default=None)


@contextmanager
def dropout_seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let dropout draw the numbers of a seed, in this thread; torch's own generators stay as they were.

    On a CPU, dropout draws from a generator of its own. On another device, it draws from the device's generator, which
    is put back: two threads must not do so at once.
    """
    if device.type != "cpu":
        with torch.random.fork_rng([device], device_type=device.type):
            torch.get_device_module(device).manual_seed(seed)
            yield
        return
    before = _generator.set(torch.Generator("cpu").manual_seed(seed))
    try:
        yield
    finally:
        _generator.reset(before)


def repeated_dropout() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return contexts for a computation and its repetition: both draw the same numbers (torch.utils.checkpoint)."""
    generator = _generator.get()
    if not generator:  # torch's generators, which torch repeats
        return nullcontext(), nullcontext()
    return nullcontext(), _rewound(generator, generator.get_state())


@contextmanager
def _rewound(generator: torch.Generator, state: Tensor) -> Iterator[None]:
    now = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(now)


def _seed() -> int:
    number = torch.empty((), dtype=torch.int64, device="cpu")
    return int(number.random_(-(2**63), None, generator=_generator.get()))


class _QuickGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        x = x.resolve_neg().contiguous()
        out = torch.empty_like(x)
        if _pays(x):
            _run_engine("quick_gelu", x, out)
            return out
        return torch.mul(x, STEEPNESS, out=out).sigmoid_().mul_(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if is_differentiated(grad):
            s = torch.sigmoid(STEEPNESS * x)
            return grad * s * (1 + STEEPNESS * x * (1 - s))
        x = x.resolve_neg().contiguous()
        grad = grad.resolve_neg().contiguous()
        out = torch.empty_like(x)
        if _pays(x) and _pays(grad):
            _run_engine("quick_gelu_backward", x, grad, out)
            return out
        torch.mul(x, STEEPNESS, out=out)  # quick_gelu's derivative at x is silu's at 1.702 x
        return torch.ops.aten.silu_backward.grad_input(grad, out, grad_input=out)


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        dropped: int,
    ) -> Tensor:
        ctx.seed = _seed()
        ctx.dropped = dropped
        ctx.dtype = y.dtype
        out = x.new_empty(x.shape)
        _drop(x, y, ctx.seed, dropped, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if is_differentiated(grad):
            kept = _kept_by(ctx.seed, grad, ctx.dropped).to(grad.dtype) * _scale(ctx.dropped)
            return grad, (grad * kept).to(ctx.dtype), None
        d_y = grad.new_empty(grad.shape, dtype=ctx.dtype)
        _drop(None, grad, ctx.seed, ctx.dropped, d_y)
        return grad, d_y, None


def _drop(
    x: Tensor | None,
    y: Tensor,
    seed: int,
    dropped: int,
    out: Tensor,
) -> None:
    if x is not None:
        x = x.resolve_neg().contiguous()
    options = c_uint64(seed), c_int32(dropped - 2**15), c_float(_scale(dropped))
    _run_engine("add_dropped", x, y.resolve_neg().contiguous(), out, options=options)


def _pays(x: Tensor) -> bool:
    """Return True where the engine takes a tensor and is faster than torch."""
    kinds = torch.float32, torch.bfloat16
    return type(x) is Tensor and x.device.type == "cpu" and x.dtype in kinds and x.numel() >= PAYS_FROM and HAS_ENGINE


def _run_engine(
    name: str,
    *tensors: Tensor | None,
    options: tuple[Any, ...] = (),
) -> None:
    """Run a function of the engine on parts of tensors, of which it writes the last."""
    halves = 0  # bit i says that tensor i is bfloat16
    for i, x in enumerate(tensors):
        if x is not None and x.dtype == torch.bfloat16:
            halves += 2**i
    *given, out = map(pointer, tensors)
    count = tensors[-1].numel() if tensors[-1] is not None else 0

    def work(first: int, last: int) -> None:
        numbers = c_int64(first * UNIT), c_int64(min(last * UNIT, count))
        getattr(library(), name)(*given, *options, out, halves, *numbers)

    parallel_ranges(work, -(-count // UNIT))


def shift(x: Float[Tensor, "..."], axis: int) -> Float[Tensor, "..."]:
    """Move `x` one position along `axis`, zeros first (ShiftRight, ShiftDown)."""
    first = torch.zeros_like(x.narrow(axis, 0, 1))
    return torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], dim=axis)


def shifted_copies(x: Float[Tensor, "b *a c"]) -> Float[Tensor, "b *a n"]:
    """Concatenate the 3^d shifted copies of x, zeros outside: a linear layer then is a 3-wide convolution.

    Its weight [3, .., 3, C, D] flattens to [3^d * C, D]: offsets -1, 0, 1, the last axis fastest.
    """
    axes = x.ndim - 2
    windows = F.pad(x, (0, 0) + (1, 1) * axes)
    for axis in range(1, axes + 1):
        windows = windows.unfold(axis, 3, 1)
    return windows.movedim(axes + 1, -1).flatten(axes + 1).contiguous()
