"""How a long loop says how far it is."""

from collections.abc import Callable, Iterable, Sequence

Progress = Callable[[Sequence[int]], Iterable[int]]
"""What goes round the numbers of a loop's turns, such as a progress bar; `iter` shows nothing."""
