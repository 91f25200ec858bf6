"""The attention layers with what else torch has: each row of docs/layers/in_torch.md, for each layer."""

import copy
import pickle
from functools import partial
from importlib.util import find_spec

import pytest
import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import axial_transformers as axial
from axial_transformers.layers.attention import ChannelsFirst
from axial_transformers.layers.initialisation import randomise
from axial_transformers.ops import engine_attention
from tests.launching import fork
from tests.quantised_weights import quantised

Options = axial.AttentionOptions
EVERY = {"gate": True, "qk_norm": True, "rotary": 100.0, "kv_heads": 1}
LAYERS = {
    "AxialAttention": lambda: axial.AxialAttention(8, 2, causal=(1,)),
    "AxialBlock": lambda: axial.AxialBlock(8, 2, causal=(1,), options=Options(**EVERY)),
    "relative": lambda: axial.LineAttention(8, 2, 1, options=Options(relative=2)),
    "windows": lambda: axial.LineAttention(8, 2, 2, options=Options(window=3, dilation=2, relative=1)),
    "dilation": lambda: axial.LineAttention(8, 2, 1, True, options=Options(dilation=2, kv_heads=1)),
    "FullAttention": lambda: axial.FullAttention(8, 2),
    "ChannelsFirst": lambda: ChannelsFirst(axial.AxialAttention(8, 2)),
    "TiedAxialAttention": lambda: axial.TiedAxialAttention(8, 2),
    "TriangleAttention": lambda: axial.TriangleAttention(8, 2, "ending", head_dim=4),
    "PositionSensitiveAxialAttention": lambda: axial.PositionSensitiveAxialAttention(8, 2, 2, span=3),
    "CrossAttention": lambda: axial.CrossAttention(8, 2),
}
EXAMPLE = (2, 5, 5)
OTHERS = ((1, 4, 33), (3, 9, 5), (2, 20, 7))


def layer_and_inputs(name, sizes=EXAMPLE):
    torch.manual_seed(0)
    layer, (b, h, w) = LAYERS[name](), sizes
    w = h if name == "TriangleAttention" else w
    randomise(layer)
    x = torch.randn((b, 8, h, w) if name == "ChannelsFirst" else (b, h, w, 8))
    return layer.eval(), (x, torch.randn(b, 7, 8)) if name == "CrossAttention" else (x,)


def dynamic(name):
    least = 4 if name == "PositionSensitiveAxialAttention" else None  # lines longer than its window of 3
    batch, context = (torch.export.Dim(axis, max=256) for axis in "BS")
    height, width = (torch.export.Dim(axis, min=least, max=256) for axis in "HW")
    first = 2 if name == "ChannelsFirst" else 1
    sizes = {0: batch, first: height, first + 1: height if name == "TriangleAttention" else width}
    return (sizes, {0: batch, 1: context}) if name == "CrossAttention" else (sizes,)


def gradients(layer, inputs):
    layer(*inputs).square().mean().backward()
    return [parameter.grad for parameter in layer.parameters()]


def autocast(layer, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(*inputs)
    y.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    torch.testing.assert_close(y.float(), layer(*inputs), rtol=0.1, atol=0.2)


def types(layer, inputs):
    expected = layer(*inputs)
    for dtype, bound in ((torch.float64, 1e-5), (torch.float16, 0.05), (torch.bfloat16, 0.2)):
        y = copy.deepcopy(layer).to(dtype)(*(x.to(dtype) for x in inputs))
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), expected, rtol=bound, atol=bound)


def copies_and_pickles(layer, inputs):
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(same(*inputs), layer(*inputs))


def meta(layer, inputs):
    assert layer.to("meta")(*(x.to("meta") for x in inputs)).shape == inputs[0].shape


def checkpointing(layer, inputs):
    expected = gradients(copy.deepcopy(layer), inputs)
    checkpoint(layer, *inputs, use_reentrant=False).square().mean().backward()
    torch.testing.assert_close([parameter.grad for parameter in layer.parameters()], expected)


def functions(layer, inputs):
    layer, inputs = layer.double(), tuple(x.double() for x in inputs)
    mapped = torch.func.vmap(lambda *each: layer(*(x[None] for x in each))[0])(*inputs)
    torch.testing.assert_close(mapped, layer(*inputs))

    def loss(x):
        return layer(x, *inputs[1:]).square().sum()

    (expected,) = torch.autograd.grad(loss(inputs[0].requires_grad_()), inputs[0])
    torch.testing.assert_close(torch.func.grad(loss)(inputs[0].detach()), expected)


