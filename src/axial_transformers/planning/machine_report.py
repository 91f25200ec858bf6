"""The machine as axial inspect --machine prints it: what was found, what was measured, and what is chosen by it."""

import os
from dataclasses import asdict
from typing import Any

import torch

from axial_transformers.kernels import compiled_for
from axial_transformers.ops.kernel_choice import HAS_NUMBA
from axial_transformers.ops.linear import onednn_adds_biases, onednn_is_faster
from axial_transformers.ops.processor import (
    cpp_compiler,
    multiplies_bfloat16,
    processor_name,
    product_rates,
    torch_capabilities,
)
from axial_transformers.planning.operations import engineering

INSTRUCTIONS = ("avx2", "avx512_f", "avx512_bf16", "avx512_fp16", "amx_bf16", "neon", "sve", "bf16")
"""Those that matter here, as torch calls them."""
LIMITS = (
    "ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
)  # fmt: skip
"""Environment variables that limit instructions and threads."""


def facts() -> dict[str, Any]:
    """Facts about this machine, as JSON holds them: rates in operations/s of one thread."""
    has = torch_capabilities()
    devices = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [torch.device("cpu")]
    rates = product_rates()
    return {
        "processor": processor_name(),
        "instructions": [name for name in INSTRUCTIONS if has.get(name)],
        "torch": {"version": torch.__version__, "instructions": torch.backends.cpu.get_cpu_capability()},
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in LIMITS if name in os.environ},
        "kernels": _kernels() if HAS_NUMBA else None,
        "products": asdict(rates),
        "devices": {str(each): torch.cuda.get_device_name(each) if each.type == "cuda" else "" for each in devices},
        "chosen": {
            "precision": {str(each): "bfloat16" if multiplies_bfloat16(each) else "float32" for each in devices},
            "linear": "oneDNN" if onednn_is_faster() else "torch",
            "linear with a bias": "oneDNN" if onednn_is_faster() or onednn_adds_biases() else "torch",
            "attention": "compiled" if HAS_NUMBA else "torch",
            "compiler": cpp_compiler(),
        },
    }


def _kernels() -> dict[str, Any]:
    target = compiled_for()
    return {"processor": target.processor, "vector_bits": target.vector_bits, "tile": [*target.tile]}


def rows(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The same as text: tables with their titles."""
    rates, chosen, kernels = found["products"], found["chosen"], found["kernels"]
    limits = " ".join(f"{name}={value}" for name, value in found["environment"].items())
    gain = product_rates().gain_of_bfloat16
    products = {"float32, by torch": "float32", "float32, by oneDNN": "onednn", "bfloat16": "bfloat16"}
    compiled = "for {processor}, vectors of {vector_bits} bits, tiles of {tile[0]} x {tile[1]} sums"
    return {
        "machine": {
            "processor": found["processor"],
            "instructions": ", ".join(found["instructions"]) or "not known",
            "torch": f"{found['torch']['version']}, compiled for {found['torch']['instructions']}",
            "threads": str(found["threads"]),
            "set in the environment": limits or "no limit",
            **{name: called for name, called in found["devices"].items() if called},
        },
        "matrix products of one thread, measured": {
            title: f"{engineering(rates[name])}FLOP/s" for title, name in products.items()
        },
        "chosen by it": {
            **{f"precision auto, {device}": name for device, name in chosen["precision"].items()},
            "bfloat16 on the CPU": f"{gain:.2g} times as fast as float32",
            "linear layers, float32": f"{chosen['linear']}; with a bias {chosen['linear with a bias']}",
            "kernels of attention, decoding": compiled.format(**kernels) if kernels else "torch's: numba is missing",
            "compiled blocks": f"by {chosen['compiler']}" if chosen["compiler"] else "none: there is no C++ compiler",
        },
    }
