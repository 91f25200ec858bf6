"""Entropy coding by asymmetric numeral systems (constriction's AnsCoder): intervals to the bytes of a stream and back.

constriction takes probabilities p of n symbols, and `Categorical(perfect=False)` quantises them to frequencies
1 + floor(p (2^24 - n) / sum p) out of 2^24. Given p = frequency - 1, whose sum is exactly 2^24 - n, it arrives at these
same frequencies, in float32 as in float64.
"""

import constriction
import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.frequencies import PRECISION

_MODEL = constriction.stream.model.Categorical(perfect=False)
_WORD = 4


def encode(lower: Int[Tensor, " n"], frequency: Int[Tensor, " n"]) -> bytes:
    """The stream of n symbols, each given by its interval [lower, lower + frequency) of the grid, lower >= 1."""
    # The coder's alphabet has three symbols: all below the interval, the interval, all above it.
    upper = 2**PRECISION - lower - frequency
    parts = np.stack([part.numpy() - 1 for part in (lower, frequency, upper)], axis=-1)
    coder = constriction.stream.stack.AnsCoder()
    coder.encode_reverse(np.ones(len(parts), np.int32), _MODEL, parts.astype(np.float32))
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words.rstrip(b"\0")


class Decoder:
    """Reader of a stream, given the frequencies of each symbol in turn.

    Raises:
        DamagedError: bytes that `encode` does not write.
    """

    def __init__(self, stream: bytes):
        if stream.endswith(b"\0"):
            raise DamagedError("a stream ends in a zero byte")
        words = stream + b"\0" * (-len(stream) % _WORD)
        self._coder = constriction.stream.stack.AnsCoder(np.frombuffer(words, "<u4").astype(np.uint32))

    def read(self, frequencies: Int[Tensor, "n v"]) -> Int[Tensor, " n"]:
        """The next n values: int64 [n], for frequencies int64 [n, V].

        Raises:
            DamagedError: the stream has ended, or was not written with these frequencies.
        """
        count, values_per_site = frequencies.shape
        tables = np.zeros((count, values_per_site + 2), np.float32)  # the first and the last step belong to no value
        tables[:, 1:-1] = frequencies.numpy() - 1
        values = self._coder.decode(_MODEL, tables).astype(np.int64) - 1
        # lower >= 1, so each encoded symbol increases the coder's number: at zero, the end of the stream, -1 is read.
        if values.size and (values.min() < 0 or values.max() >= values_per_site):
            raise DamagedError("a stream ends before its last symbol, or was not written with this model")
        return torch.from_numpy(values)

    def finish(self) -> None:
        """Checks that the stream has no further symbols.

        Raises:
            DamagedError: it has.
        """
        if not self._coder.is_empty():
            raise DamagedError("a stream goes on after its last symbol")
