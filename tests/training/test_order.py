"""The order of examples, and all that is random about them, is a pure function of (seed, position)."""

from types import SimpleNamespace

import numpy as np

from axial_transformers.data.examples import Examples
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import (
    Purpose,
    batch_at,
    batches,
    example_indices,
    random_bits,
    step_positions,
    uniforms,
)


def some_examples(count: int = 7) -> Examples:
    values = np.random.default_rng(0).integers(0, 5, (count, 3, 4, 2), dtype=np.uint8)
    return Examples(values, [str(i) for i in range(count)], labels=np.arange(count) % 3, num_values=5)


def test_every_epoch_is_a_permutation_of_its_own():
    epochs = [example_indices(3, 50, np.arange(50) + 50 * epoch) for epoch in range(4)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_a_position_decides_whatever_is_asked_with_it():
    together = example_indices(1, 7, np.arange(40))
    alone = [example_indices(1, 7, np.array([position]))[0] for position in reversed(range(40))]
    assert list(together) == alone[::-1]


def test_another_seed_is_another_order():
    assert list(example_indices(1, 50, np.arange(50))) != list(example_indices(2, 50, np.arange(50)))


def test_samples_are_uniform_and_unrelated_across_streams_and_positions():
    numbers = np.stack([uniforms(0, purpose, np.arange(20_000)) for purpose in Purpose])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.stack([np.histogram(row, bins=20, range=(0, 1))[0] for row in numbers])
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)
    related = np.corrcoef(np.concatenate([numbers[:, :-1], numbers[:, 1:]]))
    assert np.abs(related - np.eye(len(related))).max() < 5 / np.sqrt(20_000)


def test_what_is_sampled_for_examples_is_unrelated_across_purposes_steps_parts_and_processes():
    """Asserted of flips, hidden labels, slices, symmetries and shifts: about half of the examples have each."""
    settings = {"batch_size": 80, "accumulate": 2, "seed": 3}
    flipped = TrainConfig(horizontal_flip=True, label_dropout=0.5, **settings)
    turned, moved = (TrainConfig(**{f"{kind}_augmentation": 0.5}, **settings) for kind in ("distribution", "shift"))
    examples, numbers = some_examples(1), []
    examples.values[:, :, 0] = 4 - examples.values[:, :, -1]  # other pixels in the mirror
    for rank in range(2):
        ways = [
            batches(examples, range(2), 3, config, SimpleNamespace(rank=rank, count=2), 0)
            for config in (flipped, turned, moved)
        ]
        for _ in range(2 * 25):
            plain, symmetric, shifted = (next(way) for way in ways)
            was_flipped = (plain.values.numpy() != examples.values).any((1, 2, 3))
            operations = [each.operations.any(dim=1).numpy() for each in (symmetric, shifted)]
            numbers.append([was_flipped, plain.label.numpy() == 3, plain.channel.numpy() == 1, *operations])
    centred = np.array(numbers).swapaxes(1, 2).reshape(2, 25, 2, 20, 5) - 0.5  # of process, step, part, example
    assert np.abs(centred.mean((0, 1, 2, 3))).max() < 0.2
    views = [centred, *(np.roll(centred, 1, axis) for axis in range(4))]
    related = np.corrcoef(np.concatenate([view.reshape(-1, 5).T for view in views]))
    assert np.abs(related[:5] - np.eye(5, len(related))).max() < 5 / np.sqrt(centred.size / 5)


def test_the_hash_is_splitmix64():
    """The first outputs of the published generator seeded with 0; a run must resume in the order it began with."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert random_bits(np.arange(3)).tolist() == published
    assert random_bits(5, 3, np.arange(3)).tolist() == [random_bits(5, 3, i).item() for i in range(3)]


def test_slices_labels_and_flips_come_as_often_as_asked():
    config = TrainConfig(batch_size=6000, horizontal_flip=True, label_dropout=0.25)
    examples = some_examples()
    batch = batch_at(examples, range(1, 3), 3, config, step_positions(0, 6000))
    assert batch.label is not None
    assert abs((batch.label == 3).float().mean() - 0.25) < 0.03
    assert set(batch.channel.tolist()) == {1, 2}
    assert abs((batch.channel == 1).float().mean() - 0.5) < 0.03
    originals = examples.values[example_indices(0, 7, np.arange(6000))]
    kept = (batch.values.numpy() == originals).all((1, 2, 3))
    flipped = (batch.values.numpy() == originals[:, :, ::-1]).all((1, 2, 3))
    assert (kept | flipped).all()
    assert abs(kept.mean() - 0.5) < 0.03
