"""Arrays that do not fit are refused before a kernel reads or writes, and arrays that lie anyhow are read right.

All cases run in one forked process, since a kernel that is given wrong arrays may end it.
"""

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.ops import engine_attention
from axial_transformers.ops.axial_attention import position_sensitive_attention
from axial_transformers.ops.operators import HAS_ENGINE
from axial_transformers.ops.positions import rotation_table
from tests.fuzz.processes import Forked
from tests.ops.test_opcheck import OPERATORS

Options = axial.AttentionOptions
pytestmark = pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not compiled")


def wrong(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Copies of x that do not fit where it does."""
    for dim, size in enumerate(x.shape):
        yield f"shorter by one in {dim}", x.narrow(dim, 0, size - 1).clone()
    yield "other dtype", x.to(torch.float16)
    yield "without values", x.to("meta")
    yield "flat", x.flatten()


def layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """x in other places of memory; the last is a view of negated numbers."""
    yield "gaps", torch.stack([x, x], dim=-1)[..., 0]
    yield "reversed dimensions", x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
    if x.dtype == torch.float32:
        yield "negated", torch.complex(x, -x).conj().imag


def operator_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in sorted(OPERATORS.keys() - {"kept"}):
        operator, arguments, _ = OPERATORS[name]
        for i, argument in enumerate(arguments):
            members = list(enumerate(argument)) if isinstance(argument, list) else [(None, argument)]
            for j, x in members:
                for what, other in wrong(x) if isinstance(x, Tensor) else ():
                    if (name, i, what) not in FIT:
                        yield f"{name} {i} {j} {what}", partial(refused, operator, replaced(arguments, i, j, other))
        for axis in (-1, 0, 3, 4):
            yield f"{name} axis {axis}", partial(refused, operator, [axis if type(a) is int else a for a in arguments])
        if "backward" not in name:
            overlapping = torch.zeros(1).expand(*arguments[-2].shape)
            yield f"{name} overlapping", partial(refused, operator, replaced(arguments, -2, None, overlapping))


FIT = {("attend_lines", 6, "other dtype"), ("attend_lines_backward", 6, "other dtype")}
"""Rotations may be of any dtype."""


def replaced(arguments, i, j, x):
    changed = [list(a) if isinstance(a, list) else a for a in arguments]
    if j is None:
        changed[i] = x
    else:
        changed[i][j] = x
    return changed


def refused(operator, arguments) -> str:
    try:
        operator(*arguments)
    except ValueError as error:
        return "" if "\n" not in str(error) else f"more than one line: {error}"
    return "not refused"


LAYERS: dict[str, Callable[[int], torch.nn.Module]] = {
    "axis": lambda axis: axial.LineAttention(32, 4, axis),
    "rotated": lambda axis: axial.LineAttention(32, 4, axis, True, rotations=rotation_table(6, 8, 100.0)),
    "too few rotations": lambda axis: axial.LineAttention(32, 4, axis, rotations=rotation_table(4, 8, 100.0)),
    "narrow rotations": lambda axis: axial.LineAttention(32, 4, axis, rotations=rotation_table(9, 2, 100.0)),
    "line": lambda axis: axial.LineAttention(32, 4, axis, options=Options(relative=2, rotary=100.0)),
    "tied": lambda axis: axial.TiedAxialAttention(32, 4, axis, 1),
    "position-sensitive": lambda axis: axial.PositionSensitiveAxialAttention(32, 4, axis, span=3),
    "block": lambda axis: axial.AxialBlock(32, 4),
}


def layer_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    x = torch.randn(3, 5, 6, 32)
    inputs = dict(layouts(x)) | {
        "as it is": x,
        "expanded": x[:1, :, :1].expand_as(x),
        "overlapping": torch.randn(200).as_strided(x.shape, (1, 30, 3, 2)),
        "narrow": x[..., :-1],
        "wide": x.repeat(1, 1, 1, 2),
        "float64": x.double(),
        "without values": x.to("meta"),
        "one axis": x[0],
        "no axis": x[0, 0],
        **{f"none in {dim}": x.narrow(dim, 0, 0) for dim in range(4)},
    }
    for name, make in LAYERS.items():
        for axis in range(-4, 5):
            yield f"{name} axis {axis}", partial(right, make, axis, x)
        for what, given in inputs.items():
            yield f"{name} {what}", partial(right, make, 2, given)


def right(make, axis, x) -> str:
    """ "" if a layer refuses x, or gives what it gives in float64, and its gradient."""
    layer = make(axis)
    randomise(layer)
    x = x.detach().requires_grad_()
    try:
        out = layer(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    except (ValueError, RuntimeError):
        return ""
    if x.device.type == "meta":
        return "a result without values from weights with values"
    wide, exact = x.detach().double().requires_grad_(), deepcopy(layer).double()
    expected = exact(wide)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), wide)
    pairs = (out.detach(), expected.detach()), (gradient, expected_gradient)
    off = max((float((a - b).abs().max() / (1 + b.abs().max())) for a, b in pairs if a.numel()), default=0.0)
    return "" if off < 1e-5 else f"off by {off}"


def function_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """Tensors of which one is without values."""
    q, table = torch.randn(2, 5, 6, 4, 8), torch.randn(11, 1, 8)
    mask, bias = torch.ones(2, 5, 6, dtype=torch.bool), torch.randn(2, 4, 6, 6)
    functions = {
        "axial": (lambda *x: axial.axial_attention(*x[:3], 2, False, *x[3:]), [q, q, q, mask, bias]),
        "tied": (lambda *x: axial.tied_axial_attention(*x, 2, 1), [q, q, q]),
        "relative": (lambda *x: position_sensitive_attention(*x, 2), [q, q, q, table, table, table]),
    }
    for name, (function, tensors) in functions.items():
        for i, x in enumerate(tensors):
            yield f"{name} meta {i}", partial(refused, function, replaced(tensors, i, None, x.to("meta")))


def work() -> None:
    """Print the cases that are begun, what is wrong with them, and their number at the end."""
    torch.manual_seed(0)
    engine_attention.PAYS_FROM = 1
    every = [*operator_cases(), *layer_cases(), *function_cases()]
    for name, case in every:
        print(f"begun {name}", file=sys.stderr)
        if wrong_by := case():
            print(f"wrong {name}: {wrong_by}", file=sys.stderr)
    print(f"all of {len(every)}", file=sys.stderr)


def test_no_arrays_lead_a_kernel_beyond_its_memory_or_to_wrong_numbers():
    status, said = Forked(work).wait()
    lines = said.splitlines()
    assert status == 0, f"ended by {status} after {lines[-20:]}"
    assert [line for line in lines if line.startswith("wrong")] == []
    assert int(lines[-1].removeprefix("all of ")) > 400
