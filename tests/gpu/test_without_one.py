"""Tensors of a model on a GPU stay there: run without values on fake CUDA tensors, which refuse those of a CPU."""

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from axial_transformers import machine
from axial_transformers.cli.options import products_in
from axial_transformers.compression import compress, decompress
from axial_transformers.decoding import (
    NoiseChoice,
    Sampler,
    backend_choice,
    decode,
    decode_naively,
    graph_backend,
    gumbel,
    uniform,
)
from axial_transformers.decoding.backend import eager
from axial_transformers.decoding.sampling import complete, noise_for, sample
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.position_sensitive import _normalised_over
from axial_transformers.likelihood import evaluation
from axial_transformers.likelihood.bits import bits_map, random_slice_loss
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.likelihood.outliers import score
from axial_transformers.machine import arithmetic, multiplies_bfloat16
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.baselines import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)
from axial_transformers.ops import fused_attention
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.training import checkpoints
from tests import attention_reference as reference
from tests.forced_backend import forced
from tests.small_models import CENTRED, VARIANTS, random_given, random_model, random_values, small_config

SIZES: dict[str, Any] = {"shape": (2, 3), "num_values": 5, "dim": 8, "heads": 2, "inner_layers": 1}
BASELINES = {
    "image transformer": (ImageTransformer, ImageTransformerConfig(block=4, memory=3, **SIZES)),
    "sparse transformer": (SparseTransformer, SparseTransformerConfig(**SIZES)),
    "block transformer": (BlockTransformer, BlockTransformerConfig(blocks=((2, 1),), **SIZES)),
}
KINDS = "lstm, rotary, index plane, rows, axis, frames, known channels, classes"
MODELS = {name: (AxialTransformer, VARIANTS[name]) for name in KINDS.split(", ")} | BASELINES
RECORDED = {name: (AxialTransformer, config) for name, config in VARIANTS.items()} | {
    "image transformer": BASELINES["image transformer"],
    "sparse transformer": BASELINES["sparse transformer"],
    "dropout": (AxialTransformer, small_config((4, 3), dropout=0.5)),
}
OF_NUMBERS = {name: (AxialTransformer, VARIANTS[name]) for name in ("ordinal convolution", "centred columns")}
EAGER = partial(backend_choice.choose_backend, compile=False)
every_model = pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS)


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


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
    positions = [SimpleNamespace(tolist=row.tolist) for row in model.order.unflatten(0, (-1, model.layout.shape[-1]))]
    with FakeTensorMode(), WithoutDeviceGuards(), torch.no_grad():
        model.load_state_dict({name: on_fake_gpu(tensor) for name, tensor in weights.items()}, assign=True)
        x, given = on_fake_gpu(x), {name: on_fake_gpu(tensor) for name, tensor in given.items()}
        assert random_slice_loss(model, x, **given).device.type == "cuda"
        if config in (VARIANTS["rows"], VARIANTS["known channels"]):
            assert bits_map(model, x, **given).device.type == "cuda"
        noise = torch.empty(*x.shape, config.num_values, device="cuda")
        parts = eager(model, NoiseChoice(noise=noise, sampler=Sampler(top_k=3, top_p=0.9)))
        embedded = model.embed_conditioning(2, Conditioning(**given))
        slab = parts.context(model.layout.to_model(x), model.slices.start, embedded).expand(2, *model.layout.shape, -1)
        for outer in parts.outer_decoders:
            slab = slab.select(1, 0)
            assert outer.step(slab, 0, outer.start(2)).device.type == "cuda"
            first = torch.zeros(1, dtype=torch.int64, device="cuda")
            assert outer.step(slab, first, outer.start(2)).device.type == "cuda"
        assert parts.row(slab, positions[0], None).device.type == "cuda"


