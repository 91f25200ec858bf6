"""Decoding and attention as they are on a GPU, tested without one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from axial_transformers.decoding import NoiseChoice, Sampler, backend_choice, decode, graph_backend
from axial_transformers.decoding.backend import eager
from axial_transformers.decoding.sampling import complete, noise_for, sample
from axial_transformers.likelihood.bits import bits_map, random_slice_loss
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.ops import cuda_graphs, sdpa
from axial_transformers.ops.axial_attention import axial_attention
from tests import attention_reference as reference
from tests.forced_backend import forced
from tests.small_models import VARIANTS, random_given, random_model, random_values, small_config

CUDA = torch.device("cuda:0")


@pytest.mark.parametrize("bound", [{"MAX_LINES": 7}, {"MAX_NUMBERS": 1000}], ids=str)
def test_attention_over_more_lines_than_a_kernel_takes_is_computed_in_parts(bound, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(23, 1, 3, 2, width, generator=generator, requires_grad=True) for width in (1, 1, 3))
    mask = torch.rand(23, 1, 3, generator=generator) > 0.4
    expected = reference.axial_attention(q, k, v, 2, True, mask)
    calls, product = [], torch.nn.functional.scaled_dot_product_attention

    def record(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(len(args[0]))
        return product(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record)
    for name, value in bound.items():
        monkeypatch.setattr(sdpa, name, value)
    with forced(sdpa):
        got = axial_attention(q, k, v, 2, True, mask)
    assert sum(calls) == 23
    assert max(calls) == (7 if "MAX_LINES" in bound else 1)  # 1 x 2 heads x 128 positions x 3 numbers are 768
    torch.testing.assert_close(got, expected)
    for mine, right in zip(torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(expected.sum(), (q, k, v))):
        torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)


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

    monkeypatch.setattr(cuda_graphs, "record", record)
    return recorded


def same_by_graphs(model: AxialTransformer, x: Tensor, choose: NoiseChoice, **given: Tensor) -> bool:
    """Graphs choose what eager decoding chooses."""
    found = decode(model, choose, x, Conditioning(**given), graph_backend.graphs)
    return torch.equal(found, decode(model, choose, x, Conditioning(**given), eager))


@pytest.mark.parametrize("name", ["2d deep", "3d channels", "rotary", "classes", "lstm", "ordinal columns"])
def test_one_graph_of_a_row_and_one_of_each_outer_decoder_serve_all_steps_channels_and_calls(name, recorded):
    model = random_model(VARIANTS[name])
    for seed in (0, 1):
        x = random_values(model, 2, seed)
        unknown = torch.arange(x[0].numel()).view_as(x[0]) > 1
        choose = replace(choice_of(model, 2, seed), known=x.masked_fill(unknown, -1))
        assert same_by_graphs(model, x, choose, **random_given(model, 2, seed))
    assert len(recorded) == 1 + len(model.outer_decoders)


def test_graphs_are_recorded_anew_for_other_shapes_options_and_weights_elsewhere(recorded):
    model = random_model(VARIANTS["2d"], torch.float32)

    def check(batch: int, **options: Any) -> int:
        recorded.clear()
        assert same_by_graphs(model, random_values(model, batch), choice_of(model, batch, **options))
        return len(recorded)

    assert [check(2), check(3), check(3), check(3, temperature=0.5)] == [2, 2, 0, 2]
    other = random_model(VARIANTS["2d"], torch.float32, seed=1).state_dict()
    model.load_state_dict(other)
    assert check(3, temperature=0.5) == 0, "new values in place need no new graph"
    model.load_state_dict({name: tensor.clone() for name, tensor in other.items()}, assign=True)
    assert check(3, temperature=0.5) == 2


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (lambda work, device: 1 / 0, "CUDA graphs fail on cpu: ZeroDivisionError"),
        (lambda work, device: (work(), lambda: None), "CUDA graphs choose other values on cpu"),
    ],
)
def test_where_the_self_test_fails_decoding_is_eager(record, reason, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(cuda_graphs, "record", record)
        found = graph_backend.failed_self_test.__wrapped__(torch.device("cpu"))
    monkeypatch.setattr(AxialTransformer, "device", property(lambda model: CUDA))
    monkeypatch.setattr(backend_choice, "failed_self_test", lambda device: found)
    model = random_model(small_config((4, 3)), torch.float32)
    choose = choice_of(model, 2)
    assert backend_choice.choose_backend(model, choose, 2).device is None
    with pytest.raises(ValueError, match=f"compile=True, but {reason}"):
        backend_choice.choose_backend(model, choose, 2, compile=True)


class Moved(Exception):
    """A tensor moves from the CPU to the GPU."""


CALLS: dict[str, Callable[..., Any]] = {
    "forward": lambda model, x, label: model(x, label),
    "random_slice_loss": lambda model, x, label: random_slice_loss(model, x, label),
    "bits_map": lambda model, x, label: bits_map(model, x, label),
    "evaluate": lambda model, x, label: evaluate(model, x, label, batch_size=2),
    "sample": lambda model, x, label: sample(model, known=x, label=label),
    "complete": lambda model, x, label: complete(model, x, channels=1, label=label),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_values_and_labels_are_checked_before_they_move_to_a_gpu(call, monkeypatch):
    """There, one out of range ends the process instead of being an error."""
    model, to = AxialTransformer(small_config((2, 3), 2, num_classes=3)), Tensor.to
    weights = model.state_dict()
    with FakeTensorMode():
        fake = {name: torch.empty(each.shape, dtype=each.dtype, device="cuda") for name, each in weights.items()}
        model.load_state_dict(fake, assign=True)
    x, label = random_values(model, 2), torch.tensor([0, 3])

    def moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if CUDA in args or CUDA in kwargs.values():
            raise Moved
        return to(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 0))
    monkeypatch.setattr(Tensor, "to", moved)
    wrong = x.clone()
    wrong[1, 1, 2, 0] = 999
    with pytest.raises(ValueError, match=r"0\.\.4.* 0\.\.999"):
        call(model, wrong, label)
    with pytest.raises(Moved):
        call(model, x, label)
    monkeypatch.setattr(AxialTransformer, "check", lambda self, x: x)  # so that the labels are next
    with pytest.raises(ValueError, match="label"):
        call(model, x, torch.tensor([0, 999]))
