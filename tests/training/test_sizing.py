"""What is estimated before a run is what the run takes, where it can be run."""

import dataclasses
import gc

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from axial_transformers import recipes
from axial_transformers.data.examples import Examples
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.planning.costs import Costs
from axial_transformers.planning.machine import Machine
from axial_transformers.planning.step_memory import LiveBytes, activation_bytes, device_batch, memory
from axial_transformers.training import TrainConfig
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import prepared, step

MODEL = AxialTransformerConfig(
    shape=(16, 24), channels=2, num_values=64, dim=64, heads=2, encoder_layers=2, outer_layers=4, inner_layers=2
)
TRAINING = TrainConfig(batch_size=4, device="cpu")
IMAGENET64 = dataclasses.replace(
    recipes.imagenet64(),
    training=dataclasses.replace(recipes.imagenet64().training, accumulate=1, precision="bfloat16"),
)


def real_peak(training: TrainConfig) -> int:
    """Bytes of tensors at the worst moment of two steps, as torch's profiler sees them come and go."""
    values = np.random.default_rng(0).integers(0, 64, (8, *MODEL.shape, 2), dtype=np.uint8)
    examples = Examples(values, [str(i) for i in range(8)], num_values=64)
    gc.collect()  # what earlier tests left must not go meanwhile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = AxialTransformer(MODEL)
        processes = Processes(torch.device("cpu"))
        learner = prepared(model, examples, training.resolve_auto(), processes)
        step(learner)
        step(learner)
    live = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "computed again"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_estimate_is_within_a_tenth_of_a_real_steps_peak(precision, recompute):
    training = dataclasses.replace(TRAINING, precision=precision, checkpoint_blocks=recompute)
    estimate = memory(MODEL, training, devices=1)
    assert estimate.activations > 4 * estimate.weights
    assert estimate.total == pytest.approx(real_peak(training), rel=0.1)


def test_weights_moments_and_averages_are_exact():
    numbers = sum(parameter.numel() for parameter in AxialTransformer(MODEL).parameters())
    found = memory(MODEL, TRAINING, devices=2)
    assert (found.weights, found.gradients, found.average, found.adam) == (*(4 * numbers,) * 3, 8 * numbers)
    assert found.gathered == 0
    assert found.total == 20 * numbers + found.activations


def test_shards_are_shares_and_what_is_gathered_is_counted():
    whole = memory(MODEL, TRAINING, devices=2)
    shared = memory(MODEL, dataclasses.replace(TRAINING, shard=True), devices=2)
    assert shared.weights == whole.weights / 2
    assert shared.adam == whole.adam / 2
    assert shared.activations == whole.activations
    model = AxialTransformer(MODEL)
    block = 4 * sum(parameter.numel() for parameter in model.inner_decoder.blocks[0].parameters())
    assert shared.gathered == 2 * (whole.weights - 8 * block) + 4 * block


def test_live_bytes_come_and_go_with_tensors():
    known = torch.empty(1000)
    with LiveBytes([known.untyped_storage()]) as memory:
        a = torch.empty(10)
        b = a[2:].view(2, 4)
        known.mul_(2).view(10, 100)
        assert memory.live == 40
        del a
        assert memory.live == 40  # b still looks at it
        c = torch.empty(5)
        del b
        assert (memory.live, memory.peak) == (20, 60)
        del c
    assert (memory.live, memory.peak) == (0, 60)


@pytest.mark.parametrize(("dtype", "recompute"), [(torch.float32, False), (torch.bfloat16, True)])
def test_activations_grow_evenly_with_the_batch(dtype, recompute):
    some, more, most = (activation_bytes(MODEL, batch, dtype, recompute) for batch in (16, 32, 80))
    assert most == pytest.approx(some + 4 * (more - some), rel=1e-3)


def test_recomputing_and_half_precision_save_memory_at_full_size():
    kept = memory(IMAGENET64.model, IMAGENET64.training, devices=8)
    again = memory(IMAGENET64.model, dataclasses.replace(IMAGENET64.training, checkpoint_blocks=True), devices=8)
    wide = memory(IMAGENET64.model, dataclasses.replace(IMAGENET64.training, precision="float32"), devices=8)
    assert again.activations < kept.activations / 4
    assert 1.5 * kept.activations < wide.activations < 2 * kept.activations


def test_a_steps_time_is_its_flops_over_the_rate_reached():
    machine = Machine(devices=4, rate=100.0, utilisation=0.5)
    found = Costs(model=IMAGENET64.model, training=IMAGENET64.training, machine=machine)
    assert found.step_seconds == found.flops / 200e12
    assert device_batch(dataclasses.replace(IMAGENET64.training, accumulate=2), 4) == 8


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="a batch of 64 does not divide into 1 parts on each of 7 devices"):
        memory(IMAGENET64.model, IMAGENET64.training, devices=7)
    for wrong in ({"devices": 0}, {"utilisation": 1.5}, {"utilisation": 0.0}, {"memory": -1.0}, {"rate": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Machine(**wrong)


@pytest.mark.parametrize("changes", [{"inner": "lstm", "inner_layers": 1}, {"dropout": 0.1}, {"num_classes": 3}])
def test_every_model_can_be_estimated(changes):
    assert activation_bytes(dataclasses.replace(MODEL, **changes), 1, torch.bfloat16, False) > 10**6
