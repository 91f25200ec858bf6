"""What kernels of Triton compute, in Triton's interpreter on the CPU; `test_triton_attention.py` runs this file."""

import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

import axial_transformers as axial
from axial_transformers.ops import torch_attention, triton_attention, triton_kernels
from axial_transformers.ops.attention_call import AttentionCall, normalised
from tests import attention_reference as reference
from tests.forced_backend import forced
from tests.layers.test_attention import normal
from tests.layers.test_lines import CASES, bias_of

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
QUICK = (torch.float32, CASES[8]), (torch.bfloat16, CASES[9])
"""Every other case is slow: the interpreter takes tens of milliseconds for each line and head."""


@pytest.fixture(autouse=True)
def products_of_bfloat16(monkeypatch):
    """The interpreter keeps bfloat16 as integers, and would multiply those."""
    multiply = interpreter.InterpreterBuilder.create_dot

    def widened(self, a, b, *rest):
        a, b = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return multiply(self, a, b, *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", widened)


def assert_near(got, expected, dtype):
    bound = TOLERANCE[dtype] * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("dtype", "case"),
    [
        pytest.param(dtype, case, id=f"{dtype} {case}", marks=[] if quick else pytest.mark.slow)
        for dtype in TOLERANCE
        for case in CASES
        for quick in [(dtype, case) in QUICK]
    ],
)
def test_every_option_equals_the_reference(dtype, case):
    shape, on, causal, masked, groups, window, dilation, kind = case
    q, k, v = (normal(2, *shape, heads, 2).to(dtype).requires_grad_() for heads in (4, groups, groups))
    mask = torch.rand(2, *shape) > 0.3 if masked else None
    bias, whole = (None, None) if kind is None else bias_of(kind, shape, on, window or shape[on - 1])
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    slow = reference.axial_attention(*wide, on, causal, mask, whole, window=window, dilation=dilation)
    learned = [] if bias is None else [bias.detach().float().requires_grad_()]
    grad = torch.randn_like(slow).to(dtype)
    expected = torch.autograd.grad(slow, [*wide, *[bias] * len(learned)], grad.double())
    with forced(triton_attention):
        fast = axial.axial_attention(q, k, v, on, causal, mask, *learned, window=window, dilation=dilation)
        found = torch.autograd.grad(fast, [q, k, v, *learned], grad)
    assert fast.dtype == dtype
    assert_near(fast, slow, dtype)
    for got, right in zip(found, expected):
        assert_near(got, right, dtype)


