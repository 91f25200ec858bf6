"""Where the lines of a tensor lie, and how many there are: what callers tell the kernels of attention."""

from typing import NamedTuple


class Strides(NamedTuple):
    """Numbers from one to the next in a flat tensor [outer, length, inner, heads, width]; those of a head adjoin."""

    outer: int
    inner: int
    head: int
    position: int


class Sizes(NamedTuple):
    """Sizes of queries, keys and values. One head of one line is a piece of work.

    Pieces count by head first, then inner, then outer. With a bias, heads come last: successive pieces then have the
    same bias in cache.
    """

    outer: int
    """There are outer times inner lines."""
    inner: int
    heads: int
    """Of queries."""
    length: int
    """L, positions of a line."""
    width: int
    """K, of queries and keys."""
    value_width: int
    lines_to_bias: int = 1
    """Lines that share a bias."""
    group: int = 1
    """Heads of queries that share keys and values."""
    at_once: int = 1
    """Heads that are loaded together: whole groups of a line; with a bias, one head."""
    radius: int = 0
    """R < L: relative encodings are those of the offsets -R .. R."""
    tables: int = 1
    """Tables of relative encodings: 1, or one for each head."""
