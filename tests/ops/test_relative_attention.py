"""Equation 4 by the engine equals that by torch, which tests of the layer compare with its definition."""

import copy

import pytest
import torch

from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from axial_transformers.ops import engine_attention, engine_relative
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.axial_attention import position_sensitive_attention
from axial_transformers.ops.operators import HAS_ENGINE

needs_engine = pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not compiled")


def inputs(shape, heads, width, value_width, rows, tables):
    """Queries, keys, values, and a table for each."""
    widths = width, width, value_width
    qkv = [torch.randn(*shape, heads, size) for size in widths]
    return [x.requires_grad_() for x in (*qkv, *(torch.randn(rows, tables, size) for size in widths))]


def compiled(tensors, axis, causal):
    tables, scale = tuple(tensors[3:]), tensors[0].shape[-1] ** -0.5
    return engine_relative.run(AttentionCall(*tensors[:3], axis, causal, tables=tables, scale=scale))


def assert_near(got, expected):
    bound = 1e-5 * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=bound)


@needs_engine
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "rows", "tables", "width", "value_width"),
    [
        ((1, 3, 5, 2), 2, 5, 2, 5, 3),
        ((2, 5, 1), 1, 5, 2, 5, 3),
        ((2, 1, 33), 2, 1, 1, 16, 40),
        ((2, 1, 33), 2, 81, 1, 16, 40),
        ((2, 70, 1), 1, 9, 1, 20, 7),
        ((2, 1, 70), 2, 139, 2, 20, 7),
        ((2, 1, 100), 2, 199, 2, 8, 40),
    ],
    ids=str,
)
def test_bands_of_all_widths_are_what_double_precision_gives(
    shape, axis, rows, tables, width, value_width, causal, monkeypatch
):
    """All heads at once, and one; within a block, and over several."""
    tensors = inputs(shape, 2, width, value_width, rows, tables)
    wide = [x.detach().double().requires_grad_() for x in tensors]
    expected = position_sensitive_attention(*wide, axis, causal)
    grad = torch.randn(expected.shape)
    gradients = torch.autograd.grad(expected, wide, grad.double(), allow_unused=True, materialize_grads=True)
    for together in (engine_attention.AT_ONCE, 0):
        monkeypatch.setattr(engine_attention, "AT_ONCE", together)
        out = compiled(tensors, axis, causal)
        assert_near(out, expected)
        for a, b in zip(torch.autograd.grad(out, tensors, grad), gradients):
            assert_near(a, b)


@needs_engine
def test_threads_do_not_change_a_bit_of_any_gradient():
    tensors, before, results = inputs((2, 5, 33), 2, 8, 8, 65, 1), torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        out = compiled(tensors, 2, True)
        results.append((out, *torch.autograd.grad(out.square().sum(), tensors)))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0]))


@needs_engine
def test_what_is_not_a_number_in_a_line_has_no_influence_on_the_next():
    tensors = inputs((2, 4, 40), 1, 8, 8, 9, 1)
    gradients = torch.autograd.grad(compiled(tensors, 2, False)[:, 1:].sum(), tensors[:3])
    with torch.no_grad():
        for x in tensors[:3]:
            x[:, 0] = torch.nan
    out = compiled(tensors, 2, False)
    assert out[:, 0].isnan().all()
    for x, y in zip(torch.autograd.grad(out[:, 1:].sum(), tensors[:3]), gradients):
        assert torch.equal(x[:, 1:], y[:, 1:])


@needs_engine
@pytest.mark.parametrize("normalisation", ["none", "scale", "batch"])
@pytest.mark.parametrize("extent", [{"size": 9}, {"span": 3, "causal": True}], ids=str)
def test_a_layer_is_the_same_by_the_compiled_kernel(extent, normalisation, monkeypatch):
    layer = PositionSensitiveAxialAttention(16, 2, axis=-3, value_dim=16, normalisation=normalisation, **extent)
    randomise(layer.eval())
    for norm in (module for module in layer.modules() if isinstance(module, torch.nn.BatchNorm1d)):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 0)
    x, found = torch.randn(2, 9, 3, 16), []
    for same, dtype in ((layer, torch.float32), (copy.deepcopy(layer).double(), torch.float64)):  # that is composed
        out = same(x.to(dtype))
        found.append((out, *torch.autograd.grad(out.square().sum(), [*same.parameters()], allow_unused=True)))
    for a, b in zip(*found):  # a shift of all scores has no effect
        assert_near(torch.zeros_like(b) if a is None else a, b)
    half = layer.to(torch.bfloat16)(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), found[0][0].detach(), rtol=0.1, atol=0.2)
