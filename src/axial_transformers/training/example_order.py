"""The order of the examples and the random draws for each: pure functions of the seed and a position in the run.

Positions count examples since the start of the run: step t of a run with batches of G covers t*G .. (t+1)*G - 1, and
epoch e of N examples covers e*N .. (e+1)*N - 1. So the sequence does not depend on the number of processes, nor on the
steps at which a run was resumed.
"""

from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Stream(IntEnum):
    """Purposes of random bits; draws for different purposes are independent."""

    SHUFFLE = 0
    SLICE = 1
    FLIP = 2
    LABEL = 3
    DROPOUT = 4
    OFFSET = 5
    SYMMETRY = 6
    SHIFT = 7


def random_bits(*keys: int | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Bits [n] that are a hash of the keys (at least 0), the last of which may be an array [n].

    Keys are folded in one after the other by SplitMix64 (Steele et al. 2014), whose n-th output is the hash of
    key + n * golden ratio: statistically as good as a generator, and any of its outputs can be computed alone.
    """
    state = np.zeros(1, np.uint64)
    for key in keys:
        state = state + GOLDEN * (np.atleast_1d(key).astype(np.uint64) + np.uint64(1))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniforms(seed: int, stream: Stream, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each position [n]."""
    return (random_bits(seed, stream, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def step_positions(step: int, batch_size: int, rank: int = 0, ranks: int = 1) -> NDArray[np.int64]:
    """The positions [B] of one process's share in a step; the shares of ranks 0, 1, ... joined are the whole batch.

    Raises:
        ValueError: the batch does not divide into equal shares.
    """
    if batch_size % ranks:
        raise ValueError(f"a batch of {batch_size} does not divide among {ranks} processes")
    share = batch_size // ranks
    return step * batch_size + rank * share + np.arange(share)


def example_indices(seed: int, count: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices [n], out of `count` examples, at the positions [n]: every epoch is a permutation of its own."""
    epochs, places = np.divmod(positions, count)
    indices = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        indices[here] = _permutation(seed, int(epoch), count)[places[here]]
    return indices


@lru_cache(maxsize=2)  # a batch may extend into the next epoch
def _permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return np.argsort(random_bits(seed, Stream.SHUFFLE, epoch * count + np.arange(count)), kind="stable")