@pytest.mark.parametrize(("kind", "config"), (MODELS | OF_NUMBERS).values(), ids=MODELS | OF_NUMBERS)
def test_a_step_of_training_without_values_gives_every_parameter_its_gradient(kind, config):
    """On the meta device, where gradients can be had without a GPU; it refuses tensors of a CPU likewise."""
    with torch.device("meta"):
        model = kind(replace(config, dropout=0.1))
    x, given = random_values(model, 2).to("meta"), random_given(model, 2)
    random_slice_loss(model, x, **{name: tensor.to("meta") for name, tensor in given.items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.shape == parameter.shape


@pytest.mark.parametrize("bound", [{"MAX_LINES": 7}, {"MAX_NUMBERS": 1000}], ids=str)
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
        monkeypatch.setattr(fused_attention, name, value)
    with forced(fused_attention):
        got = axial_attention(q, k, v, 2, causal, mask)
    assert sum(calls) == 23
    assert max(calls) == (7 if "MAX_LINES" in bound else 1)  # 1 x 2 heads x 128 positions x 3 numbers are 768
    torch.testing.assert_close(got, expected)
    grad = torch.randn(got.shape, generator=generator)
    for mine, right in zip(torch.autograd.grad(got, (q, k, v), grad), torch.autograd.grad(expected, (q, k, v), grad)):
        torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)


GRID = 4, 3, 7, 2  # examples, lines, positions: no multiple of 8, heads
SHARED_MASKS: dict[str, tuple[dict[str, Any], int]] = {
    "key mask": ({"masked": True}, 4 * 3 * 7),
    "causal key mask": ({"masked": True, "causal": True}, 4 * 3 * 7 * 7),
    "one bias": ({"bias": (1, 2, 7, 7)}, 2 * 7 * 7),
    "bias of an example": ({"bias": (4, 2, 7, 7)}, 4 * 2 * 7 * 7),
    "bias of an example and all heads": ({"bias": (4, 1, 7, 7)}, 4 * 7 * 7),
    "bias of a key": ({"bias": (4, 1, 1, 7)}, 4 * 7),
    "bias of a query": ({"bias": (4, 1, 7, 1)}, 4 * 7 * 7),
    "bias of a line": ({"bias": (1, 3, 2, 7, 7)}, 3 * 2 * 7 * 7),
    "bias of a line and all heads": ({"bias": (1, 3, 1, 7, 7)}, 3 * 7 * 7),
    "bias of each line": ({"bias": (4, 3, 2, 7, 7)}, 4 * 3 * 2 * 7 * 7),
}


@pytest.mark.parametrize(("options", "numbers"), SHARED_MASKS.values(), ids=SHARED_MASKS)
def test_masks_keep_sizes_of_one(options, numbers, monkeypatch):
    """Where the number of keys is no multiple of 8, memory-efficient attention copies the mask that it is given."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*GRID, width, generator=generator, requires_grad=True) for width in (4, 4, 3))
    mask = torch.rand(GRID[:3], generator=generator) > 0.4 if "masked" in options else None
    bias = torch.randn(options["bias"], generator=generator, requires_grad=True) if "bias" in options else None
    arguments = q, k, v, 2, options.get("causal", False), mask
    inputs = [x for x in (q, k, v, bias) if x is not None]
    of_lines = bias if bias is None or bias.ndim == 5 else bias[:, None]
    expected = reference.axial_attention(*arguments, None if of_lines is None else of_lines.expand(4, 3, 2, 7, 7))
    grad = torch.randn(expected.shape, generator=generator)
    gradients = torch.autograd.grad(expected, inputs, grad)
    given = []

    def record(*args: Any, attn_mask: Tensor, **kwargs: Any) -> Tensor:
        given.append(attn_mask.numel())
        return sdpa(*args, attn_mask=attn_mask, **kwargs)

    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    monkeypatch.setattr(fused_attention, "copies_count", lambda device: True)
    for max_lines in (fused_attention.MAX_LINES, 5, 2):
        monkeypatch.setattr(fused_attention, "MAX_LINES", max_lines)
        given.clear()
        with forced(fused_attention):
            found = axial_attention(*arguments, bias)
        assert given == [numbers] if max_lines > 5 else len(given) > 1
        torch.testing.assert_close(found, expected)
        for mine, right in zip(torch.autograd.grad(found, inputs, grad), gradients):
            torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 2, 7, 7), (4, 2, 7, 7), (1, 3, 2, 7, 7)], ids=str)
def test_attention_with_a_bias_is_one_graph_where_it_is_compiled(shape, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*GRID, 4, generator=generator) for _ in range(3))
    bias = torch.randn(shape, generator=generator)
    monkeypatch.setattr(fused_attention, "copies_count", lambda device: True)
    compiled = torch.compile(axial_attention, backend="aot_eager", fullgraph=True, dynamic=False)
    with forced(fused_attention):
        expected = axial_attention(q, k, v, 2, attn_bias=bias)
        torch.testing.assert_close(compiled(q, k, v, 2, attn_bias=bias), expected)


def choice_of(model: AxialTransformer, batch: int, seed: int = 0, **options: Any) -> NoiseChoice:
    return NoiseChoice(noise=noise_for(model.config, batch, seed), sampler=Sampler(**options))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Tensor]]:
    """What is recorded in place of CUDA graphs: computed again at every replay, from and into the same tensors."""
    recorded = []

    def record(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], Tensor]]:
        recorded.append(work)
        output = work()
        return output, lambda: output.copy_(work())

    monkeypatch.setattr(graph_backend, "record", record)
    return recorded


def same_by_graphs(model: AxialTransformer, x: Tensor, choose: NoiseChoice, **given: Tensor) -> bool:
    """Graphs choose what eager decoding chooses."""
    found = decode(model, choose, x, Conditioning(**given), graph_backend.graphs)
    return torch.equal(found, decode(model, choose, x, Conditioning(**given), eager))


@pytest.mark.parametrize(("kind", "config"), RECORDED.values(), ids=RECORDED)
def test_one_graph_of_a_row_and_one_of_each_outer_decoder_serve_all_steps_channels_and_calls(kind, config, recorded):
    model = kind(config)
    randomise(model, torch.Generator().manual_seed(0))
    options = {"temperature": 0.7} if config.values == "ordinal" else {"top_k": 3, "top_p": 0.9}
    for seed in (0, 1):
        x, mask = random_values(model, 2, seed), torch.zeros(*config.shape, config.channels, dtype=torch.bool)
        mask.view(-1)[:2] = True
        choose = replace(choice_of(model, 2, seed, **options), known=x.masked_fill(~mask, -1))
        assert same_by_graphs(model, x, choose, **random_given(model, 2, seed))
    assert len(recorded) == 1 + len(model.outer_decoders)


@pytest.mark.parametrize("name", ["2d deep", "rotary", "rotary 3d", "4d", "convolution 3d", "frames"])
def test_outer_steps_by_a_graph_are_those_of_the_model(name, recorded):
    model, generator = random_model(VARIANTS[name], torch.float32), torch.Generator().manual_seed(0)
    steps = graph_backend.graphs(model, choice_of(model, 2), 2).outer_decoders
    with torch.no_grad():
        for mine, own in zip(steps, model.outer_decoders):
            states = mine.start(2), own.start(2)
            for i in range(own.length):
                u = torch.randn(2, *own.slab, model.config.dim, generator=generator)
                torch.testing.assert_close(mine.step(u, i, states[0]), own.step(u, i, states[1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["2d", "3d channels", "rotary 3d"])
def test_what_was_in_the_memory_of_a_cache_changes_nothing(name, recorded, monkeypatch):
    model = random_model(VARIANTS[name], torch.float32)
    x, choose = random_values(model, 2), choice_of(model, 2)
    monkeypatch.setattr(Tensor, "new_empty", lambda like, *size, **options: like.new_full(size, torch.nan, **options))
    assert same_by_graphs(model, x, choose)
    for steps in graph_backend._kept[model].steps:
        for cache in steps.caches:
            cache.fill_(torch.nan)
    assert same_by_graphs(model, x, choose)


def test_graphs_are_recorded_anew_for_other_shapes_options_and_weights_elsewhere(recorded):
    model = random_model(VARIANTS["2d"], torch.float32)

    def check(batch: int, **options: Any) -> int:
        before = len(recorded)
        assert same_by_graphs(model, random_values(model, batch), choice_of(model, batch, **options))
        return len(recorded) - before

    assert [check(2), check(3), check(3), check(3, temperature=0.5)] == [2, 2, 0, 2]
    uniform_noise = NoiseChoice(noise=uniform((3, 3, 5, 1)).float(), sampler=Sampler(temperature=0.5))
    assert same_by_graphs(model, random_values(model, 3), uniform_noise)
    assert check(2) == 2
    other = random_model(VARIANTS["2d"], torch.float32, seed=1).state_dict()
    model.load_state_dict(other)
    assert check(2) == 0, "new values in place need no new graph"
    model.load_state_dict({name: tensor.clone() for name, tensor in other.items()}, assign=True)
    assert check(2) == 2
    with arithmetic(CUDA, tf32=True):
        assert check(2) == 2, "the kernels are others"
    with torch.inference_mode():
        assert check(2) == 2, "its tensors cannot be written to outside"
    assert check(2) == 2


def test_a_decoding_within_another_has_graphs_of_its_own(recorded):
    """As if in two threads: it would overwrite the caches of the other."""
    model = random_model(VARIANTS["3d"], torch.float32)
    x, choices = random_values(model, 16), [choice_of(model, 16, seed) for seed in (0, 1)]
    expected = [decode(model, choose, x) for choose in choices]

    def progress(rows: Iterable[int]) -> Iterator[int]:
        for row in rows:
            assert torch.equal(decode(model, choices[1], x, backend=graph_backend.graphs), expected[1])
            yield row

    decode(model, choices[0], x, backend=graph_backend.graphs)  # the model keeps its graphs
    assert torch.equal(decode(model, choices[0], x, backend=graph_backend.graphs, progress=progress), expected[0])


@pytest.mark.parametrize(
    ("fields", "most"),
    [({}, 14), ({"known": True}, 15), ({"convolution": 1}, 19), (CENTRED, 41)],
    ids=["2d", "known", "convolution", "centred"],
)
def test_a_row_and_an_outer_step_take_few_operations_outside_of_their_graphs(fields, most, monkeypatch):
    """Eager, they take a hundred and more: raise a number for a reason only."""
    monkeypatch.setattr(graph_backend, "record", lambda work, device: (work(), lambda: None))
    fields, counts = dict(fields), []
    has_known = fields.pop("known", False)
    for rows in (4, 5):
        model = random_model(small_config((rows, 4), **fields), torch.float32)
        x, choose = random_values(model, 3), choice_of(model, 3)
        choose = replace(choose, known=x if has_known else None)
        for _ in range(2):  # the first time records
            with Launches() as launches:
                decode(model, choose, x, backend=graph_backend.graphs)
        counts.append(launches.count)
    assert counts[1] - counts[0] <= most


class Casts(TorchDispatchMode):
    """Counts the copies in bfloat16, of some tensors or of all."""

    def __init__(self, of: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.count, self.of = 0, of and {tensor.data_ptr() for tensor in of}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        casts = (kwargs or {}).get("dtype") == torch.bfloat16
        self.count += casts and (self.of is None or args[0].data_ptr() in self.of)
        return func(*args, **(kwargs or {}))


def test_a_graph_under_autocast_casts_the_weights_itself(monkeypatch):
    """Copies that autocast keeps are freed when its region ends: a graph that reads them samples from other weights."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name in ("Stream", "current_stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda *device: stream)
    for name in ("device", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **options: nullcontext())
    model = random_model(VARIANTS["2d"], torch.float32)
    inner, context = model.inner_decoder, torch.zeros(2, model.layout.shape[-1], model.config.dim)
    casts = []

    def position() -> Tensor:
        with Casts() as counted:
            found = model.head(inner.step(context[:, 0], 0, inner.start(2)))
        casts.append(counted.count)
        return found

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        graph_backend.record(position, CUDA)
        position()
    assert casts[0] > 2
    assert casts == [casts[0]] * 3, "while warming up, while recording, and by steps that follow"


