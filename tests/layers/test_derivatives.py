"""Derivatives of layers are right, whatever computes a layer: of second order, in forward mode, by torch.func."""

from functools import partial
from itertools import product

import pytest
import torch
from torch.autograd import forward_ad

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.ops import elementwise, engine_attention, line_groups
from tests.layers.test_in_torch import LAYERS

Options = axial.AttentionOptions
LAYERS = LAYERS | {
    "causal lines": lambda: axial.LineAttention(8, 2, 1, True),
    "lines with narrow keys": lambda: axial.LineAttention(8, 2, 2, key_dim=4),
    "wide windows": lambda: axial.LineAttention(8, 2, 1, options=Options(window=67)),
    "causal wide windows": lambda: axial.LineAttention(8, 2, 2, True, options=Options(window=131)),
    "global equation 4": lambda: axial.PositionSensitiveAxialAttention(8, 2, 1, size=130),
}
LENGTHS = (5, 64, 65, 130)


class Function:
    """A layer as a function of its inputs and parameters, and a sum over what it returns."""

    def __init__(self, name, length, dtype=torch.float64):
        torch.manual_seed(0)
        layer, sizes = LAYERS[name](), (1, length, 3)
        randomise(layer)
        self.layer = layer.eval().to(dtype)
        if name == "TriangleAttention":
            sizes = (1, length, length)
        if getattr(layer, "axis", 1) == 2:
            sizes = (1, 3, length)
        x = torch.randn(*sizes, 8, dtype=torch.float64).to(dtype)
        self.inputs = [x.movedim(-1, 1) if name == "ChannelsFirst" else x]
        if name == "CrossAttention":
            self.inputs.append(torch.randn(1, length, 8, dtype=torch.float64).to(dtype))
        self.names = [name for name, _ in layer.named_parameters()]
        self.values = [*self.inputs, *(parameter.detach() for parameter in layer.parameters())]
        self.directions = [torch.randn(x.shape, dtype=torch.float64).to(dtype) / 4 for x in self.values]

    def output(self, *values):
        inputs, parameters = values[: len(self.inputs)], values[len(self.inputs) :]
        return torch.func.functional_call(self.layer, dict(zip(self.names, parameters, strict=True)), inputs)

    def __call__(self, *values):
        return self.output(*values).sin().square().sum()

    def gradient(self, step=0.0):
        """The first derivatives, after a step along the directions."""
        moved = [(x + step * d).requires_grad_() for x, d in zip(self.values, self.directions, strict=True)]
        return torch.autograd.grad(self(*moved), moved)

    def second(self):
        """The second derivatives along the directions."""
        given = [x.clone().requires_grad_() for x in self.values]
        firsts = torch.autograd.grad(self(*given), given, create_graph=True)
        along = sum((first * d).sum() for first, d in zip(firsts, self.directions, strict=True))
        return torch.autograd.grad(along, given)

    def tangent(self, step=1e-5):
        """The derivative of the output along the directions, by a difference."""
        ends = []
        for factor in (step, -step):
            moved = [x + factor * d for x, d in zip(self.values, self.directions, strict=True)]
            ends.append(self.output(*moved))
        return (ends[0] - ends[1]) / (2 * step)

    def differences(self, step=1e-5):
        """The second derivatives along the directions, by differences of the first."""
        pairs = zip(self.gradient(step), self.gradient(-step), strict=True)
        return [(after - before) / (2 * step) for after, before in pairs]


def assert_close(found, expected, bound):
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=bound * max(1.0, wanted.abs().max().item()))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_are_differences_of_first_ones(name, length):
    wide = Function(name, length)
    expected = wide.differences()
    assert expected[0].abs().max() > 0
    assert_close(wide.second(), expected, 1e-6)
    assert_close(Function(name, length, torch.float32).second(), expected, 1e-3)


def by_dual_numbers(function):
    with forward_ad.dual_level():
        pairs = zip(function.values, function.directions, strict=True)
        return forward_ad.unpack_dual(function.output(*(forward_ad.make_dual(*pair) for pair in pairs))).tangent


def by_dual_numbers_of_what_has_gradients(function):
    with forward_ad.dual_level():
        given = [x.clone().requires_grad_() for x in function.values]
        pairs = zip(given, function.directions, strict=True)
        return forward_ad.unpack_dual(function.output(*(forward_ad.make_dual(*pair) for pair in pairs))).tangent


def by_jvp(function):
    return torch.func.jvp(function.output, tuple(function.values), tuple(function.directions))[1]


FORWARD = [by_dual_numbers, by_dual_numbers_of_what_has_gradients, by_jvp]


@pytest.fixture(params=["engine", "pieces", "as they are"])
def _small_calls_as_large_ones(request, monkeypatch):
    if request.param != "as they are":
        for module in (engine_attention, elementwise):
            monkeypatch.setattr(module, "PAYS_FROM", 0)
    if request.param == "pieces":
        monkeypatch.setitem(line_groups.PIECE, "cpu", 60)


