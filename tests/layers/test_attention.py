"""Attention along axes, over everything, and across tensors: agreement with references, and receptive fields."""

from functools import partial
from math import log

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.layers.attention import (
    AxialAttention,
    ChannelsFirst,
    CrossAttention,
    FullAttention,
)
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.lines import LineAttention
from axial_transformers.ops import composed_attention, fused_attention, line_groups
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.axial_attention import axial_attention, full_attention
from axial_transformers.ops.backends import attend
from tests import attention_reference as reference
from tests.forced_backend import forced

SHAPES = [(5,), (3, 5), (1, 4), (2, 3, 4)]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def attend_lines(q, k, v, causal=False, key_mask=None):
    """Attention along lines [m, heads, L, width] by torch's operations."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attend(AttentionCall(q, k, v, 1, causal, key_mask, full=True)).transpose(1, 2)


def reaches(layer: nn.Module, shape: tuple[int, ...], dim: int = 4) -> torch.Tensor:
    """[positions, positions]: whether output o depends on input p."""
    randomise(layer)
    x = normal(1, *shape, dim)
    jacobian = torch.autograd.functional.jacobian(layer.double(), x)
    positions = x[0, ..., 0].numel()
    return jacobian.view(positions, dim, positions, dim).abs().amax((1, 3)) > 1e-12


@DTYPES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_axial_attention_equals_its_reference_forward_and_backward(shape, masked, causal, dtype):
    q, k = (normal(2, *shape, 2, 3, dtype=dtype).requires_grad_() for _ in range(2))
    v = normal(2, *shape, 2, 4, dtype=dtype).requires_grad_()
    mask = torch.rand(2, *shape) > 0.4 if masked else None
    for axis in range(1, len(shape) + 1):
        fast = axial_attention(q, k, v, axis, causal, mask)
        slow = reference.axial_attention(q, k, v, axis, causal, mask)
        torch.testing.assert_close(fast, slow, rtol=0, atol=TOLERANCE[dtype])
        g = torch.randn_like(slow)
        for a, b in zip(torch.autograd.grad(fast, (q, k, v), g), torch.autograd.grad(slow, (q, k, v), g)):
            torch.testing.assert_close(a, b, rtol=0, atol=5 * TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize(("shape", "other"), [((5,), (5,)), ((2, 3), (4,)), ((2, 1, 2), (3, 2))], ids=str)
def test_full_attention_equals_its_reference_on_any_two_grids(shape, other, dtype):
    q = normal(2, *shape, 2, 3, dtype=dtype).requires_grad_()
    k, v = normal(2, *other, 2, 3, dtype=dtype).requires_grad_(), normal(2, *other, 2, 4, dtype=dtype).requires_grad_()
    for mask in (None, torch.rand(2, *other) > 0.4):
        fast, slow = full_attention(q, k, v, mask), reference.full_attention(q, k, v, mask)
        torch.testing.assert_close(fast, slow, rtol=0, atol=TOLERANCE[dtype])
        g = torch.randn_like(slow)
        for a, b in zip(torch.autograd.grad(fast, (q, k, v), g), torch.autograd.grad(slow, (q, k, v), g)):
            torch.testing.assert_close(a, b, rtol=0, atol=5 * TOLERANCE[dtype])


@pytest.mark.parametrize("piece", [2**20, 30], ids=["at once", "in pieces"])
@pytest.mark.parametrize("backend", [fused_attention, composed_attention], ids=["fused", "composed"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "ragged"])
def test_every_kernel_has_the_right_gradients(backend, piece, causal, masked, monkeypatch):
    monkeypatch.setitem(line_groups.PIECE, "cpu", piece)
    q, k, v = (normal(3, 2, 4, width).requires_grad_() for width in (2, 2, 3))
    mask = torch.tensor([[True, True, False, True], [False, True, True, False], [False] * 4]) if masked else None
    with forced(backend):
        out = attend_lines(q, k, v, causal, mask)
        call = partial(attend_lines, causal=causal, key_mask=mask)
        assert torch.autograd.gradcheck(call, (q, k, v), fast_mode=True, atol=1e-7)
    allowed = torch.ones(4, 4).tril().bool() if causal else torch.ones(4, 4).bool()
    expected = composed_attention.composed(q, k, v, None, allowed if mask is None else allowed & mask[:, None, None])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keys", [28, 64, 600])
def test_half_precision_is_as_near_as_half_precision_can_be(keys):
    q, k, v = (normal(3, 2, keys, 8, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out, expected = (
        attend_lines(q, k, v, causal=True),
        composed_attention.composed(*wide, None, torch.ones(keys, keys).tril().bool()),
    )
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=0.03, atol=0.03)
    g = torch.randn_like(out)
    grads = torch.autograd.grad(out, (q, k, v), g)
    for a, b in zip(grads, torch.autograd.grad(expected, wide, g.double())):
        torch.testing.assert_close(a.double(), b, rtol=0.05, atol=0.05)


def test_a_position_that_attends_to_nothing_gets_zeros_and_finite_gradients():
    x = normal(1, 3, 4, 8, dtype=torch.float32).requires_grad_()
    mask = torch.ones(1, 3, 4, dtype=torch.bool)
    mask[0, 1] = False
    layer = LineAttention(8, 2, axis=2)
    out = layer(x, mask)
    assert torch.equal(out[0, 1], layer.out.bias.expand(4, 8))
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (layer.weights(x, mask)[0, 1] == 0).all()


def test_what_is_masked_out_has_no_influence():
    layer = AxialAttention(8, 2, axes=(1, 2))
    randomise(layer)
    mask = torch.rand(2, 3, 5) > 0.3
    x = normal(2, 3, 5, 8, dtype=torch.float32)
    changed = torch.where(mask[..., None], x, normal(2, 3, 5, 8, dtype=torch.float32))
    assert torch.equal(layer(x, mask)[mask], layer(changed, mask)[mask])


def layers() -> dict[str, nn.Module]:
    return {
        "full": FullAttention(8, 2, key_dim=4, value_dim=6),
        "row": AxialAttention(8, 2, axes=2, key_dim=6, value_dim=4),
        "sequence": AxialAttention(8, 2, axes=(2, 1), causal=(1,)),
        "sum": AxialAttention(8, 2, axes=(1, 2), combine="sum"),
    }


@pytest.mark.parametrize("name", layers())
def test_layers_are_their_equation_between_two_linear_layers(name):
    """Weights times values, then the output projection: the definition, from `weights` and the layer's projections."""
    layer = layers()[name]
    randomise(layer)
    layer.double()
    x = normal(2, 3, 5, 8)

    def by_hand(part, x, weights):
        v = part.qkv(x)[..., -part.widths[2] :].unflatten(-1, (2, -1))
        if isinstance(part, FullAttention):
            return part.out(torch.einsum("bijnpq,bpqnk->bijnk", weights, v).flatten(-2))
        equation = "bijnp,bpjnk->bijnk" if part.axis == 1 else "bijnp,bipnk->bijnk"
        return part.out(torch.einsum(equation, weights, v).flatten(-2))

    if name == "full":
        expected = by_hand(layer, x, layer.weights(x))
    elif name == "sum":
        expected = sum(by_hand(part, x, weights) for part, weights in zip(layer.layers.values(), layer.weights(x)))
    else:
        expected = x
        for part, weights in zip(layer.layers.values(), layer.weights(x)):
            expected = by_hand(part, expected, weights)
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_attention_weights_are_distributions_over_the_attended_positions():
    x = normal(2, 3, 5, 8, dtype=torch.float32)
    weights = LineAttention(8, 2, axis=2, causal=True).weights(x)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, 2))
    assert (weights.movedim(-2, 1).triu(1) == 0).all()
    assert FullAttention(8, 2).weights(x).shape == (2, 3, 5, 2, 3, 5)


