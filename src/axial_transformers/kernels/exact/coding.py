"""Fixed-point numbers to integer frequencies, and the entropy coder: asymmetric numeral systems with one state."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import exact, exact_part
from axial_transformers.kernels.exact.definition import MIN_STATE, PRECISION, RECIPROCAL, TOO_SHORT, WORD, Stream
from axial_transformers.kernels.llvm import Integers


@exact_part
def boundary(i: Any, before: Any, factor: Any) -> Any:
    """Return the lower end of the interval of value i, from the sum of the fixed-point numbers before it."""
    return i + ((before * factor) >> RECIPROCAL)


@exact_part
def factor_of(numbers: NDArray[np.int32], count: int, values: int) -> Any:
    """Return the factor that turns `count` fixed-point numbers into frequencies, rounded down.

    Each of the values has a frequency of at least 1, so that every value can be coded.
    """
    total = np.int64(0)
    for j in range(count):
        total += np.int64(numbers[j])
    return (((1 << PRECISION) - values) << RECIPROCAL) // max(total, np.int64(1))


@exact_part
def interval(numbers: NDArray[np.int32], count: int, value: int) -> Any:
    """Return start and frequency of a value's interval of [0, 2^PRECISION)."""
    factor, before = factor_of(numbers, count, count), np.int64(0)
    for j in range(value):
        before += np.int64(numbers[j])
    end = np.int64(1 << PRECISION)
    if value < count - 1:
        end = boundary(value + 1, before + np.int64(numbers[value]), factor)
    start = boundary(value, before, factor)
    return start, end - start


@exact_part
def read_value(numbers: NDArray[np.int32], count: int, stream: Stream) -> Any:
    """Return the next value of a stream, given the fixed-point numbers of its distribution."""
    factor = factor_of(numbers, count, count)
    slot = stream.state[0] & ((1 << PRECISION) - 1)
    value: Any = np.int64(0)
    start, end = np.int64(0), np.int64(1 << PRECISION)
    before = np.int64(numbers[0])
    for i in range(1, count):
        at = boundary(i, before, factor)
        if at > slot:
            end = at
            break
        value, start = i, at
        before += np.int64(numbers[i])
    advance(stream, start, end)
    return value


@exact_part
def advance(stream: Stream, start: int, end: int) -> None:
    """Take the next value, with the interval start .. end - 1, from the state of a stream."""
    state = stream.state[0]
    state = (end - start) * (state >> PRECISION) + (state & ((1 << PRECISION) - 1)) - start
    if state < MIN_STATE:
        word = np.int64(0)
        if stream.state[1] < len(stream.words):
            word = np.int64(stream.words[stream.state[1]])
        else:
            stream.state[2] = TOO_SHORT
        state = (state << WORD) | word
        stream.state[1] += 1
    stream.state[0] = state


@exact
def read_from(starts: NDArray[np.int32], stream: Stream, values: Integers) -> None:
    """Read values [n] of one distribution, whose value v has the interval starts[v] .. starts[v + 1] - 1."""
    for k in range(len(values)):
        slot = stream.state[0] & ((1 << PRECISION) - 1)
        value, beyond = np.int64(0), np.int64(len(starts) - 1)
        while beyond - value > 1:
            middle = (value + beyond) >> 1
            if starts[middle] <= slot:
                value = middle
            else:
                beyond = middle
        advance(stream, np.int64(starts[value]), np.int64(starts[value + 1]))
        values[k] = value


@exact
def write_stream(intervals: Integers, state: int, words: NDArray[np.uint32]) -> int:
    """Write the words of symbols, in the order in which they are read; return the index of the first word.

    The last symbol is coded first, since reading undoes writing. Reading ends with `state`.

    Args:
        intervals: int64 [n, 2], start and frequency of each symbol.
        words: uint32 [n + 2]. The stream fills the end of it, since a symbol takes at most one word.
    """
    at = len(words)
    for k in range(len(intervals) - 1, -1, -1):
        start, frequency = intervals[k, 0], intervals[k, 1]
        if state >= frequency << (63 - PRECISION):
            at -= 1
            words[at] = np.uint32(state & 0xFFFFFFFF)
            state >>= WORD
        state = ((state // frequency) << PRECISION) + state % frequency + start
    words[at - 1] = np.uint32(state & 0xFFFFFFFF)
    words[at - 2] = np.uint32(state >> WORD)
    return at - 2
