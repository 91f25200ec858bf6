"""Custom operators and autograd functions have implementations without values that agree with the real ones."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import axial_transformers
from axial_transformers.ops import elementwise, engine_attention, engine_relative, sdpa
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.operators import HAS_ENGINE

needs_engine = pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not compiled")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


Q, K, V = (random(2, 3, 5, 2, width) for width in (4, 4, 3))
SUMS = torch.ones(60, 2)
BIAS = random(2, 1, 5, 5)
GRADS = [torch.empty_like(x) for x in (Q, K, V, BIAS)]
MASK = random(6, 5) > 0
TABLES = [random(5, 1, width) for width in (4, 4, 3)]
OPERATORS = {
    "attend_lines": (
        engine_attention._forward,
        ([Q, K, V], [BIAS], 2, True, 1.0, MASK, random(5, 4), torch.empty_like(V), SUMS),
        needs_engine,
    ),
    "attend_lines_backward": (
        engine_attention._backward,
        ([Q, K, V, random(*V.shape)], [BIAS], 2, True, 1.0, MASK, random(5, 4), SUMS, GRADS),
        needs_engine,
    ),
    "attend_lines with tables": (
        engine_attention._forward,
        ([Q, K, V], TABLES, 2, True, 0.5, MASK, None, torch.empty_like(V), SUMS),
        needs_engine,
    ),
    "attend_lines_backward with tables": (
        engine_attention._backward,
        (
            *([Q, K, V, random(*V.shape)], TABLES, 2, True, 0.5, MASK, None, SUMS),
            [*GRADS[:3], *map(torch.empty_like, TABLES)],
        ),
        needs_engine,
    ),
    "kept": (elementwise._kept, (random(5, 7), 1000), ()),
}


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [pytest.param(*case, marks=marks, id=name) for name, (*case, marks) in OPERATORS.items()],
)
def test_custom_operators_are_declared_as_they_are(operator, arguments):
    torch.library.opcheck(
        operator, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
    )


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "_Attention, relative": (
        lambda *x: engine_relative.run(AttentionCall(*x[:3], 2, True, tables=x[3:], scale=0.5)),
        (Q, K, V, *TABLES),
    ),
    "_Attention": (
        lambda q, k, v, bias: engine_attention.run(AttentionCall(q, k, v, 2, True, bias=bias[:, None])),
        (Q, K, V, BIAS),
    ),
    "_Differentiable": (lambda *x: sdpa.run(AttentionCall(*x, 2, True)), (Q, K, V)),
    "_QuickGELU": (elementwise.quick_gelu, (random(3, 5),)),
    "_AddDropped": (lambda *tensors: elementwise.add_dropped(*tensors, 0.5), (random(256, 256), random(256, 256))),
}


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(*case, marks=needs_engine if "_Attention" in name else (), id=name)
        for name, case in FUNCTIONS.items()
    ],
)
def test_autograd_functions_have_values_and_gradients_of_the_same_form_without_values(function, arguments):
    found = []
    for mode in (nullcontext(), FakeTensorMode(allow_non_fake_inputs=True)):
        with mode:
            tensors = [torch.zeros_like(x).requires_grad_() for x in arguments]
            out = function(*tensors)
            gradients = torch.autograd.grad(out.sum(), tensors)
        found.append([(x.shape, x.stride(), x.dtype) for x in (out, *gradients)])
    assert found[0] == found[1]


ELSEWHERE = {"attend_masked", "attend_masked_backward"}
"""Operators that need Triton: triton_cases.py."""


def test_no_operator_or_function_is_left_out():
    sources = "\n".join(path.read_text() for path in Path(axial_transformers.__file__).parent.rglob("*.py"))
    assert set(re.findall(r'"axial_transformers::(\w+)"', sources)) == ELSEWHERE | {
        name.split()[0] for name in OPERATORS
    }
    assert set(re.findall(r"class (\w+)\(torch\.autograd\.Function\)", sources)) == {
        name.split(",")[0] for name in FUNCTIONS
    }
