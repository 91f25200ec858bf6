"""The fast quick GELU and the fast dropout equal their definitions, shifts and shifted copies theirs."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from axial_transformers.ops import elementwise
from axial_transformers.ops.elementwise import add_dropped, dropout, quick_gelu, shift, shifted_copies
from axial_transformers.ops.operators import HAS_ENGINE

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def slow_quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-1.702 * x))


@pytest.mark.parametrize("shape", [(3, 5, 2), (1, 7), (0, 3), ()])
def test_quick_gelu_and_its_gradient_are_the_authors(shape):
    x = (4 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(quick_gelu(x), slow_quick_gelu(x))
    assert torch.autograd.gradcheck(quick_gelu, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quick_gelu_saves_its_input_only(dtype):
    kept = []
    x = torch.randn(6, dtype=dtype, requires_grad=True)
    with saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor):
        out = quick_gelu(x)
    assert kept == [6]
    assert out.dtype == dtype


@pytest.mark.parametrize("p", [0.1, 0.25, 0.999])
def test_dropout_zeroes_its_share_independently_keeps_the_mean_and_stops_gradients(p):
    torch.manual_seed(0)
    x = torch.ones(100_003, requires_grad=True)
    out = dropout(x, p)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, out.detach())
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=0.02)
    kept, spread = (out.detach() != 0).double() - (1 - p), p * (1 - p)
    assert abs(kept.mean().item()) < 5 * (spread / 100_000) ** 0.5
    for distance in (1, 2, 3, 4):  # four numbers share a draw
        assert abs((kept[distance:] * kept[:-distance]).mean().item()) < 5 * spread / 100_000**0.5


def test_equal_seeds_drop_equally_and_nothing_is_dropped_at_zero():
    x = torch.randn(5, 7)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(dropout(x, 0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert torch.equal(dropout(x, 0.0), x)
    assert not dropout(x, 1.0).any()


def test_compiled_dropout_samples_what_the_eager_one_does():
    x = torch.randn(5, 7, requires_grad=True)
    found = []
    for function in (dropout, torch.compile(dropout, backend="aot_eager")):
        torch.manual_seed(3)
        out = function(x, 0.5)
        found.append((out.detach(), *torch.autograd.grad(out.sum(), x)))
    assert all(map(torch.equal, *found))
    assert found[0][0].count_nonzero() not in (0, x.numel())


def test_the_definition_of_kept_numbers_is_splitmix64(monkeypatch):
    """The first outputs for seed 1234567, which Steele et al. and others list, as four int16 each."""
    monkeypatch.setattr(elementwise, "_seed", lambda: 1234567)
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    bits = [number >> 16 * place & 0xFFFF for number in outputs for place in range(4)][:11]
    signed = [each - 2**16 if each >= 2**15 else each for each in bits]
    for dropped in (1000, 2**15, 50000):
        expected = [each >= dropped - 2**15 for each in signed]
        assert elementwise._kept(torch.empty(11), dropped).tolist() == expected


@pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not compiled")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_compiled_kernels_compute_what_torch_does_and_drop_the_same_numbers(dtype, monkeypatch):
    """More than one unit of work, and a last vector that is not full."""
    x, grad = torch.randn(3, 347), torch.randn(3, 347)
    y = 4 * torch.randn(3, 347)
    y[0, :3] = torch.tensor([100.0, -100.0, torch.nan])

    def computed(pays_from):
        monkeypatch.setattr(elementwise, "PAYS_FROM", pays_from)
        torch.manual_seed(0)
        base, given = x.clone().requires_grad_(), y.to(dtype).requires_grad_()
        activated = quick_gelu(given)
        (slope,) = torch.autograd.grad(activated, given, grad.to(dtype))
        out = add_dropped(base, given, 0.3)
        return activated, slope, out, *torch.autograd.grad(out, (base, given), grad)

    for got, expected in zip(computed(0), computed(2**62), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True)
    assert (computed(0)[4] == 0).sum() == (computed(2**62)[4] == 0).sum() > 200


@pytest.mark.parametrize("axis", [1, 3, -2])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 1, 7, 2), (2, 7, 1, 3)])
def test_shift_moves_one_place(shape, axis):
    x = torch.randn(shape)
    expected = x.roll(1, axis)
    expected.select(axis, 0).zero_()
    assert torch.equal(shift(x, axis), expected)


@pytest.mark.parametrize(("shape", "convolve"), [((5,), F.conv1d), ((3, 5), F.conv2d), ((2, 1, 4), F.conv3d)])
def test_a_linear_layer_of_shifted_copies_is_a_convolution(shape, convolve):
    """A kernel [3, .., 3, C, D], flattened, is the matrix of the linear layer."""
    x = torch.randn(2, *shape, 4, dtype=torch.float64)
    kernel = torch.randn(*[3] * len(shape), 4, 6, dtype=torch.float64)
    found = shifted_copies(x) @ kernel.flatten(0, -2)
    expected = convolve(x.movedim(-1, 1), kernel.movedim((-1, -2), (0, 1)), padding=1).movedim(1, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
