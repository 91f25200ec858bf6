"""What wraps a part of a layer takes part in its results: hooks, adapters, weight_norm, parametrizations."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, weight_norm

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.ops import engine_attention

OPTIONS = axial.AttentionOptions(gate=True, qk_norm=True, rotary=100.0, relative=2)
PACKED = axial.AttentionOptions(gate=True, relative=2)
AXES = (1, 2, 3)
LAYERS = {
    "FullAttention": lambda: axial.FullAttention(8, 2),
    "CrossAttention": lambda: axial.CrossAttention(8, 2),
    "TriangleAttention starting": lambda: axial.TriangleAttention(8, 2, "starting", 4),
    "TriangleAttention ending": lambda: axial.TriangleAttention(8, 2, "ending", 4),
    "AxialAttention": lambda: axial.AxialAttention(8, 2, AXES),
    "AxialAttention sum": lambda: axial.AxialAttention(8, 2, AXES, "sum"),
    "AxialBlock": lambda: axial.AxialBlock(8, 2, AXES, options=OPTIONS),
    "ChannelsFirst": lambda: axial.ChannelsFirst(axial.AxialBlock(8, 2, AXES)),
    **{f"LineAttention {n}": lambda n=n: axial.LineAttention(8, 2, n) for n in AXES},
    **{f"LineAttention packed {n}": lambda n=n: axial.LineAttention(8, 2, n, options=PACKED) for n in AXES},
    **{f"LineAttention options {n}": lambda n=n: axial.LineAttention(8, 2, n, options=OPTIONS) for n in AXES},
    **{f"TiedAxialAttention {n}": lambda n=n: axial.TiedAxialAttention(8, 2, n, n % 3 + 1) for n in AXES},
    **{
        f"PositionSensitiveAxialAttention {kind} {n}": lambda n=n, kind=kind: axial.PositionSensitiveAxialAttention(
            8, 2, n, span=3, normalisation=kind, value_dim=8
        )
        for n, kind in zip(AXES, ("none", "scale", "batch"))
    },
}
of_each = pytest.mark.parametrize("name", LAYERS)


def layer_and_inputs(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    randomise(layer)
    x = torch.randn((2, 4, 4, 8) if name.startswith("Triangle") else (2, 3, 4, 5, 8))
    x = x.movedim(-1, 1) if name == "ChannelsFirst" else x
    return layer.eval(), (x, x.flatten(1, 3)[:, :7]) if name == "CrossAttention" else (x,)


class Adapter(nn.Module):
    """Has no weight and no sizes of a linear layer."""

    def __init__(self, base):
        super().__init__()
        self.base, self.more = base, nn.Linear(base.in_features, base.out_features, bias=False)
        self.more.load_state_dict({"weight": base.weight})

    def forward(self, x):
        return self.base(x) + self.more(x)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def by_weight_norm(linear):
    weight_norm(linear)
    linear.weight_g.data *= 2


def by_new_weight_norm(linear):
    parametrizations.weight_norm(linear)
    linear.parametrizations.weight.original0.data *= 2


DOUBLE = {
    "hook": lambda linear: linear.register_forward_hook(
        lambda part, args, y: y + nn.functional.linear(*args, part.weight)
    ),
    "hook before": lambda linear: linear.register_forward_pre_hook(lambda part, args: 2 * args[0]),
    "adapter": Adapter,
    "weight_norm": by_weight_norm,
    "parametrizations.weight_norm": by_new_weight_norm,
    "parametrization": lambda linear: parametrize.register_parametrization(linear, "weight", Doubled()),
}
"""Ways to let linear layers multiply by twice their weights; `hook before` doubles what the bias is added to."""


@of_each
@pytest.mark.parametrize("kind", DOUBLE)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_what_changes_a_linear_layer_changes_the_result(name, kind, monkeypatch):
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 0)
    layer, inputs = layer_and_inputs(name)
    expected = copy.deepcopy(layer)
    for path, linear in [each for each in layer.named_modules() if isinstance(each[1], nn.Linear)]:
        expected.get_submodule(path).weight.data *= 2
        changed = DOUBLE[kind](linear)
        if kind == "adapter":
            layer.set_submodule(path, changed)
    torch.testing.assert_close(layer(*inputs), expected(*inputs), rtol=1e-2, atol=1e-2)


@of_each
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_part_with_weights_is_called(name, device, monkeypatch):
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 0)
    layer, inputs = layer_and_inputs(name)
    parts = {path for path, part in layer.named_modules() if path and [*part.parameters(recurse=False)]}
    called = []
    for path in parts:
        layer.get_submodule(path).register_forward_pre_hook(lambda part, args, path=path: called.append(path))
        layer.get_submodule(path).register_forward_hook(lambda part, args, y, path=path: called.append(path))
    layer.to(device)(*(x.to(device) for x in inputs))
    assert sorted(called) == sorted([*parts, *parts])