def test_cross_attention_of_a_tensor_with_itself_is_full_attention():
    cross, full = CrossAttention(8, 2, key_dim=4, value_dim=6), FullAttention(8, 2, key_dim=4, value_dim=6)
    for part in (cross, full):
        randomise(part)
    with torch.no_grad():
        full.qkv.weight.copy_(torch.cat([cross.q.weight, cross.kv.weight]))
        full.qkv.bias.copy_(torch.cat([cross.q.bias, cross.kv.bias]))
    full.out.load_state_dict(cross.out.state_dict())
    x = normal(2, 3, 5, 8, dtype=torch.float32)
    torch.testing.assert_close(cross(x, x), full(x))
    torch.testing.assert_close(cross.weights(x, x), full.weights(x))
    assert CrossAttention(8, 2, context_dim=3)(x, normal(2, 7, 3, dtype=torch.float32)).shape == x.shape


@pytest.mark.parametrize(("build", "exponent"), [(AxialAttention, 1.5), (FullAttention, 2.0)])
def test_score_and_value_products_grow_as_they_should_with_the_number_of_positions(build, exponent):
    layer, sides, counts = build(8, 2), (4, 8, 16, 32), []
    for side in sides:
        with torch.no_grad(), forced(composed_attention), FlopCounterMode(display=False) as counter:
            layer(torch.randn(1, side, side, 8))
        counts.append(sum(counter.flop_counts["Global"][op] for op in (torch.ops.aten.bmm, torch.ops.aten.baddbmm)))
    slope = (log(counts[-1]) - log(counts[0])) / (2 * log(sides[-1] / sides[0]))
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


def test_channels_first_is_the_same_layer():
    layer = AxialAttention(8, 2)
    x = normal(2, 8, 3, 5, dtype=torch.float32)
    assert torch.equal(ChannelsFirst(layer)(x), layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AxialAttention(8, 2, axes=()), "at least one"),
        (lambda: AxialAttention(8, 2, axes=(0, 1)), "axes must be 1..d"),
        (lambda: AxialAttention(8, 2, axes=(1,), causal=(2,)), "causal"),
        (lambda: AxialAttention(8, 2, combine="mean"), "combine"),
        (lambda: AxialAttention(8, 2, value_dim=4, project=False), "without projections"),
        (lambda: AxialAttention(8, 2, axes=3)(torch.zeros(1, 2, 2, 8)), "axis 3"),
        (lambda: FullAttention(8, 2)(torch.zeros(1, 2, 2, 8), torch.ones(1, 2, dtype=torch.bool)), "key_mask"),
        (lambda: full_attention(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 3), torch.zeros(1, 2, 1, 3)), "fit q"),
        (lambda: axial_attention(*[torch.zeros(1, 2, 1, n) for n in (4, 3, 3)], axis=1), "share"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(build, message):
    with pytest.raises(ValueError, match=message):
        build()
