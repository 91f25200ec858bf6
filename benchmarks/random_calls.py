"""Compares random calls of the compiled operators and of the layers with float64, forward and backward.

    python benchmarks/random_calls.py                      50,000 calls: less than half an hour of one core
    python benchmarks/random_calls.py --calls 2000

Shapes, options, masks and the places of tensors in memory are random: gaps, any order of dimensions, slices, expanded
and overlapping tensors, views of negated numbers; gradients of results, too. Compiled kernels are taken for inputs of
any size. An error is relative to the largest number that is expected (of gradients: of all of them), at least 0.01.
Some calls amplify rounding, whatever computes them: one beyond its bound is computed by torch's operations, too, and
is excused if its error is no more than twice theirs. Prints a line for each operator and dtype: the bound, the calls,
those beyond it, the excused ones, and the largest errors; then the tensors by places in memory. The status is 1 if a
call was beyond its bound.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import axial_transformers as axial
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.lines import LineAttention
from axial_transformers.ops import compiled_attention, elementwise
from axial_transformers.ops.attention_call import packed_call
from axial_transformers.ops.axial_attention import position_sensitive_attention
from axial_transformers.ops.backends import attend
from axial_transformers.ops.positions import rotation_table
from axial_transformers.progress import bar
from command_line import run_command

Call = Callable[..., Tensor]
Drawn = tuple[Call, list[Tensor]]
"""A function of tensors in any dtype, and its tensors in float32; modules are taken by `on`."""
SINGLE, HALF = torch.float32, torch.bfloat16
SCALES = (0.0, 0.1, 1.0, 3.0)


class Draw(random.Random):
    """Random sizes, options and tensors."""

    def grid(self, axes: int = 0) -> list[int]:
        """Sizes of a batch and of 1 to 3 axes, one of which may be long."""
        sizes = [self.randint(1, 6) for _ in range(1 + (axes or self.randint(1, 3)))]
        sizes[self.randrange(1, len(sizes))] = self.choice([1, 2, 3, 5, 7, 16, 31, 33, 64, 70])
        return sizes

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers of a random scale."""
        return self.choice(SCALES) * self.plain(*shape)

    def features(self, *shape: int) -> Tensor:
        """Normal numbers for a layer: near zero a LayerNorm, and at large scores a softmax, amplify rounding."""
        return self.choice((0.5, 1.0)) * self.plain(*shape)

    def plain(self, *shape: int) -> Tensor:
        """Normal numbers."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(self.getrandbits(48)))

    def mask(self, *shape: int) -> Tensor | None:
        """A mask, or often none."""
        return self.plain(*shape) > -0.5 if self.random() < 0.4 else None

    def causal(self) -> bool:
        """Whether."""
        return self.random() < 0.5


def attention(draw: Draw) -> Drawn:
    grid, groups, width = draw.grid(), draw.randint(1, 3), draw.choice([1, 3, 8, 16, 20, 32])
    axis, causal, mask, heads = draw.randrange(1, len(grid)), draw.causal(), draw.mask(*grid), groups
    tensors = []
    if draw.random() < 0.3:
        tensors = [draw.normal(draw.choice([1, grid[0]]), heads, grid[axis], grid[axis])]
    elif draw.random() < 0.5:
        heads = groups * draw.randint(1, 3)
    shapes = (heads, width), (groups, width), (groups, draw.choice([width, 5]))
    qkv = [draw.normal(*grid, *shape) for shape in shapes]
    return lambda q, k, v, bias=None: axial.axial_attention(q, k, v, axis, causal, mask, bias), [*qkv, *tensors]


def packed_attention(draw: Draw) -> Drawn:
    grid, heads, width = draw.grid(), draw.randint(1, 3), draw.choice([2, 6, 16, 32])
    axis, causal, mask = draw.randrange(1, len(grid)), draw.causal(), draw.mask(*grid)
    table = rotation_table(grid[axis], width, 100.0, torch.float64) if draw.random() < 0.6 else None
    widths = heads * width, heads * width, heads * draw.choice([width, 5])

    def call(qkv: Tensor) -> Tensor:
        turns = None if table is None else table.to(torch.promote_types(qkv.dtype, SINGLE))
        return attend(packed_call(qkv, (heads, *widths), axis, causal, mask, rotations=turns))

    return call, [draw.normal(*grid, sum(widths))]


def relative_attention(draw: Draw) -> Drawn:
    grid, heads, width = draw.grid(), draw.randint(1, 3), draw.choice([1, 4, 8, 16])
    axis, causal, value_width = draw.randrange(1, len(grid)), draw.causal(), draw.choice([width, 5])
    rows, of_heads = draw.choice([1, 5, 9, 2 * grid[axis] - 1, 2 * grid[axis] + 3]), draw.choice([1, heads])
    qkv = [draw.normal(*grid, heads, each) for each in (width, width, value_width)]
    tables = [draw.plain(rows, of_heads, each) for each in (width, width, value_width)]

    def call(q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, of_k: Tensor, of_v: Tensor) -> Tensor:
        return position_sensitive_attention(q, k, v, of_q, of_k, of_v, axis, causal)

    return call, [*qkv, *tables]


def linear_layer(draw: Draw) -> Drawn:
    inputs, outputs = draw.choice([16, 23, 64]), draw.choice([16, 40, 96])
    tensors = [draw.normal(*draw.grid(), inputs), draw.plain(outputs, inputs) / inputs**0.5, draw.plain(outputs)]
    return F.linear, tensors[: draw.choice([2, 3])]


def quick_gelu(draw: Draw) -> Drawn:
    return elementwise.quick_gelu, [3 * draw.normal(*draw.grid(), 17)]


def add_dropped(draw: Draw) -> Drawn:
    shape, seed, p = (*draw.grid(), 9), draw.getrandbits(40), draw.choice([0.1, 0.5])

    def call(x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return elementwise.add_dropped(x, y, p)

    return call, [draw.normal(*shape), draw.normal(*shape)]


def on(layer: nn.Module, *more: Tensor | None) -> Call:
    """A call of a layer of random weights, which are arguments, too."""
    randomise(layer, torch.Generator().manual_seed(0))
    layer = layer.eval()

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
        buffers = {name: b.to(x.dtype) if b.is_floating_point() else b for name, b in layer.named_buffers()}
        return torch.func.functional_call(layer, {**buffers, **named}, (x, *more))

    return call


def layer(make: Callable[[Draw, int], nn.Module], axes: int = 2, masked: bool = True) -> Callable[[Draw], Drawn]:
    """Draws a layer of width 16, given the longest axis of its input, and the input [B, *A, 16]."""

    def drawn(draw: Draw) -> Drawn:
        grid = draw.grid(axes)
        part = make(draw, max(grid[1:]))
        call = on(part, *([draw.mask(*grid)] if masked else []))
        return call, [draw.features(*grid, 16), *(p.detach() for p in part.parameters())]

    return drawn


def line_layer(draw: Draw, longest: int) -> nn.Module:
    window = draw.choice([None, None, 3])
    options = axial.AttentionOptions(
        kv_heads=draw.choice([None, 1, 2]),
        window=window,
        dilation=draw.choice([1, 2]) if window else 1,
        gate=draw.causal(),
        qk_norm=draw.causal(),
        rotary=draw.choice([None, 100.0]),
        relative=draw.choice([None, 2]),
    )
    return axial.LineAttention(16, 4, draw.choice([1, 2, -2]), draw.causal(), options)


def position_sensitive_layer(draw: Draw, longest: int) -> nn.Module:
    axis, causal, of_line = draw.choice([1, 2]), draw.causal(), draw.causal()
    size, span = (longest, None) if of_line else (None, 5)
    return axial.PositionSensitiveAxialAttention(16, 2, axis, size=size, span=span, causal=causal)


def triangle_layer(draw: Draw) -> Drawn:
    size, part = draw.choice([1, 3, 7, 20]), axial.TriangleAttention(16, 2, draw.choice(["starting", "ending"]), 8)
    call = on(part, draw.mask(2, size, size))
    return call, [draw.features(2, size, size, 16), *(p.detach() for p in part.parameters())]


DRAWN: dict[str, Callable[[Draw], Drawn]] = {
    "axial_attention": attention,
    "packed attention": packed_attention,
    "position_sensitive_attention": relative_attention,
    "linear": linear_layer,
    "quick_gelu": quick_gelu,
    "add_dropped": add_dropped,
    "AxialAttention": layer(lambda draw, _: axial.AxialAttention(16, draw.choice([1, 4]), draw.choice([(2, 1), (2,)]))),
    "AxialBlock": layer(lambda draw, _: axial.AxialBlock(16, 4, causal=draw.choice([(), (1,)]))),
    "LineAttention": layer(line_layer),
    "TiedAxialAttention": layer(lambda draw, _: axial.TiedAxialAttention(16, 2)),
    "TriangleAttention": triangle_layer,
    "FullAttention": layer(lambda draw, _: axial.FullAttention(16, 2)),
    "PositionSensitiveAxialAttention": layer(position_sensitive_layer),
    "TransformerBlock": layer(
        lambda draw, _: TransformerBlock(LineAttention(16, 2, draw.choice([1, 2]), draw.causal()), 32), masked=False
    ),
}
BOUNDS = {
    **{(name, dtype): bound for name in DRAWN for dtype, bound in ((SINGLE, 5e-5), (HALF, 5e-2))},
    **{
        (name, dtype): bound
        for name in ("quick_gelu", "add_dropped")
        for dtype, bound in ((SINGLE, 2e-6), (HALF, 8e-3))
    },
    ("packed attention", SINGLE): 1e-4,
    **{(name, HALF): 2e-1 for name in ("AxialBlock", "TransformerBlock", "TriangleAttention")},
}
"""Of the largest errors, forward and backward: a few times what was found. Norms amplify the rounding of bfloat16."""


def gaps(x: Tensor, draw: Draw) -> Tensor:
    return torch.stack([x, x], dim=-1)[..., 1]


def permuted(x: Tensor, draw: Draw) -> Tensor:
    order = draw.sample(range(x.ndim), x.ndim)
    return x.permute(order).contiguous().permute([order.index(i) for i in range(x.ndim)])


def sliced(x: Tensor, draw: Draw) -> Tensor:
    dim = draw.randrange(x.ndim)
    return torch.cat([x, x, x], dim=dim).narrow(dim, x.shape[dim], x.shape[dim])


def expanded(x: Tensor, draw: Draw) -> Tensor:
    dim = draw.randrange(max(1, x.ndim - 1))  # a LayerNorm of equal numbers amplifies rounding
    return x.narrow(dim, 0, 1).clone().expand_as(x)


def overlapping(x: Tensor, draw: Draw) -> Tensor:
    steps = [draw.randint(0, 3) for _ in x.shape[:-1]] + [1]
    return x.flatten().repeat(4).as_strided(x.shape, steps, draw.randint(0, 3))


def negated(x: Tensor, draw: Draw) -> Tensor:
    return torch.complex(x, -x).conj().imag if x.dtype == SINGLE else x


def contiguous(x: Tensor, draw: Draw) -> Tensor:
    return x


SAME_NUMBERS = (contiguous, gaps, permuted, sliced, negated)
LAYOUTS = (*SAME_NUMBERS, expanded, overlapping)


@dataclass
class Found:
    """Of one operator in one dtype."""

    calls: int = 0
    beyond: int = 0
    excused: int = 0
    forward: float = 0.0
    backward: float = 0.0
    seeds: list[int] = field(default_factory=list)


def errors(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest error, relative to the largest number expected; infinite for NaN."""
    largest = max([0.01, *(float(x.abs().max()) for x in expected if x.numel())])
    worst = max(
        [0.0, *(float((a.double() - b).abs().max()) for a, b in zip(found, expected, strict=True) if b.numel())]
    )
    return worst / largest if worst == worst else float("inf")


