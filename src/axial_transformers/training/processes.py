"""The processes of a run, one or as many as torchrun starts, and their collective operations."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from ctypes import py_object, pythonapi
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from axial_transformers.progress import rank
from axial_transformers.training.config import find_device

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Result = TypeVar("Result")


class Interrupts:
    """While entered, SIGINT and SIGTERM only set `asked`; a second SIGINT has its usual effect.

    A signal that was ignored stays ignored: a shell starts its background processes with Ctrl-C ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._giving_up = False
        self._before: dict[signal.Signals, Any] = {}

    def until_asked(self, call: Callable[..., Result], *arguments: Any) -> Result | None:
        """The result of the call; None where a signal came before it, or came during it and ended it."""
        self._giving_up = True
        try:
            return None if self.asked else call(*arguments)
        except KeyboardInterrupt:
            if not self.asked:
                raise
            return None
        finally:
            self._giving_up = False

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            for each in SIGNALS:
                if signal.getsignal(each) not in (signal.SIG_IGN, None):  # None: not set by Python
                    self._before[each] = signal.signal(each, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in [*self._before]:
            self._restore(each)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore(signal.SIGINT)  # SIGTERM may come twice, to a process and to its group
        if self._giving_up:
            self._giving_up = False
            raise KeyboardInterrupt

    def _restore(self, each: signal.Signals) -> None:
        if each in self._before:
            signal.signal(each, self._before.pop(each))


TIMEOUT = timedelta(hours=4)
"""The longest wait of the others for the first process, which alone draws a run's samples."""


class Interrupted(Exception):
    """Work that processes share was interrupted in one of them, and has ended in all."""


class Processes:
    """The processes of a run, connected while entered (NCCL on CUDA, gloo on CPU).

    If one ends early, the others leave with a ConnectionError at their next collective operation.

    To leave without an error, every DistributedDataParallel must have been released before. Otherwise its C++ part
    holds the last reference to the process group and frees it while it holds the GIL, waiting for a thread of gloo
    that may itself be waiting for the GIL: a deadlock.

    Args:
        device: that of this process, by `find_device`.
        way_out: said to the user of a process that has lost another.
    """

    def __init__(
        self, device: torch.device, way_out: str = "the run can be resumed, with any number of processes"
    ) -> None:
        self.way_out = way_out
        self.rank, self.count, self.device = rank(), int(os.environ.get("WORLD_SIZE", 1)), device
        self._ours = False

    @property
    def rank_zero(self) -> bool:
        """True for the process that prints and writes."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a tensor over processes."""
        if self.count > 1:
            dist.all_reduce(x)
            x /= self.count
        return x

    def fill(
        self,
        whole: Tensor,
        parts: Iterable[slice],
        compute: Callable[[slice], Tensor],
        interrupts: Interrupts | None = None,
    ) -> Tensor:
        """Sets whole[part] to compute(part) for every part, in every process; process r computes parts r, r + count, ..

        The processes wait for each other after each round of as many parts, so that they end together.

        Args:
            whole: [N, ..] zeros, of which the parts are disjoint slices; the same parts in every process.
            interrupts: those of a loop; a signal to any process ends the computations in all.

        Returns:
            `whole`, or in several processes a tensor like it.

        Raises:
            Interrupted: a signal came to one of the processes.
        """
        interrupts = interrupts or Interrupts()
        for number, part in enumerate(parts):
            turn = number % self.count
            if turn == 0:
                self._end_if(interrupts.asked)
            if turn == self.rank and (values := interrupts.until_asked(compute, part)) is not None:
                whole[part] = values
        self._end_if(interrupts.asked)
        if self.count == 1:
            return whole
        total = whole.to(self.device)
        dist.all_reduce(total)  # elsewhere each is zero
        return total.to(whole.device)

    def _end_if(self, interrupted: bool) -> None:
        if self.any(interrupted):
            raise Interrupted

    def broadcast(self, number: float) -> float:
        """The first process's number."""
        numbers = torch.tensor(number, dtype=torch.float64, device=self.device)
        if self.count > 1:
            dist.broadcast(numbers, 0)
        return float(numbers)

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Copy the first process's tensors to all; those on the CPU go by way of the device, one at a time.

        Shards stay as they are.
        """
        for tensor in tensors if self.count > 1 else ():
            if not isinstance(tensor, DTensor):
                values = tensor.detach().to(self.device)
                dist.broadcast(values, 0)
                tensor.detach().copy_(values)

    def barrier(self) -> None:
        """Waits until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def __enter__(self) -> "Processes":
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.count > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", timeout=TIMEOUT)
            self._ours = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
        if self._ours:
            if error is not None:
                _keep_for_ever(dist.group.WORLD)
            if error is not None and dist.get_backend() == "nccl":
                atexit.register(_leave)
            else:
                dist.destroy_process_group()
            self._ours = False
        if lost:
            raise ConnectionError(
                f"process {self.rank} of {self.count} has lost another, which says why if it could: {self.way_out}"
            ) from error


def _keep_for_ever(group: dist.ProcessGroup | None) -> None:
    """Keeps the group from being freed, even at the end of the interpreter.

    The error's frames still hold a DistributedDataParallel, and gloo may wait without end for a lost process.
    """
    pythonapi.Py_IncRef(py_object(group))


def _leave() -> None:
    """End a process that has failed, without NCCL's clean-up, which waits for processes that wait for this one.

    Once it has gone, torchrun ends the others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def processes_on(device: str) -> Processes:
    """Return processes, not entered yet, that share work which is not resumed, on the device of this name."""
    return Processes(find_device(device), way_out="start all of them again")
