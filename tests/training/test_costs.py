"""What a step is said to need is what it takes, where it can be run."""

import dataclasses

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from axial_transformers import recipes
from axial_transformers.decoding.sampling import cache_numbers
from axial_transformers.layers.blocks import block_matrices
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, costs
from axial_transformers.training.costs import check_memory, parameters, step_costs, training_flops
from tests.small_models import small_config

MODEL = AxialTransformerConfig(
    shape=(16, 24), channels=2, num_values=64, dim=64, heads=2, encoder_layers=2, outer_layers=4, inner_layers=2
)
TRAINING = TrainConfig(batch_size=4, device="cpu", precision="float32", compile=False)


def really_saved(config: AxialTransformerConfig, training: TrainConfig) -> int:
    """Return the bytes of what autograd saves of a whole batch with random weights and values."""
    model, found = AxialTransformer(config), dict[int, int]()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    x = torch.randint(config.num_values, (training.batch_size, *config.shape, config.channels))
    label = torch.zeros(len(x), dtype=torch.int64) if config.num_classes else None

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor), training.autocast(torch.device("cpu")):
        kept = random_slice_loss(model, x, label)
    assert kept.requires_grad
    return sum(found.values())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["digits", "fashion_mnist", "photos32"])
def test_what_autograd_saves_is_within_a_fifth_of_what_a_step_of_a_recipe_saves(name, precision):
    run = recipes.NAMED[name]()
    training = dataclasses.replace(run.training, precision=precision, compile=False, device="cpu")
    assert step_costs(run.model, training).saved == pytest.approx(really_saved(run.model, training), rel=0.2)


def test_weights_moments_and_averages_are_exact():
    numbers = sum(parameter.numel() for parameter in AxialTransformer(MODEL).parameters())
    found = step_costs(MODEL, TRAINING, devices=2)
    assert (found.parameters, sum(parameters(MODEL).values())) == (numbers, numbers)
    assert found.stored == 20 * numbers
    assert found.memory == 20 * numbers + found.saved
    matrices = sum(weight.numel() for weight in block_matrices(AxialTransformer(MODEL)))
    assert step_costs(MODEL, dataclasses.replace(TRAINING, optimizer="muon")).stored == 20 * numbers - 4 * matrices
    shared = step_costs(MODEL, dataclasses.replace(TRAINING, shard=True), devices=2)
    assert (shared.stored, shared.saved) == (10 * numbers, found.saved)


def test_parts_of_a_batch_and_blocks_that_are_computed_again_save_memory():
    whole = step_costs(MODEL, TRAINING)
    assert step_costs(MODEL, dataclasses.replace(TRAINING, accumulate=2)).saved == pytest.approx(
        whole.saved / 2, rel=0.01
    )
    again = step_costs(MODEL, dataclasses.replace(TRAINING, checkpoint_blocks=True))
    inputs = 10 * 4 * 16 * 24 * 64 * 4  # blocks, examples, positions, numbers of four bytes
    assert inputs <= again.saved < inputs + whole.saved / 4


def test_flops_are_those_of_the_products():
    config = AxialTransformerConfig(shape=(8, 8), num_values=17, dim=64, heads=4, outer_layers=4, inner_layers=2)
    layer = 8 * 64**2 + 4 * 64 * 256 + 4 * 8 * 64
    assert training_flops(config) == 3 * 64 * (6 * layer + 2 * 64 * 17)
    assert step_costs(config, TRAINING).flops == 4 * training_flops(config)


def test_a_step_that_clearly_does_not_fit_is_refused_in_one_line(monkeypatch):
    found = step_costs(MODEL, TRAINING)
    check_memory(found, TRAINING)
    monkeypatch.setattr(costs, "free_memory", lambda device: found.memory - 1)
    with pytest.raises(ValueError, match="free"):
        check_memory(found, TRAINING)


@pytest.mark.parametrize("inner", [{"inner_layers": 2}, {"inner": "lstm"}], ids=str)
@pytest.mark.parametrize("convolutions", [0, 1, 2])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
def test_caches_of_decoding_hold_what_is_said(shape, convolutions, inner):
    """One cache a masked layer, each made anew for every slab: the largest number alive at once is one of each."""
    model = AxialTransformer(small_config(shape, gated_convolutions=convolutions, **inner))
    stacks = (*model.outer_decoders, model.inner_decoder)
    kept = [tensor for stack in stacks for block in stack.start(1) for part in block for tensor in part]
    assert sum(tensor.numel() for tensor in kept) == cache_numbers(model.config)