@pytest.mark.parametrize("name", ["2d", "3d channels", "ordinal convolution", "rotary"])
def test_under_autocast_graphs_read_weights_of_its_precision_which_follow_the_models(name, monkeypatch):
    """A cast inside a graph would move four times the bytes that the product needs, at every step."""
    model, casts = random_model(VARIANTS[name], torch.float32), []
    decoders = model.inner_decoder, model.outer_decoders
    weights = [*decoders[0].parameters(), *decoders[1].parameters()]

    def record(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], Tensor]]:
        def repeat() -> Tensor:
            with Casts(weights) as counted:
                found = output.copy_(work())
            casts.append(counted.count)
            return found

        output = work()
        return output, repeat

    monkeypatch.setattr(graph_backend, "record", record)
    x = random_values(model, 2)
    for seed in (0, 1):
        model.load_state_dict(random_model(VARIANTS[name], torch.float32, seed).state_dict())
        with torch.autocast("cpu", torch.bfloat16):  # it keeps its own copies to its end, even if weights change
            assert same_by_graphs(model, x, choice_of(model, 2, seed))
    with torch.autocast("cpu", torch.bfloat16), Casts(weights) as counted:
        decode(model, choice_of(model, 2), x)
    assert counted.count > 0, "eager decoding casts them"
    assert set(casts) == {0}
    before = len(casts)
    assert same_by_graphs(model, x, choice_of(model, 2)), "other graphs, without autocast"
    assert len(casts) == 1.5 * before


