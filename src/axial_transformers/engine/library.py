"""The library of the engine: C that was compiled for several levels of a processor's instructions, called by ctypes.

C trusts what it gets. So only this room calls it, after checks of every shape, stride, type and bound.
"""

import ctypes
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axial_transformers.engine.structures import STRUCTURES

FOLDER = Path(__file__).parent
NAME = {"win32": "axial.dll", "darwin": "libaxial.dylib"}.get(sys.platform, "libaxial.so")
FROM_SOURCE = "pip install --force-reinstall --no-deps -e ."
LEVELS = ("v2", "v3", "v3_vnni", "v4", "v4_vnni", "aarch64", "aarch64_dot")
"""From the slowest to the fastest."""
NO_MEMORY = 1
LOG = logging.getLogger("axial_transformers")


class Library:
    """The functions of one level: `library.name(arguments)` calls the C function name_LEVEL.

    A C function returns 0, or a number that says what went wrong, see `door.h`.
    """

    def __init__(self, loaded: ctypes.CDLL, level: str):
        self._loaded = loaded
        self.level = level
        self.multiplies_pairs = bool(loaded.axial_multiplies_pairs())
        """The processor multiplies pairs of bfloat16; levels v4 and v4_vnni use that."""

    def __getattr__(self, name: str) -> Any:
        function: Any = self._loaded[f"{name}_{self.level}"]
        function.restype = ctypes.c_int
        function.errcheck = _checked
        setattr(self, name, function)
        return function


def _checked(result: int, function: Any, arguments: Any) -> int:
    if result == NO_MEMORY:
        raise MemoryError("the engine found no memory")
    return result


@cache
def library() -> Library | None:
    """Return the library at the best level that this processor has, or that AXIAL_CPU names; None, with a warning.

    Raises:
        ValueError: AXIAL_CPU names no level of this processor; or the library is of other sources than those here,
            or has a structure of another size than `structures`.
    """
    path = FOLDER / NAME
    loaded = ctypes.CDLL(str(path)) if path.exists() else None
    levels = [name for name in LEVELS if loaded and loaded.axial_has_level(name.encode())]
    if not loaded or not levels:
        reason = "has no level for this processor" if loaded else "is not compiled"
        slow = "sampling, archives and training on a CPU are many times slower"
        LOG.warning("the engine %s, so %s; to compile it, run %s", reason, slow, FROM_SOURCE)
        return None
    asked = os.environ.get("AXIAL_CPU") or levels[-1]
    if asked not in levels:
        raise ValueError(f"AXIAL_CPU must be one of {', '.join(levels)} on this processor, not {asked}")
    loaded.axial_sources.restype = ctypes.c_char_p
    if loaded.axial_sources().decode() != sources_digest():
        raise ValueError(f"{path} is compiled of other sources than those beside it: run {FROM_SOURCE}")
    compiled = Library(loaded, asked)
    for structure in STRUCTURES:
        size = ctypes.c_uint64()
        compiled.structure_size(structure.__name__.encode(), ctypes.byref(size))
        if size.value != ctypes.sizeof(structure):
            sizes = f"{size.value} bytes in C and {ctypes.sizeof(structure)} in engine/structures.py"
            raise ValueError(f"the structure {structure.__name__} has {sizes}: change it there, too")
    return compiled


def exact_library() -> Library:
    """Return the library.

    Raises:
        RuntimeError: there is none.
    """
    compiled = library()
    if compiled is None:
        raise RuntimeError(f"the engine is not compiled: {FROM_SOURCE}")
    return compiled


@contextmanager
def ieee_arithmetic() -> Iterator[None]:
    """Round to nearest and keep denormal numbers in this thread, for what NumPy adds between calls of the engine.

    Functions of the engine do this by themselves. Without a library, rounding stays as it is.
    """
    compiled = library()
    before = ctypes.c_uint64()
    flushing = not np.float32(1e-40) * np.float32(1)
    if compiled:
        compiled.environment(ctypes.byref(before), 1)
    else:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if compiled:
            compiled.environment(ctypes.byref(before), 0)
        else:
            torch.set_flush_denormal(flushing)


def sources_digest() -> str:
    """Return the SHA-256 of the C sources; `hatch_build.py` computes it alike."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.[ch]")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
