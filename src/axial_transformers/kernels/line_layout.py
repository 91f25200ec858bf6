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

    Pieces count by head, then inner, then outer; with a bias, heads come last.
    """

    outer: int
    """Lines are outer times inner."""
    inner: int
    heads: int
    length: int
    width: int
    """Of queries and keys."""
    value_width: int
    lines_to_bias: int = 1
    """Lines that share a bias."""
    group: int = 1
    """Heads of queries that share keys and values."""
    at_once: int = 1
    """Heads to load together: whole groups; with a bias, one."""
    radius: int = 0
    """R < L, of encodings."""
    tables: int = 1
    """Of encodings: 1, or one per head."""
