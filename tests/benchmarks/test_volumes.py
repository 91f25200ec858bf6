"""Blocks cover a volume, and each value counts once."""

import sys

import numpy as np
import torch

from axial_transformers.likelihood.bits import bits_map
from tests.paths import ROOT
from tests.small_models import CENTRED, random_model, small_config

sys.path.insert(0, str(ROOT / "benchmarks"))

import volume_outliers
import volumes


def test_every_value_counts_in_the_first_block_that_has_it():
    net = random_model(small_config((2, 3, 2), num_values=40, **CENTRED), torch.float32)
    x = np.random.default_rng(0).integers(0, 40, (2, 3, 7, 4))
    found = volumes.model_bits(net, x, batch=3)
    for example, bits in zip(x, found):
        for rows, new in (((0, 2), (0, 2)), ((1, 3), (2, 3))):
            for columns, seen in (((0, 3), (0, 3)), ((3, 6), (3, 6)), ((4, 7), (6, 7))):
                block = example[slice(*rows), slice(*columns), 2:]
                expected = bits_map(net, torch.from_numpy(block[None, ..., None]))[0, ..., 0].numpy()
                inside = (slice(new[0] - rows[0], new[1] - rows[0]), slice(seen[0] - columns[0], seen[1] - columns[0]))
                assert np.array_equal(bits[slice(*new), slice(*seen), 2:], expected[inside])


def test_halves_and_differences_lose_nothing():
    x = np.random.default_rng(0).integers(-300, 300, (1, 5, 4, 3), np.int16)
    first, second = volumes.parts_of(x)
    assert np.array_equal(np.concatenate([first, second]), x[0])
    values = volumes.unsigned(x)
    assert values.dtype == np.uint16
    assert np.array_equal(values.astype(int) + x.min(), x)
    changes = volumes.differences(values, axis=2)
    changes[1:] -= 1 << 15
    assert np.array_equal(changes.cumsum(axis=0, dtype=np.uint16), volumes.slices(values, axis=2))


def test_a_defect_changes_what_it_says_and_nothing_else():
    random, block = np.random.default_rng(0), np.full((8, 9, 10), 100)
    for kind, most in (("blob", 123), ("line", 10), ("noise", 216)):
        changed, where = volume_outliers.defect(kind, block, 20.0, random)
        assert 1 <= where.sum() <= most
        assert np.array_equal(changed[~where], block[~where])
        assert (changed != block).sum() >= 0.9 * where.sum()


def test_blocks_of_a_volume_are_its_parts_in_order():
    x = np.arange(2 * 4 * 7 * 6).reshape(2, 4, 7, 6)
    blocks = volume_outliers.blocks_of(x, (2, 3, 3))
    assert len(blocks) == 2 * 2 * 2 * 2
    assert np.array_equal(blocks[-1], x[1, 2:, 3:6, 3:])
    assert np.array_equal(blocks[1], x[0, :2, :3, 3:])
