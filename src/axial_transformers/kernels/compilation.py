"""Compilation of the kernels by numba: kept on disk, and announced when it takes time."""

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.event import Event, Listener, register

PACKAGE = "axial_transformers.kernels"

log = logging.getLogger("axial_transformers")


def compiled(function: Callable[..., Any]) -> Any:
    """Compiles a kernel at its first call, and keeps the code on disk where a folder for it can be written to.

    Sums may be taken in any order; infinities and NaN keep their meaning.
    """
    kernel: Any = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(function)
    with suppress(RuntimeError, OSError):  # no folder can be written to, or there are no source files to compare
        kernel._cache = KernelCache(function)
    return kernel


class KernelCache(FunctionCache):
    """numba's cache of compiled code on disk, valid for one content of this folder.

    By itself, numba compares the file of the function alone. Kernels take constants and functions from each other's
    files, and these are part of the compiled code.
    """

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), sources_digest()
        self._cache_file = IndexDataCacheFile(self.cache_path, self._impl.filename_base, stamp)


@cache
def sources_digest() -> str:
    """SHA-256 over names and contents of all source files in this folder."""
    digest = hashlib.sha256()
    for file in sorted(files(PACKAGE).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


class Announcement(Listener):
    """A warning before the first compilation in this process; code that is loaded from disk needs none."""

    made = False

    def on_start(self, event: Event) -> None:
        kernel = event.data["dispatcher"]
        if self.made or not kernel.py_func.__module__.startswith(f"{PACKAGE}."):
            return
        self.made = True
        kept = kernel.stats.cache_path
        log.warning(
            "compiling kernels for this processor in about 30 seconds, %s",
            f"once; the code is kept in {kept}" if kept else "in every process, as no cache folder can be written to",
        )

    def on_end(self, event: Event) -> None:
        pass


register("numba:compile", Announcement())
