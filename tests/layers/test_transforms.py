"""The attention layers under copies, pickle, meta tensors, autocast, torch.func, torch.export, ONNX and compilation."""

import copy
import pickle
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import axial_transformers as axial
from axial_transformers.layers.attention import ChannelsFirst
from axial_transformers.layers.initialisation import randomise

Options = axial.AttentionOptions
EVERY = {"gate": True, "qk_norm": True, "rotary": 100.0, "kv_heads": 1}
LAYERS = {
    "AxialAttention": lambda: axial.AxialAttention(8, 2, causal=(1,)),
    "AxialBlock": lambda: axial.AxialBlock(8, 2, causal=(1,), options=Options(**EVERY)),
    "relative": lambda: axial.LineAttention(8, 2, 1, options=Options(relative=2)),
    "windows": lambda: axial.LineAttention(8, 2, 2, options=Options(window=3, dilation=2, relative=1)),
    "dilation": lambda: axial.LineAttention(8, 2, 1, True, options=Options(dilation=2, kv_heads=1)),
    "TiedAxialAttention": lambda: axial.TiedAxialAttention(8, 2),
    "TriangleAttention": lambda: axial.TriangleAttention(8, 2, "ending", head_dim=4),
    "ChannelsFirst": lambda: ChannelsFirst(axial.AxialAttention(8, 2)),
    "PositionSensitiveAxialAttention": lambda: axial.PositionSensitiveAxialAttention(8, 2, 2, span=3),
}
of_each = pytest.mark.parametrize("name", LAYERS)
of_any_size = pytest.mark.parametrize("name", [*LAYERS][:-1])  # a band is exported for the sizes that were traced


def layer_and_input(name, *sizes):
    torch.manual_seed(0)
    layer, (b, h, w) = LAYERS[name](), sizes or (2, 5, 5)
    w = h if name == "TriangleAttention" else w
    randomise(layer)
    return layer, torch.randn(*((b, 8, h, w) if name == "ChannelsFirst" else (b, h, w, 8)))


def dynamic(name):
    batch, height, width = (torch.export.Dim(axis, max=256) for axis in "BHW")
    first = 2 if name == "ChannelsFirst" else 1
    return ({0: batch, first: height, first + 1: height if name == "TriangleAttention" else width},)


@of_each
def test_copies_autocast_and_the_meta_device_leave_a_layer_what_it_is(name):
    layer, x = layer_and_input(name)
    expected = layer(x)
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(same(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x)
    half.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.2)
    assert layer.to("meta")(x.to("meta")).shape == x.shape


@of_each
def test_examples_map_and_gradients_are_those_of_autograd(name):
    layer, x = layer_and_input(name)
    mapped = torch.func.vmap(lambda one: layer(one[None])[0])(x)
    torch.testing.assert_close(mapped, layer(x))

    def loss(x):
        return layer(x).square().sum()

    (expected,) = torch.autograd.grad(loss(x.requires_grad_()), x)
    torch.testing.assert_close(torch.func.grad(loss)(x.detach()), expected)


@pytest.mark.slow
@of_any_size
def test_exported_layers_are_the_layers_at_sizes_that_were_not_traced(name):
    layer, x = layer_and_input(name)
    defer = name == "TriangleAttention"  # guards on both axes of I x I pairs, which export cannot prove
    exported = torch.export.export(
        layer, (x,), dynamic_shapes=dynamic(name), prefer_deferred_runtime_asserts_over_guards=defer
    ).module()
    for other in (x, *(layer_and_input(name, *size)[1] for size in ((1, 4, 33), (3, 9, 5), (2, 20, 7)))):
        torch.testing.assert_close(exported(other), layer(other), rtol=0, atol=1e-5)


@pytest.mark.slow
@of_any_size
@pytest.mark.skipif(not find_spec("onnxruntime") or not find_spec("onnxscript"), reason="needs the extra onnx")
def test_onnx_models_are_the_layers_at_sizes_that_were_not_traced(name, tmp_path):
    import onnxruntime

    layer, x = layer_and_input(name)
    torch.onnx.export(layer, (x,), dynamo=True, dynamic_shapes=dynamic(name), verbose=False).save(
        tmp_path / "layer.onnx"
    )
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx")
    for sizes in ((1, 4, 33), (3, 9, 5), (2, 20, 7)):
        other = layer_and_input(name, *sizes)[1]
        (found,) = session.run(None, {session.get_inputs()[0].name: other.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), layer(other), rtol=0, atol=1e-5)


@pytest.mark.slow
@of_each
def test_compiled_layers_are_one_graph_without_breaks(name):
    layer, x = layer_and_input(name)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.slow
def test_a_layer_between_convolutions_compiles_for_a_second_size():
    """Inductor of torch 2.13 fails there for a linear layer, too: it cannot compare strides of dynamic sizes."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3), ChannelsFirst(axial.AxialAttention(16, 2, 1)), nn.Conv2d(16, 4, 1)
    network = nn.Sequential(*layers)
    compiled = torch.compile(network)
    for sizes in ((2, 3, 8, 8), (2, 3, 10, 12)):
        x = torch.randn(sizes, requires_grad=True)
        found, expected = compiled(x), network(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), x)[0] for out in (found, expected)))


def test_layers_behind_strided_convolutions_are_exported_with_deferred_checks():
    """Without them torch 2.13 cannot prove that sizes after a stride divide each other, nor for its own products."""
    attention = ChannelsFirst(axial.LineAttention(16, 2, 1, options=Options(relative=2)))
    network = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), attention)
    height, width = (torch.export.Dim(axis, min=4, max=256) for axis in "HW")
    exported = torch.export.export(
        network,
        (torch.randn(2, 3, 16, 20),),
        dynamic_shapes=({2: height, 3: width},),
        prefer_deferred_runtime_asserts_over_guards=True,
    ).module()
    for sizes in ((2, 3, 16, 20), (2, 3, 9, 133), (2, 3, 40, 7)):
        x = torch.randn(sizes)
        torch.testing.assert_close(exported(x), network(x), rtol=0, atol=1e-5)
