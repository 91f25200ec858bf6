"""Compilation by numba, kept on disk.

Uses private names of numba: `tests/kernels/test_compilation.py` fails when one changes.
"""

import hashlib
import io
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from numba import config as numba_config
from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.event import Event, Listener, TimingListener, register
from numba.core.registry import CPUDispatcher
from platformdirs import user_cache_path

PACKAGE = "axial_transformers.kernels"
LOOSE = {"reassoc", "contract", "nsz", "arcp"}
"""In any order; infinities and NaN keep their meaning."""

config: Any = numba_config
if config.DISABLE_JIT:
    raise ValueError("NUMBA_DISABLE_JIT is set, and without its compiler no kernel runs: unset the variable")
log = logging.getLogger("axial_transformers")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, sums in any order."""
    return _kept(_jitted(function, LOOSE))


def part(function: Callable[..., Any]) -> Any:
    """Compile for kernels to call."""
    return _kept(_part(function, LOOSE))


def exact(function: Callable[..., Any]) -> Any:
    """Compile operations in the order written."""
    return _kept(_jitted(function, False))


def exact_part(function: Callable[..., Any]) -> Any:
    """Compile in order, for kernels to call."""
    return _part(function, False)


class Part(CPUDispatcher):
    """Not for Python to call: it compiles faster."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} is a part of kernels: Python cannot call it")


def _part(function: Callable[..., Any], fastmath: Any) -> Any:
    kernel = _jitted(function, fastmath, no_cpython_wrapper=True)
    kernel.__class__ = Part  # numba would otherwise call into nothing
    return kernel


def _jitted(function: Callable[..., Any], fastmath: Any, **options: bool) -> Any:
    jit: Any = njit  # its type lacks two options
    return jit(nogil=True, error_model="numpy", fastmath=fastmath, no_cfunc_wrapper=True, **options)(function)


def _kept(kernel: Any) -> Any:
    folder = code_folder(Path(config.CACHE_DIR or user_cache_path("axial-transformers", appauthor=False) / "kernels"))
    if folder is not None:
        with suppress(RuntimeError, OSError):  # no source files, or read-only
            kernel._cache = KernelCache(kernel.py_func, folder)
    return kernel


@cache
def code_folder(parent: Path) -> Path | None:
    """Return the folder of this package content's compiled code inside `parent`; None, with a warning, if unsafe.

    Kernels take constants and functions from each other's files, and these are part of the compiled code. By itself,
    numba compares the file of the function alone. So each content of the package has a folder of its own.
    """
    try:
        return _private(_private(parent) / sources_digest()[:16])
    except OSError as error:
        log.warning("compiled kernels are not kept: %s. Set NUMBA_CACHE_DIR to a folder of your own.", error)
        return None


def _private(path: Path) -> Path:
    """Return a folder that only this user can write to, or raise OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(f"another user owns {path}")
    if hasattr(os, "getuid") and found.st_mode & stat.S_IWOTH:
        raise PermissionError(f"every user may write to {path}")
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} cannot be written to")
    return path


class KernelCache(FunctionCache):
    """numba's cache, in our folder."""

    def __init__(self, function: Callable[..., Any], folder: Path):
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            super().__init__(function)
        finally:
            config.CACHE_DIR = before
        if not Path(self.cache_path).is_relative_to(folder):
            raise OSError(f"{folder} cannot be written to")
        self._cache_file = CheckedFiles(
            self.cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        """Numba's own key differs in every process."""
        return signature, codegen.magic_tuple(), _held(self._py_func)

    def save_overload(self, signature: Any, compiled_code: Any) -> None:
        """The disk may be full or read-only."""
        with suppress(OSError):
            super().save_overload(signature, compiled_code)


class CheckedFiles(IndexDataCacheFile):
    """numba's files with a SHA-256: damaged ones count as missing.

    Numba would raise, or run damaged code. After a kill, its numbers could name other code.
    """

    def save(self, key: Any, code: Any) -> None:
        name = f"{Path(self._index_name).stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
        self._save_data(name, code)
        self._save_index({**self._load_index(), key: name})

    def _load_index(self) -> Any:
        return super()._load_index() if _intact(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        path = Path(self._data_path(name))
        if not _intact(path):
            raise OSError(f"{path} is damaged")  # `load` then finds nothing
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(path) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _held(value: Any) -> Any:
    """Return what identifies a value in every process."""
    function = getattr(value, "__wrapped__", value)
    if not hasattr(function, "__code__"):
        return repr(value)
    cells = [_held(cell.cell_contents) for cell in function.__closure__ or ()]
    return function.__module__, function.__qualname__, hashlib.sha256(function.__code__.co_code).hexdigest(), *cells


def _intact(path: Path) -> bool:
    with suppress(OSError):
        content = path.read_bytes()
        return hashlib.sha256(content[:-32]).digest() == content[-32:]
    return False


@cache
def sources_digest() -> str:
    """Return the SHA-256 of all source files here."""
    digest = hashlib.sha256()
    for package in (PACKAGE,):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                content = file.read_bytes()
                digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


class Announcement(Listener):
    """A warning before the first compilation."""

    made = False

    def on_start(self, event: Event) -> None:
        kernel = event.data["dispatcher"]
        if self.made or not str(kernel.py_func.__module__).startswith(f"{PACKAGE}."):
            return
        self.made = True
        kept = kernel.stats.cache_path
        log.warning(
            "compiling kernels for this processor in up to 30 seconds, %s",
            f"once; the code is kept in {kept}" if kept else "in every process, as the code is not kept",
        )

    def on_end(self, event: Event) -> None:
        pass


timer = TimingListener()
register("numba:compile", Announcement())
register("numba:compile", timer)
