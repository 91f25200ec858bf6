"""Where the lines of a tensor lie."""

from typing import NamedTuple


class Strides(NamedTuple):
    """Distances in a flat tensor [outer, length, inner, heads, width]."""

    outer: int
    inner: int
    head: int
    place: int


class Sizes(NamedTuple):
    """Sizes of queries, keys and values.

    Pieces count by head first; with a bias, last.
    """

    outer: int
    inner: int
    heads: int
    length: int
    width: int
    value_width: int
    lines_to_bias: int = 1
    """Lines that share a bias."""
    group: int = 1
    """Heads that share keys and values."""
    at_once: int = 1
    """Heads to load together."""
    radius: int = 0
    tables: int = 1
    """Of encodings: 1, or one per head."""
