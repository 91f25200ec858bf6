"""Distribution augmentation: rearranged positions, named to the model, and of no effect on what is evaluated."""

from collections import Counter

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood import random_slice_loss
from axial_transformers.training import TrainConfig
from axial_transformers.training.augmentation import augment, conditioning, shifts, symmetries
from axial_transformers.training.batches import batch_at
from axial_transformers.training.parallelism import Objective
from tests.small_models import random_model, random_values, small_config

SYMMETRIES = {(4, 4): 8, (3, 5): 4, (5,): 2, (2, 3, 3): 16, (1, 4): 4}


@pytest.mark.parametrize(("shape", "count"), SYMMETRIES.items(), ids=str)
def test_every_rearrangement_is_a_bijection_of_the_grid_with_a_conditioning_of_its_own(shape, count):
    example = np.arange(np.prod(shape) * 2).reshape(*shape, 2)
    turned, moved = symmetries(shape), shifts(shape)
    assert (len(turned), len(moved)) == (count, 3 ** len(shape))
    for rearrange in (*turned, *moved):
        image = rearrange(example)
        assert image.shape == example.shape
        assert sorted(image.flat) == list(example.flat)
        assert (image[..., 1] == image[..., 0] + 1).all()  # channels stay together
    together = [[*symmetry.operations, *shift.operations] for symmetry in turned for shift in moved]
    told = conditioning(torch.tensor(together), shape, 16).flatten(1)
    assert not told[0].any()
    assert len(told.unique(dim=0)) == len(together)
    of_symmetries = conditioning(torch.tensor([symmetry.operations for symmetry in turned]), shape, 16).flatten(1)
    assert torch.equal(of_symmetries, told[:: len(moved)])


@pytest.mark.parametrize("among", [symmetries((3, 3)), shifts((3, 3))], ids=["symmetries", "shifts"])
def test_rearrangements_come_as_often_as_asked(among):
    values = np.broadcast_to(np.arange(9).reshape(1, 3, 3, 1), (200 * len(among), 3, 3, 1))
    images, operations = augment(values, among, 0.5, (np.arange(len(values)) + 0.5) / len(values))
    found = Counter(map(bytes, operations.numpy()))
    assert len(found) == len(among)
    assert found.pop(bytes(operations.shape[1])) == 100 * len(among) + 100
    assert set(found.values()) == {100}
    assert ((images == values).all((1, 2, 3)) == ~operations.numpy().any(1)).all()


def test_a_batch_may_have_both_kinds_or_one():
    values, positions = np.arange(18, dtype=np.uint8).reshape(2, 3, 3, 1), np.arange(400)
    examples = Examples(values, ["", ""], range=ValueRange(0, 17))

    def batch_of(**shares):
        return batch_at(examples, range(0, 1), None, TrainConfig(**shares), positions)

    plain, turned, moved = batch_of(), batch_of(distribution_augmentation=0.4), batch_of(shift_augmentation=0.4)
    both = batch_of(distribution_augmentation=0.4, shift_augmentation=0.4)
    assert plain.operations is None
    assert torch.equal(both.operations, torch.cat([turned.operations, moved.operations[:, 3:]], dim=1))
    assert not moved.operations[:, :3].any()
    for batch in (turned, moved, both):
        untouched = ~batch.operations.any(dim=1)
        assert torch.equal(batch.values[untouched], plain.values[untouched])
        assert (batch.values[~untouched] != plain.values[~untouched]).flatten(1).any(dim=1).all()


def test_the_objective_tells_the_model_what_was_done():
    model = random_model(small_config((3, 3), num_classes=2))
    x, label, channel = random_values(model, 4), torch.tensor([0, 1, 2, 0]), torch.zeros(4, dtype=torch.int64)
    operations = torch.eye(4, 3, dtype=torch.bool)
    objective = Objective(model, random_slice_loss)
    cond = conditioning(operations, (3, 3), model.config.dim)
    expected = random_slice_loss(model, x, label=label, channel=channel, cond=cond)
    assert torch.equal(objective(x, label, channel, operations), expected)
    assert torch.equal(objective(x, label, channel, torch.zeros_like(operations)), objective(x, label, channel))
    assert not torch.equal(expected, objective(x, label, channel))
