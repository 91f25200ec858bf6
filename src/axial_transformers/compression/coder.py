"""Entropy coding: one stream of asymmetric numeral systems (constriction's AnsCoder), from intervals to bytes and back.

constriction takes probabilities p of n symbols, and `Categorical(perfect=False)` makes them 1 + floor(p (2^24 - n) /
sum p) steps of 2^24. Frequencies less one sum to exactly 2^24 - n, so they go through unchanged, in float32 too; a
test asserts it.
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
    """The stream of n symbols, each given by its interval of the grid alone: [lower, lower + frequency), lower >= 1."""
    # For the coder, a symbol is what lies below it, itself, and what lies above.
    upper = 2**PRECISION - lower - frequency
    parts = np.stack([part.numpy() - 1 for part in (lower, frequency, upper)], axis=-1)
    coder = constriction.stream.stack.AnsCoder()
    coder.encode_reverse(np.ones(len(parts), np.int32), _MODEL, parts.astype(np.float32))
    words: bytes = coder.get_compressed().astype("<u4").tobytes()
    return words.rstrip(b"\0")


class Decoder:
    """Reads a stream, given the frequencies of each symbol in turn.

    Raises:
        DamagedError: bytes that `encode` never writes.
    """

    def __init__(self, stream: bytes):
        if stream.endswith(b"\0"):
            raise DamagedError("a stream ends in a zero byte")
        words = stream + b"\0" * (-len(stream) % _WORD)
        self._coder = constriction.stream.stack.AnsCoder(np.frombuffer(words, "<u4").astype(np.uint32))

    def read(self, frequencies: Int[Tensor, "n v"]) -> Int[Tensor, " n"]:
        """The next n values: int64 [n], for frequencies int64 [n, V].

        Raises:
            DamagedError: the stream is over, or was never written with these frequencies.
        """
        tables = np.zeros(
            (len(frequencies), frequencies.shape[1] + 2), np.float32
        )  # with the steps that no value takes
        tables[:, 1:-1] = frequencies.numpy() - 1
        values = self._coder.decode(_MODEL, tables).astype(np.int64) - 1
        # Every symbol makes the coder's number grow, since lower >= 1: from zero, the end of the stream, -1 is read.
        if values.size and (values.min() < 0 or values.max() >= frequencies.shape[1]):
            raise DamagedError(
                "a stream is over before all of its symbols are read, or was not written with this model"
            )
        return torch.from_numpy(values)

    def finish(self) -> None:
        """Checks that nothing is left.

        Raises:
            DamagedError: something is.
        """
        if not self._coder.is_empty():
            raise DamagedError("a stream goes on after its last symbol")
