"""Derivatives of layers: of second order, in forward mode, and by torch.func; each is right, at lengths of any backend."""

import pytest
import torch

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
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
    """A sum over what a layer returns, as a function of its inputs and parameters, all in a list."""

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

    def __call__(self, *values):
        inputs, parameters = values[: len(self.inputs)], values[len(self.inputs) :]
        out = torch.func.functional_call(self.layer, dict(zip(self.names, parameters, strict=True)), inputs)
        return out.sin().square().sum()

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
