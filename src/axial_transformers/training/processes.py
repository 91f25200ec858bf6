"""The processes of a run, one or as many as torchrun starts, and their collective operations.

A collective operation waits until every process calls it. If one process leaves it out, or calls another one, the
others wait for ever. So all processes must take the same branches: on values that they share, such as the step, or on
what a collective operation returned.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from ctypes import py_object, pythonapi
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from axial_transformers.progress import rank

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interrupts:
    """While entered, SIGINT and SIGTERM only set `asked`; a second SIGINT has its usual effect.

    So a step, an evaluation or a sample that has begun comes to its end. A signal that was ignored before stays
    ignored: a shell starts its background processes with Ctrl-C ignored.
    """

    asked: bool = False
    before: dict[signal.Signals, Any] = field(default_factory=dict)
    """The handlers that were there."""

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: not set by Python
                    self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number in [*self.before]:
            self._restore(number)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore(signal.SIGINT)  # SIGTERM may come twice, to a process and to its group

    def _restore(self, number: signal.Signals) -> None:
        if number in self.before:
            signal.signal(number, self.before.pop(number))


TIMEOUT = timedelta(hours=4)
"""How long a process waits for the others. Sampling in the first process alone must take less. Not measured."""


class Processes:
    """The processes of a run, connected while entered (NCCL on CUDA, gloo on CPU).

    If a process ends early, the others leave with a ConnectionError at their next collective operation.

    Release every DistributedDataParallel before leaving. Otherwise its C++ part holds the last reference to the group
    and frees it while it holds the GIL. It waits for a thread of gloo that may itself wait for the GIL: a deadlock.

    Args:
        device: the device of this process, as `find_device` returns it.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank = rank()
        self.count = int(os.environ.get("WORLD_SIZE", 1))
        self.device = device
        self._ours = False
        self._device_before = 0

    @property
    def rank_zero(self) -> bool:
        """True in the one process that prints and writes."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Return True if the flag is set in some process; a collective operation."""
        if self.count == 1:
            return flag
        flags = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of a tensor over the processes, computed in place; a collective operation."""
        if self.count > 1:
            dist.all_reduce(x)
            x /= self.count
        return x

    def fill(self, whole: Tensor, parts: Iterable[slice], compute: Callable[[slice], Tensor]) -> Tensor:
        """Set whole[part] to compute(part) for every part, in every process; a collective operation.

        Rank r of P computes the parts r, r + P, r + 2P, ... of a tensor of zeros; the sum over the processes is the
        result.

        Args:
            whole: [N, ..] zeros.
            parts: disjoint slices of it, the same ones in every process.
            compute: returns the content of a part.

        Returns:
            `whole`; in several processes a new tensor on its device.
        """
        for number, part in enumerate(parts):
            if number % self.count == self.rank:
                whole[part] = compute(part)
        if self.count == 1:
            return whole
        total = whole.to(self.device)
        dist.all_reduce(total)  # elsewhere each is zero
        return total.to(whole.device)

    def broadcast(self, number: float) -> float:
        """Return the number of the first process; a collective operation."""
        if self.count == 1:  # reading a number would wait for the device
            return number
        numbers = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(numbers, 0)
        return float(numbers)

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all, one at a time through the device; shards stay as they are."""
        if self.count == 1:
            return
        from torch.distributed.tensor import DTensor  # takes half a second, which evaluations need not wait for

        for tensor in tensors:
            if not isinstance(tensor, DTensor):
                values = tensor.detach().to(self.device).contiguous()
                dist.broadcast(values, 0)
                tensor.detach().copy_(values)

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def __enter__(self) -> "Processes":
        if self.device.type == "cuda":
            self._device_before = torch.cuda.current_device()
            torch.cuda.set_device(self.device)
        if self.count > 1 and not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=TIMEOUT)
            self._ours = True
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
        if self._ours:
            if error:  # its frames hold a DistributedDataParallel, and gloo may wait for a lost process for ever
                pythonapi.Py_IncRef(py_object(dist.group.WORLD))
            if error and dist.get_backend() == "nccl":
                atexit.register(_leave)
            else:
                dist.destroy_process_group()
            self._ours = False
        if self.device.type == "cuda":
            torch.cuda.set_device(self._device_before)
        if lost:
            raise ConnectionError(
                f"process {self.rank} of {self.count} has lost another, which says why if it could: start all of them "
                "again"
            ) from error


def _leave() -> None:
    """End this process without NCCL's clean-up, which waits for processes that wait for this one.

    Once it has ended, torchrun ends the others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