def test_copies_are_made_of_the_weights_that_graphs_multiply_by_and_no_others(recorded):
    model = random_model(VARIANTS["2d"], torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        decode(model, choice_of(model, 2), random_values(model, 2), backend=graph_backend.graphs)
    network = graph_backend._kept[model].network
    halves = {name for name, weight in network.named_parameters() if weight.dtype == torch.bfloat16}
    assert halves == {
        name for name in model.state_dict() if re.search(r"(inner|outer)_decoder.*(qkv|out|expand|contract)\.", name)
    }
    own = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert own.issuperset(each.data_ptr() for name, each in network.state_dict().items() if name not in halves)


def test_graphs_are_gone_with_their_model(monkeypatch):
    monkeypatch.setattr(graph_backend, "record", lambda work, device: (work(), lambda: None))  # holds kernels only
    model = random_model(VARIANTS["2d"], torch.float32)
    decode(model, choice_of(model, 2), random_values(model, 2), backend=graph_backend.graphs)
    alive, kept = weakref.ref(model), len(graph_backend._kept)
    del model
    assert alive() is None
    assert len(graph_backend._kept) == kept - 1


@pytest.fixture
def tried() -> Iterator[Callable[[torch.device], str | None]]:
    """The self-test, which forgets what it found before and within the test."""
    graph_backend.failed_self_test.cache_clear()
    yield graph_backend.failed_self_test
    graph_backend.failed_self_test.cache_clear()


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_the_self_test_passes_once_and_leaves_nothing_behind(half, tried, recorded, monkeypatch):
    monkeypatch.setattr(graph_backend, "multiplies_bfloat16", lambda device: half)
    before = torch.get_rng_state()
    assert tried(CPU) is None
    assert len(recorded) == 3 * (1 + half), "a row and two outer decoders, in each precision"
    assert torch.equal(torch.get_rng_state(), before)
    assert graph_backend.TRIED not in [model.config for model in graph_backend._kept]
    recorded.clear()
    assert tried(CPU) is None
    assert not recorded


def fails(work: Callable[[], Tensor], device: torch.device) -> None:
    raise RuntimeError("operation not permitted\nwhen stream is capturing")


def stands_still(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], None]]:
    return work(), lambda: None


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models seem to be on a GPU, where graphs are only named: by the device of their backend."""
    device = torch.device("cuda:0")
    monkeypatch.setattr(AxialTransformer, "device", property(lambda model: device))
    named = lambda model, choose, batch: replace(eager(model, choose), device="cuda")  # noqa: E731
    monkeypatch.setattr(backend_choice, "graphs", named)


@pytest.mark.parametrize(
    ("record", "reason"),
    [(fails, r"CUDA graphs fail on cpu: .*not permitted"), (stands_still, "CUDA graphs choose other values on cpu")],
)
def test_where_the_self_test_fails_decoding_is_eager_and_the_log_says_why(
    record, reason, tried, on_cuda, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr(AxialTransformer, "device", property(lambda model: CPU))
        patch.setattr(graph_backend, "record", record)
        found = tried(CPU)
    monkeypatch.setattr(backend_choice, "failed_self_test", lambda device: found)
    model = random_model(small_config((4, 3)), torch.float32)
    choose = choice_of(model, 2)
    with caplog.at_level("DEBUG", "axial_transformers.decoding.backend_choice"):
        assert backend_choice.choose_backend(model, choose, 2).device is None
    assert re.fullmatch(f"decoding is eager: {reason}.*", caplog.messages[0])
    with pytest.raises(ValueError, match=f"compile=True, but {reason}") as error:
        backend_choice.choose_backend(model, choose, 2, compile=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("shape", "batch", "compile", "expected"),
    [
        ((4, 4), 2, None, True),
        ((1, 4), 2, None, True),
        ((4, 4), 2, False, False),
        ((4, 4), 0, None, False),
    ],
    ids=["default", "one row", "refused", "no examples"],
)
def test_graphs_are_the_default_on_cuda(shape, batch, compile, expected, on_cuda, monkeypatch):
    monkeypatch.setattr(backend_choice, "failed_self_test", lambda device: None)
    model = random_model(small_config(shape), torch.float32)
    found = backend_choice.choose_backend(model, choice_of(model, batch), batch, compile)
    assert (found.device is not None) == expected


@pytest.mark.parametrize(
    ("kind", "config", "obstacle"),
    [
        (*BASELINES["sparse transformer"], None),
        (*BASELINES["block transformer"], "BlockAttention"),
        (AxialTransformer, small_config((2, 1025), inner_layers=4), "1025 positions x 4 layers.*at most 4096"),
        (AxialTransformer, VARIANTS["lstm"], None),
    ],
    ids=["sparse", "block", "long", "lstm"],
)
def test_graphs_are_recorded_of_what_can_be_only(kind, config, obstacle):
    found = backend_choice._obstacle_of_graphs(kind(config))
    assert found is None if obstacle is None else re.search(obstacle, found)


@pytest.mark.parametrize("training", [False, True])
def test_statistics_over_the_pairs_that_attend_are_those_of_the_pairs_picked_out(training):
    generator = torch.Generator().manual_seed(0)
    norms = [torch.nn.BatchNorm1d(3).double().train(training) for _ in range(2)]
    for norm in norms:
        weights = {"weight": torch.tensor([0.5, -2, 3]), "bias": torch.tensor([1, 0.1, -4])}
        norm.load_state_dict(weights | {"running_var": torch.tensor([3, 0.2, 1])}, strict=False)
    terms, grad = torch.randn(2, 4, 3, 5, 5, dtype=torch.float64, generator=generator)
    allowed, found = torch.ones(5, 5).tril().triu(-2).bool(), []
    for norm, normalised in zip(norms, (_normalised_over, picked_out)):
        x = terms.clone().requires_grad_()
        out = normalised(norm, x, allowed) * allowed
        gradients = torch.autograd.grad(out, [x, *norm.parameters()], grad)
        found.append([out, *gradients, *(buffer.double() for buffer in norm.buffers())])
    for mine, right in zip(*found):
        torch.testing.assert_close(mine, right, rtol=1e-10, atol=1e-12)


def picked_out(norm: torch.nn.BatchNorm1d, x: Tensor, allowed: Tensor) -> Tensor:
    return torch.zeros_like(x).masked_scatter(allowed, norm(x[..., allowed]))


def test_statistics_over_the_pairs_that_attend_never_wait_for_a_gpu():
    """A fake tensor has no values to wait for: a shape or a branch that depends on them raises."""
    norm = torch.nn.BatchNorm1d(3)
    weights = norm.state_dict()
    with FakeTensorMode(), WithoutDeviceGuards(), torch.no_grad():
        norm.load_state_dict({name: on_fake_gpu(tensor) for name, tensor in weights.items()}, assign=True)
        terms, allowed = torch.empty(4, 3, 5, 5, device="cuda"), torch.empty(5, 5, dtype=torch.bool, device="cuda")
        assert _normalised_over(norm, terms, allowed).device.type == "cuda"


def precision_read() -> tuple[object, ...]:
    """The precision of CUDA's products by its newer name, and by both former ones where these can be read."""

    def read(former: Callable[[], object]) -> object:
        try:
            return former()
        except RuntimeError:
            return "mixed"

    matmul = torch.backends.cuda.matmul
    return matmul.fp32_precision, read(lambda: matmul.allow_tf32), read(torch.get_float32_matmul_precision)


