"""Derivatives of any order are right: of attention, equation 4, GELU and dropout, by the engine and by torch."""

import pytest
import torch
from torch.autograd.functional import hvp, jvp, vhp

from axial_transformers.ops import elementwise, engine_attention, line_groups
from axial_transformers.ops.attention_call import AttentionCall, normalised
from axial_transformers.ops.backends import attend
from axial_transformers.ops.positions import rotation_table


def call(q, k, v, bias=None, *tables, **options):
    options |= {"tables": tables, "scale": 0.4} if tables else {}
    return normalised(AttentionCall(q, k, v, 2, options.pop("causal", False), bias=bias, **options))


def seeded(function, *arguments):
    torch.manual_seed(0)
    return function(*arguments)


def dropped(x, y):
    return seeded(elementwise.add_dropped, x, y, 0.25)


MASK = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) > 0.3
MASK[0, 1] = False
QKV = [(2, 3, 5, 2, 6), (2, 3, 5, 2, 6), (2, 3, 5, 2, 3)]
FUNCTIONS = {
    "attention": (lambda *x: attend(call(*x, causal=True)), QKV),
    "one tensor three times": (lambda x: attend(call(x, x, x)), QKV[:1]),
    "a key mask": (lambda *x: attend(call(*x, key_mask=MASK)), QKV),
    "fewer keys": (lambda *x: attend(call(*x)), [QKV[0], (2, 3, 5, 1, 6), (2, 3, 5, 1, 3)]),
    "a bias": (lambda *x: attend(call(*x)), [*QKV, (2, 2, 5, 5)]),
    "a bias by line": (lambda *x: attend(call(*x, key_mask=MASK)), [*QKV, (2, 3, 2, 5, 5)]),
    "a bias of a window": (lambda *x: attend(call(*x, key_mask=MASK, window=3)), [*QKV, (2, 2, 5, 3)]),
    "weights that are dropped": (lambda *x: seeded(attend, call(*x, dropout=0.25)), [*QKV, (2, 2, 5, 5)]),
    "rotations": (lambda *x: attend(call(*x, rotations=rotation_table(5, 6, 9.0, x[0].dtype))), QKV),
    "equation 4": (
        lambda *x: attend(call(*x[:3], None, *x[3:], key_mask=MASK)),
        [*QKV, (9, 1, 6), (9, 1, 6), (9, 1, 3)],
    ),
    "a window": (lambda *x: attend(call(*x[:3], None, *x[3:])), [*QKV, (3, 2, 6), (3, 2, 6), (3, 2, 3)]),
    "quick_gelu": (elementwise.quick_gelu, [(3, 7)]),
    "quick_gelu of a transpose": (lambda x: elementwise.quick_gelu(x.mT), [(3, 7)]),
    "dropout": (lambda x, y: dropped(x.sin(), y.sin()), [(300, 3), (300, 3)]),
}


@pytest.fixture(params=["by the engine", "by torch", "by the engine, then torch in pieces"])
def _way(request, monkeypatch):
    for module in (engine_attention, elementwise):
        monkeypatch.setattr(module, "PAYS_FROM", 0 if "engine" in request.param else 2**40)
    if "engine" not in request.param:
        monkeypatch.setattr(engine_attention, "MAX_LENGTH", {})
    if "pieces" in request.param:
        monkeypatch.setitem(line_groups.PIECE, "cpu", 60)


def seconds(function, tensors, others):
    """Second derivatives, by each way to ask for them, of the sum of the sines of a result."""
    given = [x.clone().requires_grad_() for x in tensors]
    firsts = torch.autograd.grad(function(*given).sin().sum(), given, create_graph=True)
    penalty = torch.autograd.grad(sum(first.square().sum() for first in firsts), given)

    def total(*x):
        return function(*x).sin().sum()

    products = [each(total, tuple(tensors), tuple(others))[1] for each in (hvp, vhp)]
    return [*firsts, *penalty, *products[0], *products[1], jvp(function, tuple(tensors), tuple(others))[1]]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_those_of_float64(name):
    function, shapes = FUNCTIONS[name]
    tensors, others = ([torch.randn(*shape) for shape in shapes] for _ in range(2))
    expected = seconds(wide_of(name, function), *([x.double() for x in each] for each in (tensors, others)))
    for got, wanted in zip(seconds(function, tensors, others), expected, strict=True):
        assert got.dtype == torch.float32
        assert wanted.abs().max() > 0
        bound = 3e-5 * max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=bound)


def wide_of(name, function):
    """The function in float64; dropout keeps what it keeps in float32."""
    if name != "dropout":
        return function
    kept = dropped(torch.zeros(300, 3), torch.ones(300, 3)).double()
    return lambda x, y: x.sin() + kept * y.sin()
