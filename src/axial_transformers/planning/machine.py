"""What a machine has: devices, memory, and the measured rate of its matrix products."""

import os
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F

from axial_transformers.engine import library
from axial_transformers.messages import Message
from axial_transformers.processor import (
    arithmetic,
    cpp_compiler,
    free_memory,
    multiplies_bfloat16,
    processor_name,
    torch_capabilities,
)

Precision = Literal["auto", "float32", "bfloat16"]
CPU = torch.device("cpu")
SHARE_OF_FREE_MEMORY = 0.9
"""Of this machine's free memory, what a step may take. Not measured; chosen so that other processes keep a tenth."""
MATRIX = {"cpu": 1024, "cuda": 8192}
"""Side of matrices, large enough for the full rate."""
PRODUCTS = {"cpu": 1, "cuda": 10}
"""Products between readings of the clock, so that the device never waits for the host."""

INSTRUCTIONS = ("avx2", "avx512_f", "avx512_bf16", "avx512_fp16", "amx_bf16", "neon", "sve", "bf16")
LIMITS = (
    "ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "AXIAL_CPU",
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The devices to train on; by default H100s."""

    devices: int = 1
    memory: float = 80.0
    """GB (1e9 bytes) of one device; of this machine, what is free."""
    rate: float | None = 989.0
    """Of one device's matrix products, in TFLOP/s; 989 is an H100's in bfloat16."""
    utilisation: float | None = 0.4
    """Share of that rate in training; None: unknown."""
    device: str = "cuda"
    is_this: bool = False

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(Message("{devices} must be at least 1, not {}", self.devices))
        for name in ("memory", "rate"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(Message("{" + name + "} must be above 0, not {}", value))
        if self.utilisation is not None and not 0 < self.utilisation <= 1:
            raise ValueError(Message("{utilisation} must be above 0 and at most 1, not {}", self.utilisation))

    @property
    def room(self) -> float:
        """Bytes for a step on each device."""
        return self.memory * 1e9 * (SHARE_OF_FREE_MEMORY if self.is_this else 1.0)


def this_machine(device: torch.device) -> Machine:
    """Return the devices of torchrun or of a lone process.

    Several processes share all memory of the machine, so that they find the same.
    """
    processes = int(os.environ.get("WORLD_SIZE", 1))
    free = free_memory(device, whole=processes > 1)
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", processes)) if device.type == "cpu" else 1
    memory = float("inf") if free is None else max(1, free // sharing) / 1e9
    return Machine(devices=processes, memory=memory, rate=None, utilisation=None, device=device.type, is_this=True)


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Return the FLOP/s of products of `dtype` on the device (TF32 for float32 on CUDA).

    It is the largest rate within `seconds`, since other jobs only slow a device down.
    """
    return _matmul_rate(device, dtype, seconds, torch.get_num_threads())


@lru_cache
@torch.no_grad()
def _matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float, threads: int) -> float:
    n, products = MATRIX.get(device.type, 1024), PRODUCTS.get(device.type, 1)
    # Not zeros, with which a GPU takes less power and runs faster; not random, to leave the generators' state alone.
    a = torch.linspace(-1, 1, n * n, device=device).view(n, n).to(dtype)
    with arithmetic(device, tf32=True):
        F.linear(a, a)
        best, end = float("inf"), time.monotonic() + seconds
        while best == float("inf") or time.monotonic() < end:
            _wait(device)
            start = time.perf_counter()
            for _ in range(products):
                F.linear(a, a)
            _wait(device)
            best = min(best, time.perf_counter() - start)
    return products * 2 * n**3 / best


def products_in(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context for products of this precision."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and multiplies_bfloat16(device) else "float32"
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine_facts() -> dict[str, Any]:
    """Return facts about this machine for JSON."""
    has = torch_capabilities()
    devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [torch.device("cpu")]
    return {
        "processor": processor_name(),
        "instructions": [name for name in INSTRUCTIONS if has.get(name)],
        "torch": {"version": torch.__version__, "instructions": torch.backends.cpu.get_cpu_capability()},
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in LIMITS if name in os.environ},
        "engine": level.level if (level := library()) else None,
        "devices": {str(each): torch.cuda.get_device_name(each) if each.type == "cuda" else "" for each in devices},
        "chosen": {
            "precision": {str(each): "bfloat16" if multiplies_bfloat16(each) else "float32" for each in devices},
            "attention": "engine" if library() else "torch",
            "compiler": cpp_compiler(),
        },
    }


def machine_rows(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the facts as tables with their titles."""
    chosen, level = found["chosen"], found["engine"]
    limits = " ".join(f"{name}={value}" for name, value in found["environment"].items())
    return {
        "machine": {
            "processor": found["processor"],
            "instructions": ", ".join(found["instructions"]) or "not known",
            "torch": f"{found['torch']['version']}, compiled for {found['torch']['instructions']}",
            "threads": str(found["threads"]),
            "set in the environment": limits or "no limit",
            **{name: called for name, called in found["devices"].items() if called},
        },
        "chosen by it": {
            **{f"precision auto, {device}": name for device, name in chosen["precision"].items()},
            "engine": f"compiled, level {level}" if level else "not compiled: torch attends, NumPy makes archives",
            "compiled blocks": f"by {chosen['compiler']}" if chosen["compiler"] else "none: there is no C++ compiler",
        },
    }
