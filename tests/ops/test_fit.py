"""Keys that are excluded never count, whatever excludes them, and arguments that do not fit are refused before work."""

from functools import partial
from itertools import product

import pytest
import torch

import axial_transformers as axial
from axial_transformers import AttentionOptions, axial_attention
from axial_transformers.ops.axial_attention import full_attention, position_sensitive_attention


@pytest.mark.parametrize(("lines", "length"), [(2, 5), (2, 64), (16, 80)], ids=["composed", "fused", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("differentiable", [False, True])
def test_a_bias_that_excludes_all_permitted_keys_leads_to_no_other(lines, length, dtype, differentiable):
    """Of the first positions: the bias excludes the only one that they may attend to, or all but the absent ones."""
    q, k, v = torch.randn(3, 1, lines, length, 4, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    later = v.clone()
    later[:, :, 2:] += 100
    present = torch.ones(1, lines, length, dtype=torch.bool)
    present[:, :, 2:] = False
    for least in (-torch.inf, torch.finfo(dtype).min):
        first = torch.zeros(1, 1, length, length, dtype=dtype)
        first[..., :2, :2] = least
        masked = torch.full_like(first, least).triu(1)
        masked[..., 0, 0] = least
        for bias, options in ((first, {"causal": True}), (first, {"key_mask": present}), (masked, {"causal": True})):
            given = bias.clone().requires_grad_(differentiable)
            found = [axial_attention(q, k, u, 2, attn_bias=given, **options) for u in (v, later)]
            assert torch.equal(found[0][:, :, 0], found[1][:, :, 0])
            assert torch.equal(found[0][:, :, 0], torch.zeros_like(found[0][:, :, 0]))
            assert found[0].isfinite().all()


@pytest.mark.parametrize("length", [6, 64], ids=["torch", "compiled"])
def test_tensors_that_do_not_fit_position_sensitive_attention_are_refused(length):
    rows = 2 * length - 1
    q, k, v = torch.randn(3, 1, length, length, 4, 16)
    a, b, c = torch.randn(3, rows, 1, 16)
    wrong = [
        (q, k[:, :, :-1], v[:, :, :-1], a, b, c),
        (q, k[..., :2, :], v[..., :2, :], a, b, c),
        (q, k, v[:, :-1], a, b, c),
        (q, k[..., :8], v, a, b, c),
        (q.expand(2, *q.shape[1:]), k, v, a, b, c),
        (q, k.double(), v, a, b, c),
        (q, k, v, a.expand(rows, 2, 16), b, c),
        (q, k, v, a, b[..., :8], c),
        (q, k, v, a, b, c[:-2]),
        (q, k, v, a, b, torch.randn(rows, 1, 20)),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"sizes|dtype|_table"):
            position_sensitive_attention(*arguments, 2)


@pytest.mark.parametrize("heads", [(4, 1, 1), (1, 4, 1), (1, 1, 4)])
def test_a_table_may_be_shared_by_heads_where_others_are_not(heads):
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 1, 64, 64, 4, 16))
    tables = [torch.randn(127, count, 16, requires_grad=True) for count in heads]
    whole = [table.detach().double().expand(-1, 4, -1).requires_grad_() for table in tables]
    out = position_sensitive_attention(q, k, v, *tables, 2)
    expected = position_sensitive_attention(*(x.double() for x in (q, k, v)), *whole, 2)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-4)
    gradients = torch.autograd.grad(out.sum(), tables)
    for count, found, right in zip(heads, gradients, torch.autograd.grad(expected.sum(), whole)):
        right = right if count == 4 else right.sum(1, keepdim=True)
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-3)


def test_lines_without_positions_have_no_results_and_a_dilation_beyond_a_line_leaves_each_position_alone():
    for options in ({}, {"causal": True}, {"dilation": 3}):
        assert axial_attention(*torch.randn(3, 2, 0, 3, 4, 8), 1, **options).shape == (2, 0, 3, 4, 8)
    q, k, v = torch.randn(3, 1, 2, 6, 4, 16)
    torch.testing.assert_close(axial_attention(q, k, v, 2, dilation=10**9), v)


LACKING = [
    *((partial(axial.LineAttention, 8, 2, axis), axis) for axis in (0, -1, 3, -4)),
    (partial(axial.AxialAttention, 8, 2, 3), 3),
    (partial(axial.PositionSensitiveAxialAttention, 8, 2, -4, size=7), -4),
    (partial(axial.TiedAxialAttention, 8, 2, 0), 0),
    (partial(axial.TiedAxialAttention, 8, 2, 2, 3), 3),
]


@pytest.mark.parametrize(("make", "axis"), LACKING)
def test_an_axis_that_the_input_lacks_is_told_in_the_shape_of_the_input(make, axis):
    message = rf"axis {axis} is not .*of the input \[2, 5, 6, 8\]: \[B, \*A, D\] has axes 1\.\.2"
    with pytest.raises(ValueError, match=message):
        make()(torch.randn(2, 5, 6, 8))


@pytest.mark.parametrize(
    "option",
    [
        {"kv_heads": 0}, {"relative": -1}, {"rotary": 0.0}, {"rotary": float("nan")}, {"rotary": float("inf")},
        {"dropout": 1.0}, {"dropout": -0.1}, {"dropout": float("nan")}, {"dilation": 0}, {"window": 2}, {"window": -3},
    ],
    ids=str,
)  # fmt: skip
def test_options_out_of_their_range_are_refused_where_they_are_given(option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"^{name} .*{value}$"):
        AttentionOptions(**option)


@pytest.mark.parametrize("length", [6, 128], ids=["torch", "compiled"])
def test_tensors_of_several_dtypes_or_of_integers_are_refused_on_all_paths(length):
    tensors = torch.ones(3, 1, 64, length, 4, 16)
    present, bias = torch.ones(1, 64, length, dtype=torch.bool), torch.zeros(1, 1, length, length)
    options = (
        {"causal": True},
        {"window": 3},
        {"dilation": 2},
        {"dropout": 0.5},
        {"key_mask": present},
        {"attn_bias": bias},
    )
    calls = [partial(axial_attention, axis=2, **given) for given in ({}, *options)]
    calls += [full_attention, partial(axial.tied_axial_attention, axis=2, tied=1)]
    mixed = [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float32, torch.float64)]
    wrong = [[torch.int64] * 3]
    wrong += [each for a, b in mixed for each in ((a, b, b), (a, b, a), (a, a, b))]
    for call, dtypes in product(calls, wrong):
        with pytest.raises(ValueError, match="dtype"):
            call(*(x.to(dtype) for x, dtype in zip(tensors, dtypes)))
