"""What this machine has and can do: instructions, free memory, the arithmetic of its GPU."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

CPU = torch.device("cpu")
MEMORY = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")
INSTRUCTIONS = ("avx2", "avx512_f", "avx512_bf16", "avx512_fp16", "amx_bf16", "neon", "sve", "bf16")
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "AXIAL_CPU", "OMP_NUM_THREADS", "GOMP_SPINCOUNT")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return True if the device has instructions for products in bfloat16, and oneDNN may use them."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "DEFAULT"
    usable = re.search("DEFAULT|ALL|BF16|FP16|AMX", allowed.upper())
    return device.type == "cpu" and bool(usable and torch.cpu.get_capabilities().get("avx512_bf16"))


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
        first_line = str(error).strip().partition("\n")[0]
        return f"torch.compile fails on {device} ({type(error).__name__}: {first_line[:200]})"
    return None


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@contextmanager
def arithmetic(device: torch.device, *, tf32: bool, deterministic: bool = False) -> Iterator[None]:
    """Set the arithmetic of CUDA within a context; do nothing on a CPU.

    Args:
        tf32: round factors of float32 products to TF32. By default, torch does so in LSTMs and convolutions only.
        deterministic: use algorithms that repeat their bits. Matrix products also need CUBLAS_WORKSPACE_CONFIG=:4096:8
            from the start of the process.
    """
    if device.type != "cuda":
        yield
        return
    backends: Any = torch.backends
    settings = backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.rnn, backends.cudnn.conv
    precisions = [setting.fp32_precision for setting in settings]
    before_deterministic = torch.are_deterministic_algorithms_enabled()
    named = "highest"
    with suppress(RuntimeError):  # the newer settings may have no former name
        named = torch.get_float32_matmul_precision()
    try:
        # The former name sets the newer one too. Inductor raises where only the newer is set (pytorch#166387).
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        for setting in (backends.cudnn.rnn, backends.cudnn.conv):
            setting.fp32_precision = "tf32" if tf32 else "ieee"
        torch.use_deterministic_algorithms(deterministic or before_deterministic)
        yield
    finally:
        torch.use_deterministic_algorithms(before_deterministic)
        torch.set_float32_matmul_precision(named)
        for setting, precision in zip(settings, precisions):
            setting.fp32_precision = precision


def free_memory(device: torch.device = CPU) -> int | None:
    """Return the bytes that this process can still take; None: not known."""
    if device.type == "cuda":  # the allocator reuses what it keeps
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    limits = []
    with suppress(OSError):  # macOS and Windows
        limits.append(_table(MEMORY)["MemAvailable:"] * 1024)
    with suppress(OSError, ValueError):  # no control group, or "max": no limit
        most = int((CONTROL_GROUP / "memory.max").read_text(encoding="utf-8"))
        used = int((CONTROL_GROUP / "memory.current").read_text(encoding="utf-8"))
        limits.append(most - used + _table(CONTROL_GROUP / "memory.stat").get("inactive_file", 0))
    with suppress(OSError, ImportError):
        import resource  # Windows has no such module

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            limits.append(limit - pages * resource.getpagesize())
    return max(0, min(limits)) if limits else None


def _table(path: Path) -> dict[str, int]:
    """Return the numbers that follow the first words of lines."""
    rows = map(str.split, path.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in rows if len(words) > 1}


def machine_facts() -> dict[str, str]:
    """Return facts about this machine, as rows (name, value)."""
    has = torch.cpu.get_capabilities()
    facts = {
        "processor": has.get("cpu_name") or platform.processor() or platform.machine(),
        "instructions": ", ".join(name for name in INSTRUCTIONS if has.get(name)) or "not known",
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        "torch": f"{torch.__version__}, compiled for {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "limits": " ".join(f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ) or "none",
    }
    devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    for device in devices:
        facts[str(device)] = torch.cuda.get_device_name(device)
    for device in devices or [CPU]:
        facts[f"precision auto, {device}"] = "bfloat16" if multiplies_bfloat16(device) else "float32"
    facts["C++ compiler"] = cpp_compiler() or "none: blocks are not compiled"
    return facts