@pytest.mark.parametrize(
    ("length", "width", "value_width", "causal", "window"),
    [
        (32, 8, 16, False, None),
        (70, 5, 20, True, 9),
        pytest.param(130, 64, 64, False, 9, marks=pytest.mark.slow),
        pytest.param(256, 16, 3, True, None, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_lines_of_32_to_256_keys_and_heads_of_8_to_64_equal_the_reference(length, width, value_width, causal, window):
    """Lengths that fill the last queries or not."""
    q, k, v = (normal(1, 2, length, 1, w).float().requires_grad_() for w in (width, width, value_width))
    bias = normal(1, 1, length, window or length).float().requires_grad_()
    mask = torch.rand(1, 2, length) > 0.3
    wide = [x.detach().double().requires_grad_() for x in (q, k, v, bias)]
    slow = reference.axial_attention(*wide[:3], 2, causal, mask, wide[3][:, None], window=window)
    grad = torch.randn_like(slow)
    with forced(triton_attention):
        fast = axial.axial_attention(q, k, v, 2, causal, mask, bias, window=window)
    assert_near(fast, slow, torch.float32)
    found = torch.autograd.grad(fast, [q, k, v, bias], grad.float())
    for got, right in zip(found, torch.autograd.grad(slow, wide, grad)):
        assert_near(got, right, torch.float32)


def test_absent_positions_do_not_count_whatever_they_hold():
    q, k, v = (normal(2, 3, 6, 2, 4).float() for _ in range(3))
    mask = torch.rand(2, 3, 6) > 0.4
    mask[1, 2] = False
    for x in (q, k, v):
        x.masked_fill_(~mask[..., None, None] & (torch.rand(2, 3, 6, 1, 1) > 0.5), torch.nan)
        x.requires_grad_()
    grad = normal(2, 3, 6, 2, 4).float()
    sides = []
    for backend in (triton_attention, torch_attention):
        with forced(backend):
            out = axial.axial_attention(q, k, v, 2, False, mask)
        assert not out[1, 2].any()
        sides.append([out, *torch.autograd.grad(out, (q, k, v), grad)])
    for got, right in zip(*sides):
        assert got.isfinite().all()
        assert_near(got, right, torch.float32)


def test_a_bias_of_minus_infinity_excludes_a_key_and_has_no_gradient():
    q, k, v = (normal(1, 5, 2, 4).float() for _ in range(3))
    bias = normal(1, 2, 5, 5).float().masked_fill(torch.rand(1, 2, 5, 5) > 0.5, -torch.inf)
    bias[0, 0, 3] = -torch.inf
    bias.requires_grad_()
    sides = []
    for backend in (triton_attention, torch_attention):
        with forced(backend):
            out = axial.axial_attention(q, k, v, 1, attn_bias=bias)
        sides.append([out, *torch.autograd.grad(out.square().sum(), bias)])
    for got, right in zip(*sides):
        assert_near(got, right, torch.float32)
    assert not sides[0][0][0, 3, 0].any()


@pytest.mark.parametrize(("groups", "programs"), [((1, 1, 1), 1), ((2, 1, 2), 512), ((1, 2, 1), 3)])
def test_the_gradient_of_a_bias_is_a_sum_over_all_that_share_it(groups, programs, monkeypatch):
    monkeypatch.setattr(triton_kernels, "PROGRAMS", programs)
    q, k, v, grad = (normal(2, 2, 3, 2, 2).float() for _ in range(4))
    bias = normal(*groups, 3, 3).float()
    own = bias.expand(2, 2, 2, 3, 3).contiguous()
    lines, each = (triton_kernels.Lines(q, k, v, None, x, True, 0).bias_gradient(grad) for x in (bias, own))
    assert_near(lines, each.sum_to_size(bias.shape), torch.float32)
    assert torch.equal(lines, triton_kernels.Lines(q, k, v, None, bias, True, 0).bias_gradient(grad))


def call_of(**options):
    q = normal(2, 3, 6, 2, 4).float()
    return normalised(AttentionCall(q, q, q, 2, **options))


def test_second_derivatives_are_those_of_the_formula():
    q, k, v = (normal(1, 2, 4, 2, 3).float().requires_grad_() for _ in range(3))
    bias = normal(1, 1, 4, 4).float().requires_grad_()
    sides = []
    for backend in (triton_attention, torch_attention):
        with forced(backend):
            out = axial.axial_attention(q, k, v, 2, True, None, bias)
        first = torch.autograd.grad(out.square().sum(), (q, k, v, bias), create_graph=True)
        total = sum(x.square().sum() for x in first)
        sides.append([*first, *torch.autograd.grad(total, (q, k, v, bias))])
    for got, right in zip(*sides):
        assert_near(got, right, torch.float32)


@pytest.mark.slow
def test_the_operators_have_implementations_without_values():
    q, k = (normal(1, 2, 3, 1, 4).float().requires_grad_() for _ in range(2))
    v = normal(1, 2, 3, 1, 5).float().requires_grad_()
    bias = normal(1, 1, 1, 2, 1).float().requires_grad_()
    given = q, k, v, torch.rand(1, 2, 3) > 0.3, bias, 1, True, 0
    torch.library.opcheck(triton_attention._forward, given)
    tests = "test_schema", "test_faketensor"
    grad = normal(1, 2, 3, 1, 5).float()
    torch.library.opcheck(triton_attention._backward, (grad, *given, True), test_utils=tests)


def test_it_takes_masks_biases_and_windows_and_says_why_it_refuses_others():
    mask = torch.ones(2, 3, 6, dtype=torch.bool)
    for options in (
        {"key_mask": mask},
        {"bias": normal(1, 1, 6, 6)},
        {"window": 3},
        {"key_mask": mask, "causal": True},
    ):
        assert triton_attention.refuses(call_of(**options)) is None
    others = {
        "as fast": call_of(),
        "dropout": call_of(key_mask=mask, dropout=0.5),
        "float32": call_of(key_mask=mask)._replace(q=normal(2, 3, 6, 2, 4)),
        "256": call_of(key_mask=mask)._replace(q=torch.zeros(1, 3, 257, 1, 4)),
        "64": call_of(key_mask=mask)._replace(q=torch.zeros(1, 3, 6, 1, 65)),
    }
    for reason, call in others.items():
        assert reason in triton_attention.refuses(call)
