"""Bits/dim of the same images under two simple codes, to compare the model with."""

import lzma

import numpy as np

from axial_transformers.data import Examples


def independent_bits(train: Examples, test: Examples) -> float:
    """Bits/dim under independent pixels, each with its histogram over the training images, counts plus one."""
    values = np.arange(train.num_values)
    counts = 1 + (train.values[..., None] == values).sum(axis=0)
    bits = -np.log2(counts / (len(train) + train.num_values))
    return float(np.where(test.values[..., None] == values, bits, 0).sum() / test.values.size)


def xz_bits(examples: Examples) -> float:
    """Bits/dim of the examples as one xz stream of bytes, at its strongest setting."""
    return 8 * len(lzma.compress(examples.values.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / examples.values.size
