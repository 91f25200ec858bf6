"""Tensors of a model on a GPU stay there: run without values on fake CUDA tensors, which refuse those of a CPU."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from axial_transformers.baselines import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)
from axial_transformers.decoding import Draw, GumbelChoice
from axial_transformers.decoding.eager_backend import eager
from axial_transformers.likelihood.bits import bits_map, random_slice_loss
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.ops import axial_attention, reference, torch_attention
from small_models import VARIANTS, random_given, random_values

SIZES: dict[str, Any] = {"shape": (2, 3), "num_values": 5, "dim": 8, "heads": 2, "inner_layers": 1}
BASELINES = {
    "image transformer": (ImageTransformer, ImageTransformerConfig(block=4, memory=3, **SIZES)),
    "sparse transformer": (SparseTransformer, SparseTransformerConfig(**SIZES)),
    "block transformer": (BlockTransformer, BlockTransformerConfig(blocks=((2, 1),), **SIZES)),
}
KINDS = """2d, 3d, lstm, index plane, encoder of one channel, rows, columns, axis, frames, known channels, classes,
    classes without encoder"""
MODELS = {name.strip(): (AxialTransformer, VARIANTS[name.strip()]) for name in KINDS.split(",")} | BASELINES
every_model = pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS)


class WithoutDeviceGuards(TorchFunctionMode):
    """Indexing and inversion by functions: `x[i]` and `~x` ask for a device guard, which torch without CUDA lacks."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            return indexed(*args)
        if func is Tensor.__setitem__:
            place = indexed(*args[:2])
            assert place.device == args[2].device, "an assignment copies between devices"
            return args[2].expand_as(place)
        if func is Tensor.__invert__:
            return torch.logical_not(*args)
        return func(*args, **(kwargs or {}))


def indexed(x: Tensor, index: Any) -> Tensor:
    """x[index], whose tensors and lists are of one dimension."""
    index = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [part for part in index if not isinstance(part, Tensor)]:
        at = next(i for i, part in enumerate(index) if part is Ellipsis)
        index = (*index[:at], *[slice(None)] * (x.ndim - len(index) + 1), *index[at + 1 :])
    dim, positions = 0, []
    for part in index:
        if isinstance(part, int):
            x = x.select(dim, part)
            continue
        if part is None:
            x = x.unsqueeze(dim)
        elif isinstance(part, slice):
            x = torch.ops.aten.slice(x, dim, part.start, part.stop, part.step or 1)
        else:
            positions += [None] * (dim - len(positions)) + [torch.as_tensor(part)]
        dim += 1
    return torch.ops.aten.index(x, positions) if positions else x


def on_fake_gpu(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")


@every_model
def test_likelihoods_and_steps_of_decoding_on_a_gpu_need_no_tensor_of_the_cpu(kind, config):
    model = kind(config).eval()
    x, given, weights = random_values(model, 2), random_given(model, 2), model.state_dict()
    sites = [SimpleNamespace(tolist=row.tolist) for row in model.order.unflatten(0, (-1, model.layout.shape[-1]))]
    with FakeTensorMode(), WithoutDeviceGuards(), torch.no_grad():
        model.load_state_dict({name: on_fake_gpu(tensor) for name, tensor in weights.items()}, assign=True)
        x, given = on_fake_gpu(x), {name: on_fake_gpu(tensor) for name, tensor in given.items()}
        if config is VARIANTS["classes"]:
            assert random_slice_loss(model, x, **given).device.type == "cuda"
        assert bits_map(model, x, **given).device.type == "cuda"
        noise = torch.empty(*x.shape, config.num_values, device="cuda")
        parts = eager(model, GumbelChoice(noise=noise, draw=Draw(top_k=3, top_p=0.9)))
        embedded = model.embed_conditioning(2, Conditioning(**given))
        slab = parts.context(model.layout.to_model(x), model.slices.start, embedded).expand(2, *model.layout.shape, -1)
        for outer in parts.outer_decoders:
            slab = slab.select(1, 0)
            assert outer.step(slab, 0, outer.start(2)).device.type == "cuda"
        assert parts.row(slab, sites[0]).device.type == "cuda"


@every_model
def test_a_step_of_training_without_values_gives_every_parameter_its_gradient(kind, config):
    """On the meta device, where gradients can be had without a GPU; it refuses tensors of a CPU likewise."""
    with torch.device("meta"):
        model = kind(replace(config, dropout=0.1))
    x, given = random_values(model, 2).to("meta"), random_given(model, 2)
    random_slice_loss(model, x, **{name: tensor.to("meta") for name, tensor in given.items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.shape == parameter.shape


@pytest.mark.parametrize("bound", [{"MOST_LINES": 7}, {"MOST_NUMBERS": 1000}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_more_lines_than_a_kernel_takes_is_computed_in_parts(bound, masked, causal, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(23, 1, 3, 2, width, generator=generator, requires_grad=True) for width in (1, 1, 3))
    mask = torch.rand(23, 1, 3, generator=generator) > 0.4 if masked else None
    expected = reference.axial_attention(q, k, v, 2, causal, mask)
    calls = []

    def record(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(len(args[0]))
        return sdpa(*args, **kwargs)

    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    for name, value in bound.items():
        monkeypatch.setattr(torch_attention, name, value)
    monkeypatch.setattr(axial_attention, "choose_kernel", lambda *_: "fused")
    monkeypatch.setattr(torch_attention, "choose_kernel", lambda *_: "fused")
    got = axial_attention.axial_attention(q, k, v, 2, causal, mask)
    assert sum(calls) == 23
    assert max(calls) == (7 if "MOST_LINES" in bound else 1)  # 1 x 2 heads x 128 places x 3 numbers are 768
    torch.testing.assert_close(got, expected)
    grad = torch.randn(got.shape, generator=generator)
    for mine, right in zip(torch.autograd.grad(got, (q, k, v), grad), torch.autograd.grad(expected, (q, k, v), grad)):
        torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)