@pytest.mark.usefixtures("_small_calls_as_large_ones")
@pytest.mark.parametrize("length", [5, 65])
@pytest.mark.parametrize("name", LAYERS)
def test_tangents_are_differences_of_outputs(name, length):
    expected = Function(name, length).tangent()
    for dtype, bound in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        for tangent in FORWARD:
            assert_close([tangent(Function(name, length, dtype))], [expected], bound)


def along(function):
    """A function that returns the derivative of another along its directions."""
    return lambda *values: torch.func.jvp(function, values, tuple(function.directions))[1]


@pytest.mark.usefixtures("_small_calls_as_large_ones")
@pytest.mark.parametrize("length", [pytest.param(5, marks=pytest.mark.slow), 65])
@pytest.mark.parametrize("name", LAYERS)
def test_forward_mode_gives_second_derivatives(name, length):
    expected = Function(name, length).differences()
    for dtype, bound in ((torch.float64, 1e-6), (torch.float32, 1e-3)):
        function = Function(name, length, dtype)
        values, directions = tuple(function.values), tuple(function.directions)
        gradient = torch.func.grad(function, tuple(range(len(values))))
        assert_close(torch.func.jvp(gradient, values, directions)[1], expected, bound)
        assert_close(torch.func.vjp(gradient, *values)[1](directions), expected, bound)
        assert_close(torch.func.grad(along(function), tuple(range(len(values))))(*values), expected, bound)
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x.clone().requires_grad_(), d) for x, d in zip(values, directions)]
            gradients = torch.autograd.grad(function(*duals), duals)
            assert_close([forward_ad.unpack_dual(each).tangent for each in gradients], expected, bound)


@pytest.mark.usefixtures("_small_calls_as_large_ones")
@pytest.mark.parametrize("length", [5, 65])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_backward_passes_take_batches_and_tangents(name, length):
    for dtype, bound in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        function = Function(name, length, dtype)
        given = [x.clone().requires_grad_() for x in function.values]
        out = function.output(*given)
        one, other = torch.randn(2, *out.shape, dtype=dtype)
        of_one, of_other = (torch.autograd.grad(out, given, each, retain_graph=True) for each in (one, other))
        of_both = torch.autograd.grad(out, given, torch.stack([one, other]), retain_graph=True, is_grads_batched=True)
        assert_close([x for x, _ in of_both], [x.double() for x in of_one], bound)
        assert_close([x for _, x in of_both], [x.double() for x in of_other], bound)
        with forward_ad.dual_level():
            duals = torch.autograd.grad(out, given, forward_ad.make_dual(one, other))
            tangents = [forward_ad.unpack_dual(dual).tangent for dual in duals]
            assert_close(tangents, [x.double() for x in of_other], bound)


def test_hessians_agree_whichever_way_they_are_computed():
    function = Function("AxialBlock", 3)

    def of_input(x):
        return function(x, *function.values[1:])

    x, functions = function.values[0], torch.autograd.functional
    expected = functions.hessian(of_input, x)
    assert expected.abs().max() > 0
    ways = [outer(inner(of_input)) for outer, inner in product((torch.func.jacrev, torch.func.jacfwd), repeat=2)]
    for strategy in ("forward-mode", "reverse-mode"):
        ways.append(partial(functions.hessian, of_input, vectorize=True, outer_jacobian_strategy=strategy))
    for way in ways:
        torch.testing.assert_close(way(x), expected)


def test_dropout_obeys_the_randomness_of_vmap():
    block = axial.AxialBlock(8, 2, dropout=0.5)
    randomise(block)
    x = torch.randn(1, 2, 5, 5, 8).expand(2, -1, -1, -1, -1)
    for randomness, equal in (("same", True), ("different", False)):
        one, other = torch.func.vmap(block, randomness=randomness)(x)
        assert torch.equal(one, other) == equal
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(block)(x)


def test_linearised_blocks_have_the_tangents_of_the_block():
    function = Function("AxialBlock", 5)
    linear = torch.func.linearize(function.output, *function.values)[1]
    torch.testing.assert_close(linear(*function.directions), by_jvp(function))


@pytest.mark.parametrize(("length", "causal"), [(3, False), (3, True)])
def test_batch_normalisation_in_training_has_one_hessian_in_whatever_order_it_is_computed(length, causal):
    layer = axial.PositionSensitiveAxialAttention(4, 2, 1, size=length, causal=causal, normalisation="batch")
    randomise(layer)
    layer, parameters = layer.double().train(), dict(layer.named_parameters())
    x = torch.randn(2, length, 2, 4, dtype=torch.float64)

    def cubes(x):
        buffers = {name: buffer.clone() for name, buffer in layer.named_buffers()}
        return torch.func.functional_call(layer, parameters | buffers, (x,)).pow(3).sum()

    forward, reverse = torch.func.jacfwd, torch.func.jacrev
    wanted = reverse(reverse(cubes))(x)
    for inner, outer in ((forward, forward), (forward, reverse), (reverse, forward)):
        assert (outer(inner(cubes))(x) - wanted).abs().max() < 1e-10 * wanted.abs().max()
