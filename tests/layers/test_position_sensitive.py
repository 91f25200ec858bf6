"""Axial-DeepLab's equation 4: by brute force, in every span."""

import pytest
import torch

from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from axial_transformers.ops.axial_attention import position_sensitive_attention
from tests import attention_reference as reference


def inputs(shape, rows, tables, dtype):
    q, k = (torch.randn(2, *shape, 2, 3, dtype=dtype) for _ in range(2))
    v = torch.randn(2, *shape, 2, 4, dtype=dtype)
    tables = [torch.randn(rows, tables, width, dtype=dtype) for width in (3, 3, 4)]
    return [x.requires_grad_() for x in (q, k, v, *tables)]


@pytest.mark.parametrize(("rows", "tables", "causal"), [(1, 2, False), (3, 1, True), (3, 2, False), (9, 1, False)])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 1, 4)], ids=str)
def test_equation_4_agrees_with_brute_force(shape, rows, tables, causal):
    """Spans 1 and 3 (banded on the longer axes), and just global on five positions, wider than the other axes."""
    single = inputs(shape, rows, tables, torch.float32)
    double = [x.detach().double().requires_grad_() for x in single]
    for axis in range(1, len(shape) + 1):
        slow = reference.position_sensitive_attention(*double, axis, causal)
        g = torch.randn(slow.shape)
        slow_grads = torch.autograd.grad(slow, double, g.double(), allow_unused=True)
        for args, bound in ((single, 1e-5), (double, 1e-12)):
            fast = position_sensitive_attention(*args, axis, causal)
            torch.testing.assert_close(fast.double(), slow, rtol=0, atol=bound)
            for a, b in zip(torch.autograd.grad(fast, args, g.to(fast.dtype)), slow_grads):
                expected = torch.zeros_like(a) if b is None else b
                torch.testing.assert_close(a.double(), expected.double(), rtol=0, atol=10 * bound)


def test_published_normalisation_standardises_each_term_over_the_pairs_that_attend():
    layer = PositionSensitiveAxialAttention(8, 2, axis=2, span=3, normalisation="batch").double()
    seen = {}
    for i, norm in enumerate(layer.normalise.of_terms):
        norm.register_forward_hook(lambda _, args, out, i=i: seen.__setitem__(i, out[..., args[1][0, 0]]))
    layer(torch.randn(4, 3, 5, 8, dtype=torch.float64))
    assert len(seen) == 3
    for after in seen.values():
        assert after.shape == (12, 2, 13)  # 5 positions see 13 pairs within +-1
        torch.testing.assert_close(after.mean((0, 2)), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-10)
        assert ((after.var((0, 2)) - 1).abs() < 0.1).all()


@pytest.mark.parametrize("normalisation", ["scale", "batch"])
def test_the_layer_survives_export_and_autocast(normalisation):
    layer = PositionSensitiveAxialAttention(8, 2, axis=2, size=5, normalisation=normalisation).eval()
    x = torch.randn(2, 3, 5, 8)
    expected = layer(x)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(x).float(), expected, rtol=0.1, atol=0.1)
