"""How the kernels are compiled."""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compiled when first called, once on a machine if there is a place to keep it.

    Sums may be taken in any order; infinities and NaN keep their meaning.
    """
    compile = partial(njit, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
    try:
        return compile(cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return compile()(function)