def compared(name: str, dtype: torch.dtype, seed: int, layouts: Counter[str]) -> tuple[float, float]:
    """The errors of one call, forward and backward."""
    draw = Draw(seed)
    call, tensors = DRAWN[name](draw)
    given = []
    for i, x in enumerate(tensors):  # equal weights of a layer would make its norms amplify rounding
        layout = draw.choice(LAYOUTS if i == 0 or name.islower() else SAME_NUMBERS)
        layouts[layout.__name__] += 1
        given.append(layout(x.to(dtype), draw).detach().requires_grad_())
    wide = [x.detach().resolve_neg().double().requires_grad_() for x in given]
    out, expected = call(*given), call(*wide)
    grad = draw.choice(LAYOUTS)(draw.plain(*expected.shape).to(out.dtype), draw)
    pairs = (
        torch.autograd.grad(out, given, grad, allow_unused=True, materialize_grads=True),
        torch.autograd.grad(expected, wide, grad.resolve_neg().double(), allow_unused=True, materialize_grads=True),
    )
    return errors([out.detach()], [expected.detach()]), errors(*pairs)


@contextmanager
def kernels(pay_from: float) -> Iterator[None]:
    """Compiled kernels for inputs of so many numbers."""
    modules: tuple[Any, ...] = compiled_attention, elementwise
    kept = [module.PAYS_FROM for module in modules]
    for module in modules:
        module.PAYS_FROM = pay_from
    yield
    for module, number in zip(modules, kept):
        module.PAYS_FROM = number


