"""Where the lines of a tensor lie, and how many there are: what callers tell the kernels of attention."""

from typing import NamedTuple


class Strides(NamedTuple):
    """Numbers from one to the next, of a flat tensor [outer, length, inner, heads, width]; those of a head adjoin."""

    outer: int
    inner: int
    head: int
    place: int


class Sizes(NamedTuple):
    """Sizes of queries, keys and values; a piece of work is one head of one line.

    Pieces are counted by head first, then inner, then outer. With a bias, heads come last.
    """

    outer: int
    """Lines are outer times inner."""
    inner: int
    heads: int
    """Of queries."""
    length: int
    """L, of a line."""
    width: int
    """K, of queries and keys."""
    value_width: int
    """W."""
    lines_to_bias: int = 1
    """Lines that share a bias."""
    group: int = 1
    """Heads of queries that share keys and values."""
    at_once: int = 1
    """Heads that are loaded together: some groups of a line, with a bias one head."""
    radius: int = 0
    """R < L: relative encodings are those of the offsets -R .. R."""
    tables: int = 1
    """Tables of relative encodings: 1, or one a head."""