@pytest.mark.parametrize("before", ["highest", "high", "medium", "newer name"])
def test_tf32_can_be_read_by_its_former_and_its_newer_name(before):
    """Inductor of torch 2.9 and 2.10 reads the former names while it compiles a step; 2.13 where it autotunes."""
    try:
        if before == "newer name":
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        else:
            torch.set_float32_matmul_precision(before)
        found = precision_read(), torch.backends.mkldnn.matmul.fp32_precision
        with arithmetic(CUDA, tf32=True):
            assert precision_read() == ("tf32", True, "high")
            with arithmetic(CUDA, tf32=False):
                assert precision_read() == ("ieee", False, "highest")
            assert precision_read() == ("tf32", True, "high")
        assert (precision_read(), torch.backends.mkldnn.matmul.fp32_precision) == found
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.fp32_precision = "none"


@pytest.mark.parametrize(
    ("precision", "device", "capability", "half"),
    [
        ("auto", "cuda", (8, 0), True),
        ("auto", "cuda", (7, 5), False),
        ("auto", "cpu", None, False),
        ("float32", "cuda", (9, 0), False),
        ("bfloat16", "cuda", (7, 5), True),
        ("bfloat16", "cpu", None, True),
    ],
)
def test_products_are_in_bfloat16_where_a_gpu_has_them_or_they_are_asked_for(
    precision, device, capability, half, monkeypatch
):
    monkeypatch.setattr(machine, "multiplies_bfloat16", multiplies_bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)  # by emulation, where not natively
    with products_in(precision, torch.device(device)):
        assert torch.is_autocast_enabled(device) == half
        assert torch.get_autocast_dtype(device) == torch.bfloat16 or not half


