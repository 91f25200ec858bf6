"""Keys that are excluded never count, whatever excludes them, and arguments that do not fit are refused before work."""

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


@pytest.mark.parametrize("shape", [(1, 2, 6), (1, 64, 64)], ids=["torch", "compiled"])
def test_tensors_that_do_not_fit_position_sensitive_attention_are_refused(shape):
    rows = 2 * shape[-1] - 1
    q, k, v = torch.randn(3, *shape, 4, 16)

    def tables(query=(rows, 1, 16), key=(rows, 1, 16), value=(rows, 1, 16)):
        return [torch.randn(*size) for size in (query, key, value)]

    wrong = [
        (q, k[:, :, :-1], v[:, :, :-1], *tables()),
        (q, k[..., :2, :], v[..., :2, :], *tables()),
        (q, k, v[:, :-1], *tables()),
        (q, k[..., :8], v, *tables()),
        (q.expand(2, *q.shape[1:]), k, v, *tables()),
        (q, k.double(), v, *tables()),
        (q, k, v, *tables(query=(rows, 2, 16))),
        (q, k, v, *tables(key=(rows, 1, 8))),
        (q, k, v, *tables(value=(rows - 2, 1, 16))),
        (q, k, v, *tables(value=(rows, 1, 20))),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"must share all sizes|one floating-point dtype|_table must be"):
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


def test_lines_without_positions_have_no_results():
    for options in ({}, {"causal": True}, {"dilation": 3}):
        assert axial_attention(*torch.randn(3, 2, 0, 3, 4, 8), 1, **options).shape == (2, 0, 3, 4, 8)


def test_a_mask_in_place_of_a_bias_is_refused():
    q, k, v = torch.randn(3, 1, 2, 6, 4, 16)
    with pytest.raises(ValueError, match="attn_bias is added to the scores"):
        axial_attention(q, k, v, 2, attn_bias=torch.ones(1, 1, 6, 6, dtype=torch.bool))


def test_a_dilation_beyond_the_line_leaves_each_position_alone():
    q, k, v = torch.randn(3, 1, 2, 6, 4, 16)
    torch.testing.assert_close(axial_attention(q, k, v, 2, dilation=10**9), v)


@pytest.mark.parametrize("axis", [0, -1, 3, -4])
@pytest.mark.parametrize(
    "make",
    [
        lambda axis: axial.AxialAttention(8, 2, abs(axis) + 3),
        lambda axis: axial.LineAttention(8, 2, axis),
        lambda axis: axial.PositionSensitiveAxialAttention(8, 2, axis, size=7),
        lambda axis: axial.TiedAxialAttention(8, 2, axis),
        lambda axis: axial.TiedAxialAttention(8, 2, 2, axis),
    ],
    ids=["axial", "line", "position-sensitive", "tied", "tied over"],
)
def test_an_axis_that_the_input_lacks_is_told_in_the_shape_of_the_input(make, axis):
    with pytest.raises(ValueError, match=r"of the input \[2, 5, 6, 8\]: \[B, \*A, D\] has axes 1\.\.2") as refused:
        make(axis)(torch.randn(2, 5, 6, 8))
    assert any(f"axis {n} is not" in str(refused.value) for n in (axis, abs(axis) + 3))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kv_heads", 0),
        ("relative", -1),
        *[("rotary", base) for base in (0.0, float("nan"), float("inf"))],
        *[("dropout", share) for share in (1.0, -0.1, float("nan"))],
        ("dilation", 0),
        *[("window", size) for size in (2, -3)],
    ],
)
def test_options_out_of_their_range_are_refused_where_they_are_given(option, value):
    with pytest.raises(ValueError, match=rf"^{option} must be .*, not {value}$"):
        AttentionOptions(**{option: value})


def test_a_shape_of_bias_is_named_once():
    x = torch.randn(2, 5, 6, 8)
    with pytest.raises(ValueError, match="attn_bias must be") as refused:
        axial.TiedAxialAttention(8, 2)(x, attn_bias=torch.randn(2, 1, 2, 6, 6))
    assert str(refused.value).count("[2, 2, 6, 6]") == 1
    with pytest.raises(ValueError, match=r"must be \[2, 2, 6, 6\], or \[2, 5, 2, 6, 6\] for one a line"):
        axial.LineAttention(8, 2, 2)(x, attn_bias=torch.randn(2, 2, 5, 6))


@pytest.mark.parametrize("length", [6, 128], ids=["torch", "compiled"])
def test_tensors_of_several_dtypes_or_of_integers_are_refused_on_all_paths(length):
    tensors = torch.ones(3, 1, 64, length, 4, 16)
    options = (
        {},
        {"causal": True},
        {"window": 3},
        {"dilation": 2},
        {"dropout": 0.5},
        {"key_mask": torch.ones(1, 64, length, dtype=torch.bool)},
        {"attn_bias": torch.zeros(1, 1, length, length)},
    )
    calls = [lambda *qkv, given=given: axial_attention(*qkv, 2, **given) for given in options]
    calls += [full_attention, lambda *qkv: axial.tied_axial_attention(*qkv, 2, 1)]
    mixed = [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float32, torch.float64)]
    for first, other in mixed:
        for dtypes in ((first, other, other), (first, other, first), (first, first, other)):
            for call in calls:
                with pytest.raises(ValueError, match="q, k, v must have one floating-point dtype"):
                    call(*(x.to(dtype) for x, dtype in zip(tensors, dtypes)))
    for call in calls:
        with pytest.raises(ValueError, match="q, k, v must have one floating-point dtype"):
            call(*tensors.long())