def quantisation(layer, inputs):
    same = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, torch.qint8)
    assert {type(part) for part in same.modules()} == {type(part) for part in layer.modules()}
    small, plain = quantised(layer)
    torch.testing.assert_close(small(*inputs), plain(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("feature", [autocast, types, copies_and_pickles, meta, checkpointing, functions, quantisation])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_layer_works_with(feature, name):
    feature(*layer_and_inputs(name))


def ranks_agree(name):
    """Gradients of two processes, each with one example, are those of one process with both."""
    torch.distributed.init_process_group("gloo")
    rank, mesh = torch.distributed.get_rank(), init_device_mesh("cpu", (2,))
    layer, inputs = layer_and_inputs(name)
    expected, part = gradients(copy.deepcopy(layer), inputs), tuple(x[rank : rank + 1] for x in inputs)
    torch.testing.assert_close(gradients(DistributedDataParallel(copy.deepcopy(layer)), part), expected)
    shards = gradients(fully_shard(layer, mesh=mesh), part)
    torch.testing.assert_close([each.full_tensor() for each in shards], expected)
    torch.distributed.destroy_process_group()
    return 0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i % 2)) for i, name in enumerate(LAYERS)]
)
def test_processes_with_copies_or_shards_have_the_gradients_of_one(name, tmp_path):
    assert [status for status, _, _ in fork(2, partial(ranks_agree, name), tmp_path)] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_exported_layers_are_the_layers_at_sizes_that_were_not_traced(name):
    layer, inputs = layer_and_inputs(name)
    defer = name == "TriangleAttention"  # guards on both axes of I x I pairs, which export cannot prove
    exported = torch.export.export(
        layer, inputs, dynamic_shapes=dynamic(name), prefer_deferred_runtime_asserts_over_guards=defer
    ).module()
    for sizes in (EXAMPLE, *OTHERS):
        others = layer_and_inputs(name, sizes)[1]
        torch.testing.assert_close(exported(*others), layer(*others), rtol=0, atol=1e-5)


FROZEN = {
    "rotary alone": lambda: axial.LineAttention(8, 2, 1, options=Options(rotary=100.0)),
    "drop_path": lambda: axial.AxialBlock(8, 2, (1,), drop_path=0.5, dropout=0.5),
    "FullAttention": LAYERS["FullAttention"],
}


class Autocast(nn.Module):
    """A layer under autocast to bfloat16."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [
        *((name, "float32", EXAMPLE) for name in FROZEN),
        ("rotary alone", "bfloat16", (2, 32, 4)),
        ("FullAttention", "autocast", EXAMPLE),
        pytest.param("FullAttention", "bfloat16", (2, 32, 4), marks=pytest.mark.slow),
        pytest.param("drop_path", "bfloat16", (2, 32, 4), marks=pytest.mark.slow),
        pytest.param("drop_path", "autocast", EXAMPLE, marks=pytest.mark.slow),
        pytest.param("rotary alone", "autocast", EXAMPLE, marks=pytest.mark.slow),
    ],
)
def test_no_size_or_divisor_is_frozen_in_exported_layers(name, kind, sizes):
    torch.manual_seed(0)
    layer, dtype = FROZEN[name](), torch.bfloat16 if kind == "bfloat16" else torch.float32
    randomise(layer)
    layer.to(dtype).train(name == "drop_path")
    whole = Autocast(layer) if kind == "autocast" else layer
    examples = [torch.randn(*each, 8).to(dtype) for each in (sizes, *OTHERS, (2, 64, 32))]
    exported = torch.export.export(whole, (examples[0],), dynamic_shapes=dynamic(name)).module()
    for x in examples:
        torch.manual_seed(1)
        found = exported(x)
        torch.manual_seed(1)
        expected = whole(x)
        bound = 1e-5 if kind == "float32" else 0.1
        torch.testing.assert_close(found.float(), expected.float(), rtol=bound, atol=bound)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.skipif(not find_spec("onnxruntime") or not find_spec("onnxscript"), reason="needs the extra onnx")
def test_onnx_models_are_the_layers_at_sizes_that_were_not_traced(name, tmp_path):
    import onnxruntime

    layer, inputs = layer_and_inputs(name)
    program = torch.onnx.export(layer, inputs, dynamo=True, dynamic_shapes=dynamic(name), verbose=False)
    program.save(tmp_path / "layer.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx")
    for sizes in (EXAMPLE, *OTHERS):
        others = layer_and_inputs(name, sizes)[1]
        given = {put.name: x.numpy() for put, x in zip(session.get_inputs(), others, strict=True)}
        torch.testing.assert_close(torch.from_numpy(session.run(None, given)[0]), layer(*others), rtol=0, atol=1e-5)
    with pytest.raises(Exception, match=r"not supported|Unsupported"):
        torch.onnx.export(layer, inputs, tmp_path / "former.onnx", dynamo=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore")
def test_traced_layers_are_the_layers_and_scripts_are_refused(name):
    layer, inputs = layer_and_inputs(name)
    traced = torch.jit.trace(layer, inputs)
    others = layer_and_inputs(name, (3, 5, 9) if name == "TiedAxialAttention" else (3, 9, 4))[1]
    for each in (inputs, others):
        torch.testing.assert_close(traced(*each), layer(*each))
    with pytest.raises(RuntimeError):
        torch.jit.script(layer)


@pytest.mark.filterwarnings("ignore")
def test_traced_layers_are_stored_whatever_computed_them(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 2**12)
    block = axial.AxialBlock(8, 2, causal=(1,))
    randomise(block)
    for length in (5, 65):
        x = torch.randn(2, length, 20, 8)
        torch.jit.trace(block, x).save(tmp_path / "block.pt")
        torch.testing.assert_close(torch.jit.load(tmp_path / "block.pt")(x), block(x))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("AxialBlock", "PositionSensitiveAxialAttention") else pytest.mark.slow)
        for name in LAYERS
    ],
)
def test_compiled_layers_are_one_graph_without_breaks(name):
    torch._dynamo.reset()  # else the graphs of the layers before count
    layer, inputs = layer_and_inputs(name)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), layer(*inputs))


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