def test_likelihoods_and_scores_obey_autocast(monkeypatch):
    model, found = random_model(VARIANTS["2d"], torch.float32), []
    x = random_values(model, 3)
    monkeypatch.setattr(
        evaluation,
        "bits_per_dim",
        lambda *given, **options: found.append(torch.is_autocast_enabled("cpu")) or torch.ones(3),
    )
    for precision in ("bfloat16", "float32"):
        with products_in(precision, torch.device("cpu")):
            evaluate(model, x)
            score(model, x.numpy().astype("uint8"))
    assert found == [True, True, False, False]


class Moved(Exception):
    """A tensor moves from the CPU to the GPU."""


CALLS: dict[str, Callable[..., Any]] = {
    "forward": lambda model, x, label: model(x, label),
    "slice_and_outputs": lambda model, x, label: model.slice_and_outputs(
        x, torch.zeros(len(x), dtype=torch.int64), label
    )[1],
    "random_slice_loss": lambda model, x, label: random_slice_loss(model, x, label),
    "bits_map": lambda model, x, label: bits_map(model, x, label),
    "evaluate": lambda model, x, label: evaluate(model, x, label, batch_size=2),
    "sample": lambda model, x, label: sample(model, known=x, label=label),
    "complete": lambda model, x, label: complete(model, x, channels=1, label=label),
    "decode_naively": lambda model, x, label: decode_naively(model, choice_of(model, 2), x, Conditioning(label)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_values_and_labels_are_checked_before_they_move_to_a_gpu(call, monkeypatch):
    """There, one out of range ends the process instead of being an error."""
    model = AxialTransformer(small_config((2, 3), 2, num_classes=3))
    weights, device = model.state_dict(), torch.device("cuda:0")
    with FakeTensorMode():
        model.load_state_dict({name: on_fake_gpu(tensor) for name, tensor in weights.items()}, assign=True)
    to = Tensor.to
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 0))
    x, label = random_values(model, 2), torch.tensor([0, 3])

    def moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if device in args or device in kwargs.values():
            raise Moved
        return to(tensor, *args, **kwargs)

    monkeypatch.setattr(Tensor, "to", moved)
    wrong = x.clone()
    wrong[1, 1, 2, 0] = 999
    with pytest.raises(ValueError, match=r"x must be in 0\.\.4; found 0\.\.999"):
        call(model, wrong, label)
    with pytest.raises(Moved):
        call(model, x, label)
    monkeypatch.setattr(AxialTransformer, "check", lambda self, x: x)  # so that the labels are next
    with pytest.raises(ValueError, match=r"label must be \[2\] classes in 0\.\.2.*found 0\.\.999"):
        call(model, x, torch.tensor([0, 999]))


