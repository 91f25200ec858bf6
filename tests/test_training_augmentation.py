"""Distribution augmentation: symmetries of the grid, named to the model, and of no effect on what is evaluated."""

from collections import Counter

import numpy as np
import pytest
import torch

from axial_transformers.likelihood import random_slice_loss
from axial_transformers.training import TrainConfig
from axial_transformers.training.augmentation import augmented, conditioning, symmetries
from axial_transformers.training.parallelism import Objective
from small_models import random_model, random_values, small_config

SHAPES = {(4, 4): 8, (3, 5): 4, (5,): 2, (2, 3, 3): 16, (1, 4): 4}


@pytest.mark.parametrize(("shape", "count"), SHAPES.items(), ids=str)
def test_every_symmetry_is_a_bijection_of_the_grid_with_a_conditioning_of_its_own(shape, count):
    example = np.arange(np.prod(shape) * 2).reshape(*shape, 2)
    among = symmetries(shape)
    assert len(among) == count
    for symmetry in among:
        image = symmetry(example)
        assert image.shape == example.shape
        assert sorted(image.flat) == list(example.flat)
        assert (image[..., 1] == image[..., 0] + 1).all()  # channels stay together
    told = conditioning(torch.tensor([symmetry.operations for symmetry in among]), shape, 16).flatten(1)
    assert not told[0].any()
    assert len(told.unique(dim=0)) == count


def test_operations_are_what_their_names_say():
    x = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8]])[..., None]
    found = {tuple(symmetry.operations): symmetry(x)[..., 0].tolist() for symmetry in symmetries((3, 3))}

    def image(*operations):
        return found[tuple(i in operations for i in range(3))]

    assert image() == x[..., 0].tolist()
    assert image(0) == [[6, 7, 8], [3, 4, 5], [0, 1, 2]]
    assert image(1) == [[2, 1, 0], [5, 4, 3], [8, 7, 6]]
    assert image(2) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert image(0, 2) == [[6, 3, 0], [7, 4, 1], [8, 5, 2]]


def test_symmetries_come_as_often_as_asked():
    values = np.broadcast_to(np.arange(9).reshape(1, 3, 3, 1), (1_600, 3, 3, 1))
    images, operations = augmented(values, 0.5, (np.arange(1_600) + 0.5) / 1_600)
    found = Counter(map(bytes, operations.numpy()))
    assert len(found) == 8
    assert found.pop(bytes(3)) == 800 + 100
    assert set(found.values()) == {100}
    assert ((images == values).all((1, 2, 3)) == ~operations.numpy().any(1)).all()


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


def test_a_share_out_of_range_is_refused():
    with pytest.raises(ValueError, match="distribution_augmentation must be at least 0 and below 1, not 1"):
        TrainConfig(distribution_augmentation=1)
