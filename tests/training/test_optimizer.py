"""The numbers of an update: clipping in nats and in bits, and the average of the weights."""

import math

import pytest
import torch
from torch import nn

from axial_transformers.training import TrainConfig
from axial_transformers.training.optimizer import clip_gradients, ema_decay, optimizers, step_all, update_average
from tests.small_models import small_model


def layer(weight: list[float]) -> nn.Linear:
    made = nn.Linear(len(weight), 1, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([weight]))
    return made


@pytest.mark.parametrize(("as_released", "nats"), [(False, 1.0), (True, math.log(2))])
@pytest.mark.parametrize("clip_norm", [0.5, 100.0])
def test_gradients_are_clipped_to_a_norm_in_the_unit_of_the_loss(as_released, nats, clip_norm):
    """The gradient (3, 4) of a loss in nats is one of norm 5 / ln 2 of the same loss in bits."""
    model = layer([0.0, 0.0])
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    before = clip_gradients(model, TrainConfig(clip_norm=clip_norm, as_released=as_released))
    assert before.item() == pytest.approx(5 / nats)
    after = min(5.0, clip_norm * nats)
    assert torch.allclose(model.weight.grad, torch.tensor([[0.6, 0.8]]) * after)


def test_the_average_starts_with_a_smaller_decay_unless_told_otherwise():
    warm, cold = TrainConfig(ema_decay=0.99), TrainConfig(ema_decay=0.99, as_released=True)
    assert [ema_decay(step, warm) for step in (0, 18, 1880, 1881, 10**6)] == [1 / 20, 19 / 38, 0.99, 0.99, 0.99]
    assert {ema_decay(step, cold) for step in range(1000)} == {0.99}
    decays = [ema_decay(step, warm) for step in range(5000)]
    assert decays == sorted(decays)


def test_the_average_moves_by_what_the_decay_leaves():
    average, model = layer([1.0, 2.0]), layer([5.0, -2.0])
    update_average(average, model, 0.25)
    assert average.weight.tolist() == [[2.0, 1.0]]
    assert model.weight.tolist() == [[5.0, -2.0]]


@pytest.mark.parametrize("layout", ["columns", "pixels"])
def test_the_last_layer_of_each_head_has_a_rate_of_its_own(layout):
    """The first step of Adam moves each number by its rate."""
    model = small_model((2, 3), 3, layout)
    config = TrainConfig(learning_rate=1e-2, head_learning_rate=1e-3, device="cpu")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    step_all(optimizers(model, config), config, 1e-2)
    moved = {name: (parameter - before[name]).abs().max().item() for name, parameter in model.named_parameters()}
    slow = {name for name, size in moved.items() if size == pytest.approx(1e-3, rel=1e-3)}
    heads = {name for name in before if name.startswith("head.") and len(before[name]) == model.values.outputs}
    assert slow == heads
