"""Noise of samples: a function of a seed and of the number of the sample, equal on every device.

The generator is Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), as NumPy has it. It
turns a counter of four words and a key of two into four random words of 64 bits. No sample needs the noise of others:

| word | 0 | 1 | 2 | 3 |
|---|---|---|---|---|
| key | seed modulo 2^64 | 0 | | |
| counter | block: 1, 2, ... | 0 | number of the sample | 0 |

Each block gives the next four numbers of a sample. A word w becomes (floor(w / 2^12) + 1/2) / 2^52, which is exact.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

NOISE_AT_ONCE = 1 << 16
"""Numbers of noise computed at a time: their float64 form takes 512 KiB, and stays in a core's cache."""


def gumbel(
    shape: tuple[int, ...], seed: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> Float[Tensor, "..."]:
    """Return standard Gumbel noise of samples number `first`, `first` + 1, ..., float32.

    Args:
        shape: the number of samples, then the shape of the noise of one.
        seed: -2^63 .. 2^64 - 1.
        device: the noise is that of a CPU, up to the rounding of logarithms.
    """
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    for part, numbers in _parts(noise, seed, first):
        part.copy_(numbers.to(device).log_().neg_().log_().neg_())  # a GPU takes logarithms while the CPU generates
    return noise


def uniform(
    shape: tuple[int, ...], seed: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> Float[Tensor, "..."]:
    """Return uniform numbers in (0, 1), float64, the same on every device; see `gumbel`."""
    noise = torch.empty(shape, dtype=torch.float64, device=device)
    for part, numbers in _parts(noise, seed, first):
        part.copy_(numbers)
    return noise


def _parts(noise: Tensor, seed: int, first: int) -> Iterator[tuple[Tensor, Float[Tensor, "b n"]]]:
    """Yield parts of the noise, and uniform numbers for each: several samples, or a part of one."""
    size = prod(noise.shape[1:])
    samples = noise.view(len(noise), size)
    together = max(1, NOISE_AT_ONCE // max(1, size))
    bits = np.random.Philox(key=seed % 2**64)
    state = bits.state  # its buffer of words is empty
    for start in range(0, len(noise), together):
        for at in range(0, size, NOISE_AT_ONCE):
            part = samples[start : start + together, at : at + NOISE_AT_ONCE]
            numbers = np.empty(part.shape)
            for number, row in enumerate(numbers, first + start):
                state["state"]["counter"][:] = at // 4, 0, number, 0
                bits.state = state
                np.add(bits.random_raw(len(row)) >> np.uint64(12), 0.5, out=row)
            numbers *= 2.0**-52
            yield part, torch.from_numpy(numbers)
