"""Work in a forked process, which may reach a limit, be killed, or die."""

import faulthandler
import gc
import os
import resource
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path


class Forked:
    """A process that does some work; its status is 0, that of a SystemExit, or 1 after another error."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._read, self._write = os.pipe()
        self.process = get_context("fork").Process(target=self._run, args=(work,))
        self.process.start()
        os.close(self._write)

    def _run(self, work: Callable[[], None]) -> None:
        faulthandler.disable()  # pytest has enabled it
        gc.freeze()  # else a collection copies the whole memory of the suite
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(self._write, 2)
        os.close(self._write)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        try:
            work()
            os._exit(0)
        except SystemExit as left:
            os._exit(int(left.code or 0))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def wait(self) -> tuple[int, str]:
        """Return the status, below 0 for a signal, and what was written to stderr."""
        with os.fdopen(self._read, errors="replace") as pipe:
            said = pipe.read()
        self.process.join()
        return self.process.exitcode or 0, said


def limit(kind: int, most: int) -> None:
    """Lower or raise a limit of this process, which it can raise again."""
    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
