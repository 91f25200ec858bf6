"""Measured speeds of matrix products: environment variables limit a library's instructions."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from axial_transformers.ops.torch_private import HAS_ONEDNN, onednn_linear

CLEARLY = 1.5
"""Least speedup that changes a choice, despite load."""
SIDE = 256
ROUNDS = 15
NATIVE_ON_CUDA = 8, 0
"""Compute capability of Ampere."""


@dataclass(frozen=True)
class ProductRates:
    """FLOPs per second of one thread."""

    float32: float
    onednn: float
    """0 where torch lacks oneDNN."""

    @property
    def onednn_is_faster(self) -> bool:
        return self.onednn >= CLEARLY * self.float32

    @property
    def onednn_keeps_up(self) -> bool:
        return self.onednn * CLEARLY >= self.float32


@cache
def product_rates() -> ProductRates:
    """Measure the rates of this CPU once, for a tenth of a second."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):  # not random: leaves the generators alone
        single = torch.linspace(-1, 1, SIDE * SIDE, dtype=torch.float32, device="cpu").view(SIDE, SIDE)
        products = {"float32": lambda: F.linear(single, single)}
        if HAS_ONEDNN:
            products["onednn"] = lambda: onednn_linear(single, single, None)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            seconds = _least_seconds(products)
        finally:
            torch.set_num_threads(threads)
    return ProductRates(**{"onednn": 0.0} | {name: 2 * SIDE**3 / took for name, took in seconds.items()})


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return True if the device has instructions for products in bfloat16, and oneDNN may use them."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= NATIVE_ON_CUDA
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "DEFAULT"
    usable = any(word in allowed.upper() for word in ("DEFAULT", "ALL", "BF16", "FP16", "AMX"))
    return device.type == "cpu" and usable and bool(torch_capabilities().get("avx512_bf16"))


def processor_name() -> str:
    """Return the CPU's own name."""
    return torch_capabilities().get("cpu_name") or platform.processor() or platform.machine()


def torch_capabilities() -> dict[str, Any]:
    """Return the CPU's instructions and name; empty before torch 2.13."""
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return found


def cpp_compiler() -> str | None:
    """Return torch.compile's C++ compiler, or None."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", usual))


@cache
def why_not_compiled(device: torch.device) -> str | None:
    """Return why torch.compile fails on a device, or None: it compiles an addition, to see whether it can."""
    try:
        with torch.no_grad():
            torch.compile(_add_one)(torch.zeros(2, device=device))
    except Exception as error:  # a compiler, a header, triton: whatever is missing, torch or triton says it
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        return f"torch.compile fails on {device} ({type(error).__name__}: {said[:200]})"
    return None


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _least_seconds(calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """Time each call, in turns: all meet the same load."""
    least = {name: float("inf") for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                least[name] = min(least[name], time.perf_counter() - start)
    return least
