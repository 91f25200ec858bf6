"""The processor: rates of its matrix products, by which kernels and precisions are chosen.

Measured, since no name tells them: environment variables limit the instructions that a library takes
(ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS), and a library may know one vendor's processors only.
"""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F

from axial_transformers.ops.torch_private import HAS_ONEDNN, onednn_linear

CLEARLY = 1.5
"""Times as fast as the usual kernel that another must be to be taken: a busy machine changes no choice by chance."""
SIDE = 256
"""Of the square matrices: a product takes less than a millisecond, so that some of them are not interrupted."""
ROUNDS = 15
NATIVE_ON_CUDA, COMPILED_ON_CUDA = (8, 0), (7, 0)
"""Compute capabilities from which GPUs multiply bfloat16 (Ampere), and from which triton compiles for them (Volta)."""


@dataclass(frozen=True)
class ProductRates:
    """Operations/s of one thread in products of square matrices."""

    float32: float
    """By the library that torch takes."""
    onednn: float
    """In float32 by oneDNN; 0 where torch comes without it."""
    bfloat16: float
    """Rounded factors, sums in float32."""

    @property
    def onednn_is_faster(self) -> bool:
        """Whether layers in float32 are to be computed by oneDNN."""
        return self.onednn >= CLEARLY * self.float32

    @property
    def onednn_keeps_up(self) -> bool:
        """Whether oneDNN is not clearly slower in float32."""
        return self.onednn * CLEARLY >= self.float32

    @property
    def gain_of_bfloat16(self) -> float:
        """Rate in bfloat16 divided by the rate in float32, of the faster library where that is taken."""
        return self.bfloat16 / (self.onednn if self.onednn_is_faster else self.float32)


@cache
def product_rates() -> ProductRates:
    """The rates of this processor, measured in a tenth of a second when they are first asked for."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):  # not random: the generators' state stays as it is
        single = torch.linspace(-1, 1, SIDE * SIDE, dtype=torch.float32, device="cpu").view(SIDE, SIDE)
        half = single.bfloat16()
        products = {"float32": lambda: F.linear(single, single), "bfloat16": lambda: F.linear(half, half)}
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
    """Whether products in bfloat16 are native on the device, and clearly faster than those in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= NATIVE_ON_CUDA
    return device.type == "cpu" and product_rates().gain_of_bfloat16 >= CLEARLY


def processor_name() -> str:
    """The processor as it calls itself, as far as torch or Python can tell."""
    return torch_capabilities().get("cpu_name") or platform.processor() or platform.machine()


def torch_capabilities() -> dict[str, Any]:
    """Instructions and the name of the processor as torch finds them; empty before torch 2.13."""
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return found


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile takes for a CPU; None where there is none."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", usual))


def why_not_compiled(device: torch.device) -> str | None:
    """Return why torch.compile cannot compile for a device; None if it can."""
    if device.type == "cpu":
        return None if cpp_compiler() else "there is no C++ compiler"
    if device.type != "cuda":
        return None
    if torch.cuda.get_device_capability(device) < COMPILED_ON_CUDA:
        return "triton needs a GPU of compute capability 7.0 or more"
    if find_spec("triton") is None:
        return "triton is not installed"
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    return None if any(map(shutil.which, filter(None, names))) else "triton needs a C compiler, and there is none"


def _least_seconds(calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """The shortest time of each call, after one that does not count; in turns, so that all meet the same load."""
    least = {name: float("inf") for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                least[name] = min(least[name], time.perf_counter() - start)
    return least