class Devices(TorchDispatchMode):
    """The devices that make numbers, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, set[str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self.of.setdefault(func.overloadpacket.__name__, set()).add(found.device.type)
        return found


def test_logarithms_of_noise_are_taken_on_the_device():
    with Devices() as devices:
        gumbel((2, 3), device="meta")
    assert devices.of["log_"] == {"meta"}


class Launches(TorchDispatchMode):
    """Counts the operations that compute: on a GPU each is at least one kernel to launch."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(out.alias_info is not None and not out.alias_info.is_write for out in func._schema.returns)
        self.count += not views and func.overloadpacket.__name__ not in ("_unsafe_view", "empty_like")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("fields", "most"),
    [({"inner_layers": 1}, 7 + 18), ({"inner_layers": 3}, 7 + 3 * 18), ({"inner": "lstm"}, 22)],
    ids=["1 layer", "3 layers", "lstm"],
)
def test_a_decoded_position_takes_no_more_operations_than_it_did(fields, most):
    """Eager decoding on a GPU takes as long as it takes to launch them: raise a number for a reason only."""
    counts = []
    for length in (4, 5):
        model = random_model(small_config((2, length), **fields), torch.float32)
        positions, context = model.order.unflatten(0, (-1, length))[0], torch.zeros(3, length, 8)
        row = eager(model, choice_of(model, 3)).row
        with torch.no_grad(), Launches() as launches:
            row(context, positions, None)
        counts.append(launches.count)
    assert counts[1] - counts[0] <= most


