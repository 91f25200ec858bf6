"""CRC-32C (Castagnoli), the checksum in TensorFlow's files: a message is folded in half until one word is left.

The register is a linear function of the message over GF(2). So the first half of a message, advanced by the length of
the second one (one linear map, applied to all of its words at once), can be added to the second half.
"""

from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_MASK = 0xA282EAD8
_BLOCK = 1 << 17  # words folded at once: their copies stay in the processor's cache
_SHORT = 512  # octets up to which one at a time is faster


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of a contiguous buffer (RFC 3720, appendix B.4): 0xe3069283 for b"123456789"."""
    octets = memoryview(data).cast("B")
    head = len(octets) % 4 if len(octets) > _SHORT else len(octets)
    register = 0xFFFFFFFF
    for octet in octets[:head]:
        register = _OCTETS[(register ^ octet) & 0xFF] ^ register >> 8
    words = np.frombuffer(octets[head:], "<u4")
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK].copy()
        block[0] ^= register
        register = int(_advance_words(_fold(block), 0)[0])
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """The form in which LevelDB and TensorFlow store a checksum (a CRC over data that holds its own CRC is weak)."""
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


def _fold(words: np.ndarray) -> np.ndarray:
    while len(words) > 1:
        level = (len(words) - 1).bit_length() - 1
        front, words = words[: -(1 << level)], words[-(1 << level) :]
        words[-len(front) :] ^= _advance_words(front, level)
    return words


def _advance_words(registers: np.ndarray, level: int) -> np.ndarray:
    """Each register after 2**level zero words."""
    low, high = _tables(level)
    advanced: np.ndarray = low[registers & 0xFFFF] ^ high[registers >> 16]
    return advanced


@cache
def _tables(level: int) -> tuple[np.ndarray, np.ndarray]:
    halves = np.arange(1 << 16, dtype=np.uint32)
    if level == 0:
        return _advance_bits(halves, 32), _advance_bits(halves << 16, 32)
    low, high = _tables(level - 1)
    return _advance_words(low, level - 1), _advance_words(high, level - 1)


def _advance_bits(registers: np.ndarray, bits: int) -> np.ndarray:
    for _ in range(bits):
        registers = registers >> 1 ^ (registers & 1) * np.uint32(_POLYNOMIAL)
    return registers


_OCTETS: list[int] = _advance_bits(np.arange(256, dtype=np.uint32), 8).tolist()
