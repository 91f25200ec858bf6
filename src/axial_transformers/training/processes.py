"""One process or many, as torchrun starts them: which one this is, and what they agree on."""

import os
from ctypes import py_object, pythonapi
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor, nn

from axial_transformers.progress import rank

PATIENCE = timedelta(hours=4)
"""How long the others wait for the first process, which alone evaluates and samples."""


class Processes:
    """The processes of a run; entered, they can speak to each other (NCCL on CUDA, gloo on CPU).

    Where one has ended, the others leave with a ConnectionError as soon as they need it.

    Whoever leaves without an error has let go of every DistributedDataParallel before: its part in C++ would be the
    last to free the group, waiting, under Python's lock, for a thread of gloo's that may be waiting for that lock.

    Args:
        device: what a lone process would train on; of many, each takes the CUDA device of its local rank.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank, self.count = rank(), int(os.environ.get("WORLD_SIZE", 1))
        many_gpus = device.type == "cuda" and self.count > 1
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if many_gpus else device
        self._ours = False

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
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

    def from_first(self, number: float) -> float:
        """The number that the first process has."""
        numbers = torch.tensor(number, dtype=torch.float64, device=self.device)
        if self.count > 1:
            dist.broadcast(numbers, 0)
        return float(numbers)

    def copy_from_first(self, module: nn.Module) -> None:
        """Gives all the parameters that the first process has."""
        for parameter in module.parameters() if self.count > 1 else ():
            dist.broadcast(parameter.detach(), 0)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()

    def __enter__(self) -> "Processes":
        if self.count > 1 and not dist.is_initialized():
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", timeout=PATIENCE)
            self._ours = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
        if self._ours:
            if error is not None:
                _keep_for_ever(dist.group.WORLD)
            dist.destroy_process_group()
            self._ours = False
        if lost:
            raise ConnectionError(
                f"process {self.rank} of {self.count} has lost another, which says why if it could: "
                "the run can be resumed, with any number of processes"
            ) from error


def _keep_for_ever(group: dist.ProcessGroup | None) -> None:
    """Not even the end of the interpreter frees it: the error's frames hold what may not be the last to do so, and gloo
    may wait without end for what a lost process would do."""
    pythonapi.Py_IncRef(py_object(group))