def compare(calls: int, first: int = 0) -> tuple[dict[tuple[str, torch.dtype], Found], Counter[str]]:
    """So many calls, one of each operator and dtype after the other."""
    table = {(name, dtype): Found() for name in DRAWN for dtype in (SINGLE, HALF)}
    layouts: Counter[str] = Counter()
    for seed, kind in bar("calls")([*zip(range(first, first + calls), cycle(table))]):
        found, bound = table[kind], BOUNDS[kind]
        with kernels(pay_from=1):
            forward, backward = compared(*kind, seed, layouts)
        found.calls += 1
        if max(forward, backward) <= bound:
            found.forward, found.backward = max(found.forward, forward), max(found.backward, backward)
            continue
        with kernels(pay_from=float("inf")):
            excused = max(forward, backward) <= 2 * max(compared(*kind, seed, Counter()))
        found.excused += excused
        found.beyond += not excused
        found.seeds += [] if excused else [seed]
    return table, layouts


def main(calls: int = 50_000, first: int = 0, threads: int = 1) -> int:
    """Compares `calls` calls, whose seeds count from `first`."""
    torch.set_num_threads(threads)
    start = time.process_time()
    table, layouts = compare(calls, first)
    for (name, dtype), found in table.items():
        bound, kind = BOUNDS[name, dtype], str(dtype).removeprefix("torch.")
        print(
            f"{name} {kind}: bound {bound:.0e}, {found.calls:,} calls, {found.beyond} beyond, {found.excused} excused, "
            f"largest errors of the others {found.forward:.1e} forward, {found.backward:.1e} backward",
            *(f"seeds {found.seeds[:3]}" for _ in found.seeds[:1]),
        )
    print("tensors:", ", ".join(f"{count:,} {name}" for name, count in layouts.items()))
    beyond = sum(found.beyond for found in table.values())
    print(f"{calls:,} calls, {beyond} beyond their bounds, {time.process_time() - start:.0f} s of CPU time")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(run_command(main))
