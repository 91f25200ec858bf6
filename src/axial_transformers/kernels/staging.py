"""Some heads of a line in a core's cache: converted to float32 and padded with zeros to whole vectors.

Successive places of a line may be far apart in memory, often by a power of two, so that they share a few sets of a
cache and evict each other before the next head is read. So each place is read, and written, once for several heads,
which lie beside each other.
"""

from typing import Any

import numpy as np

from axial_transformers.kernels.compilation import part
from axial_transformers.kernels.line_layout import Sizes, Strides
from axial_transformers.kernels.llvm import LANES, Array
from axial_transformers.kernels.vectors import narrow, prefetch, widen

ONE = np.float32(1)
AHEAD = 8
"""Places of a line that are on their way from memory: with strides of a power of two, a cache holds few more."""


@part
def zeros(count: int) -> Array:
    """Zeros from the start of a vector in memory on: vectors that cross a cache line take longer."""
    x = np.zeros(count + LANES, np.float32)
    return x[-(np.int64(x.ctypes.data) // 4) % LANES :]


@part
def start(m: int, strides: Strides, sizes: Sizes) -> int:
    """The offset of piece `m`: heads are counted fastest, then inner, then outer."""
    heads, inner = sizes.heads, sizes.inner
    return m // heads // inner * strides.outer + m // heads % inner * strides.inner + m % heads * strides.head


@part
def sizes_of_groups(sizes: Sizes) -> Sizes:
    """The sizes of keys and values, which the heads of a group share."""
    return Sizes(
        sizes.outer, sizes.inner, sizes.heads // sizes.group, sizes.length, sizes.width, sizes.value_width,
        sizes.lines_to_bias, 1, sizes.together // sizes.group, sizes.radius, sizes.tables,
    )  # fmt: skip


@part
def load_heads(
    x: Any,
    m: int,
    strides: Strides,
    sizes: Sizes,
    width: int,
    scale: np.float32,
    out: Array,
    padded: int,
    wide: int,
) -> None:
    """Pieces m, m + 1, .. of x, the heads that are loaded together, times `scale`, to out [.., padded, wide]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.together):
            from_x, to = at + row * strides.place + head * strides.head, (head * padded + row) * wide
            if width == wide:
                for j in range(0, width, LANES):
                    prefetch(x, from_x + AHEAD * strides.place + j, LANES)
                    widen(x, from_x + j, LANES, scale, out, to + j)
            else:
                prefetch(x, from_x + AHEAD * strides.place, width)
                widen(x, from_x, width, scale, out, to)


@part
def store_heads(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int,
    scale: np.float32,
) -> None:  # fmt: skip
    """x [.., padded, wide], times `scale`, to pieces m, m + 1, .. of out, the heads that are loaded together."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.together):
            to = at + row * strides.place + head * strides.head
            prefetch(out, to + AHEAD * strides.place, width)
            narrow(x, (head * padded + row) * wide, width, scale, out, to)


@part
def store_normalised(
    x: Array, padded: int, wide: int, out: Any, m: int, strides: Strides, sizes: Sizes, width: int, sums: Array
) -> None:  # fmt: skip
    """`store_heads` of rows that are multiplied by the first of their numbers in sums, [pieces times L, 2]."""
    at = start(m, strides, sizes)
    for row in range(sizes.length):
        for head in range(sizes.together):
            to = at + row * strides.place + head * strides.head
            prefetch(out, to + AHEAD * strides.place, width)
            narrow(x, (head * padded + row) * wide, width, sums[(m + head) * sizes.length + row, 0], out, to)
