"""Attention along axes, over everything, and across tensors: agreement with references, and receptive fields."""

from math import log, sqrt

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.layers.attention import AxialAttention, CrossAttention, FullAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.lines import AttentionOptions
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from axial_transformers.ops import torch_attention
from axial_transformers.ops.axial_attention import full_attention
from tests import attention_reference as reference
from tests.forced_backend import forced

EXTENTS = {"size": {"size": 7}, "span": {"span": 3}, "causal": {"span": 3, "causal": True}}


def randomised(layer: nn.Module) -> nn.Module:
    """Weights of scale 1 in float64."""
    randomise(layer)
    return layer.double()


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def reaches(layer: nn.Module, shape: tuple[int, ...], dim: int = 4) -> torch.Tensor:
    """[positions, positions]: whether output o depends on input p."""
    randomise(layer)
    x = normal(1, *shape, dim)
    jacobian = torch.autograd.functional.jacobian(layer.double(), x)
    positions = x[0, ..., 0].numel()
    return jacobian.view(positions, dim, positions, dim).abs().amax((1, 3)) > 1e-12


@pytest.mark.parametrize(("shape", "other"), [((5,), (5,)), ((2, 3), (4,)), ((2, 1, 2), (3, 2))], ids=str)
def test_full_attention_equals_its_reference_on_any_two_grids(shape, other):
    q, k, v = (normal(2, *grid, 2, width).requires_grad_() for grid, width in ((shape, 3), (other, 3), (other, 4)))
    for mask in (None, torch.rand(2, *other) > 0.4):
        fast, slow = full_attention(q, k, v, mask), reference.full_attention(q, k, v, mask)
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
        g = torch.randn_like(slow)
        for a, b in zip(torch.autograd.grad(fast, (q, k, v), g), torch.autograd.grad(slow, (q, k, v), g)):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def parts_of(x, linear, widths, heads):
    return [part.unflatten(-1, (heads, -1)) for part in linear(x).split(widths, dim=-1)]


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("grid", [(3, 5, 2), (1, 7), (6,)], ids=str)
@pytest.mark.parametrize("name", ["full", "cross", "sequence", "sum", *(f"equation 4 {extent}" for extent in EXTENTS)])
def test_layers_are_their_operation_between_their_projections(name, grid, project):
    x, axes, bias = normal(2, *grid, 4), tuple(range(len(grid), 0, -1)), {"bias": project, "project": project}
    if name == "full":
        layer = randomised(FullAttention(4, 2, 6, 8, **bias))
        expected = layer.out(reference.full_attention(*parts_of(x, layer.qkv, [6, 6, 8], 2)).flatten(-2))
        values = parts_of(x, layer.qkv, [6, 6, 8], 2)[2].flatten(1, -3)
        attended = torch.einsum("b...np,bpnk->b...nk", layer.weights(x).flatten(-len(grid)), values)
        torch.testing.assert_close(layer.out(attended.flatten(-2)), expected, rtol=0, atol=1e-12)
        found = layer(x)
    elif name == "cross":
        layer, context = randomised(CrossAttention(4, 2, 3, 6, 8, **bias)), normal(2, 2, 4, 3)
        tensors = [*parts_of(x, layer.q, [6], 2), *parts_of(context, layer.kv, [6, 8], 2)]
        expected = layer.out(reference.full_attention(*tensors).flatten(-2))
        attended = torch.einsum("b...np,bpnk->b...nk", layer.weights(x, context).flatten(-2), tensors[2].flatten(1, 2))
        torch.testing.assert_close(layer.out(attended.flatten(-2)), expected, rtol=0, atol=1e-12)
        found = layer(x, context)
    elif name.startswith("equation 4"):
        extent = EXTENTS[name.removeprefix("equation 4 ")]
        options = {"normalisation": "scale" if project else "none", "shared_tables": project, "value_dim": 8, **bias}
        layer = randomised(PositionSensitiveAxialAttention(4, 2, axes[0], key_dim=6, **options, **extent))
        q, k, v = parts_of(x, layer.qkv, [6, 6, 8], 2)
        tables, factor = [layer.query_table, layer.key_table, layer.value_table], 1.0 if project else sqrt(3)
        scaled = q * factor, k, v, tables[0], factor * tables[1], tables[2]
        expected = layer.out(reference.position_sensitive_attention(*scaled, axes[0], layer.causal).flatten(-2))
        found = layer(x)
    else:
        layer = randomised(AxialAttention(4, 2, axes, name, key_dim=6, value_dim=8 if project else 4, **bias))
        outs, found = [x], layer(x)
        for axis, part in zip(axes, layer.layers.values()):
            tensors = parts_of(x if name == "sum" else outs[-1], part.qkv, list(part.widths), 2)
            outs.append(part.out(reference.axial_attention(*tensors, axis).flatten(-2)))
        expected = sum(outs[1:]) if name == "sum" else outs[-1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_rows_come_first_and_weights_are_named_by_axis_whatever_the_order():
    layer, x = AxialAttention(4, 2), normal(1, 3, 5, 4).float()
    randomise(layer)
    rows, columns = layer.layers["axis_2"], layer.layers["axis_1"]
    assert torch.equal(layer(x), columns(rows(x)))
    stored = AxialAttention(4, 2, (1, 2, 1)).state_dict()
    assert {name.split(".")[1] for name in stored} == {"axis_1", "axis_2", "axis_1_round_2"}
    other = AxialAttention(4, 2, (2, 1, 1))
    other.load_state_dict(stored)
    assert [part.axis for part in other.layers.values()] == [2, 1, 1]
    assert all(torch.equal(tensor, stored[name]) for name, tensor in other.state_dict().items())


WINDOWS = AttentionOptions(window=3, dilation=2)


@pytest.mark.parametrize(
    ("layer", "sides", "exponent"),
    [
        (AxialAttention(8, 2), (4, 32), 1.5),
        (FullAttention(8, 2), (4, 32), 2.0),
        (AxialAttention(8, 2, options=WINDOWS), (64, 256), 1.0),
    ],
    ids=["axial", "full", "windows"],
)
def test_score_and_value_products_grow_as_they_should_with_the_number_of_positions(layer, sides, exponent):
    counts = []
    for side in sides:
        with torch.no_grad(), forced(torch_attention), FlopCounterMode(display=False) as counter:
            layer(torch.randn(1, side, side, 8))
        counts.append(sum(counter.flop_counts["Global"][op] for op in (torch.ops.aten.bmm, torch.ops.aten.baddbmm)))
    slope = log(counts[1] / counts[0]) / (2 * log(sides[1] / sides[0]))
    assert slope == pytest.approx(exponent, abs=0.05)


@pytest.mark.parametrize(
    ("options", "reached"),
    [
        ({"axes": 2}, lambda i, j, k, m: i == k),
        ({"axes": 1, "causal": (1,)}, lambda i, j, k, m: (k <= i) & (j == m)),
        ({"axes": (1, 2), "combine": "sequence"}, lambda i, j, k, m: torch.ones_like(i, dtype=torch.bool)),
        ({"axes": (1, 2), "combine": "sum"}, lambda i, j, k, m: (i == k) | (j == m)),
        ({"axes": (2, 1), "causal": (1, 2)}, lambda i, j, k, m: (k <= i) & (m <= j)),
    ],
    ids=["a row", "a masked column", "everything", "a cross", "a masked pair"],
)
def test_a_layer_reaches_exactly_what_its_axes_lead_to(options, reached):
    """Whether the output at (i, j) depends on the input at (k, m)."""
    positions = torch.meshgrid(*map(torch.arange, (3, 5, 3, 5)), indexing="ij")
    seen = reaches(AxialAttention(4, 2, **options), (3, 5)).view(3, 5, 3, 5)
    assert torch.equal(seen, reached(*positions))