class Far(Tensor):
    """A tensor of the CPU that `TwoDevices` takes for one of a GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class TwoDevices(TorchFunctionMode):
    """Runs with values as on a CPU and a GPU: what mixes them raises, unless CUDA copies or only reads an index."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        far = bool(tensors) and any(isinstance(each, Far) for each in tensors)
        if func == Tensor.device.__get__:
            return torch.device("cuda:0") if far else func(*args)
        if func in (Tensor.numpy, Tensor.__array__) and far:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        named = [torch.device(each) for each in (*args, kwargs.get("device")) if isinstance(each, (str, torch.device))]
        if func is Tensor.cpu or named:
            here = lambda each: "cpu" if isinstance(each, (str, torch.device)) else each  # noqa: E731
            found = func(*map(here, args), **{name: here(value) for name, value in kwargs.items()})
            if func is Tensor.cpu or named[0].type == "cpu":
                return found.clone().as_subclass(Tensor)
            return found.clone().as_subclass(Far)
        copies = func is Tensor.copy_ or (func is Tensor.__setitem__ and not _has_tensor(args[1]))
        if func is Tensor.__getitem__ or (func is Tensor.__setitem__ and isinstance(args[0], Far)):
            tensors = [args[0], *args[2:]]  # CUDA reads an index of the CPU
        if not copies and len({isinstance(each, Far) for each in tensors if each.ndim}) > 1:
            raise RuntimeError(f"{func.__name__}: expected all tensors to be on the same device")
        found = func(*args, **kwargs)
        if not far or isinstance(found, torch.Size):
            return found
        return tree_map(lambda each: each.as_subclass(Far) if isinstance(each, Tensor) else each, found)


def _has_tensor(index: Any) -> bool:
    return any(isinstance(each, Tensor) for each in (index if isinstance(index, tuple) else (index,)))


def test_the_hash_of_weights_is_computed_on_a_gpu_and_is_that_of_a_cpu():
    tensors = [torch.randn(5, 3), torch.arange(7), torch.ones((), dtype=torch.bfloat16)]
    here, expected = torch.device("cpu"), checkpoints._digest_of_copies(tensors, torch.device("cpu"))
    with TwoDevices():
        far = [each.to("cuda") for each in tensors]
        with pytest.raises(RuntimeError, match="same device"):
            checkpoints._digest_of_copies(far, here)
        assert checkpoints._digest_of_copies(far, CUDA) == expected


@pytest.mark.parametrize("name", ["2d", "columns", "lstm", "classes", "convolution", "centred", "ordinal convolution"])
def test_a_model_on_a_gpu_writes_and_reads_the_archives_of_a_cpu(name):
    model = random_model(VARIANTS[name], torch.float32)
    images, given = random_values(model, 3).to(torch.uint8), random_given(model, 3)
    archive = compress(model, images, **given)
    with TwoDevices():
        model.load_state_dict({name: each.to("cuda") for name, each in model.state_dict().items()}, assign=True)
        assert {each.device.type for each in model.parameters()} == {"cuda"}
        assert compress(model, images, **given) == archive
        assert torch.equal(decompress(model, archive, **given), images)
