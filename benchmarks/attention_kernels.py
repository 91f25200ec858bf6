"""The measurement behind the table in `axial_transformers.ops.kernels.choose`: every kernel at every length.

    python benchmarks/attention_kernels.py

The number of sites is held fixed while their lines grow. The last line is JSON: a row a case, times relative to the
fastest kernel, and whether the table's choice is within 1.25 of it.
"""

import json
from functools import partial

import torch
import tyro

from axial_transformers.ops import kernels
from timing import interleaved

KERNELS = {"fused": kernels.fused, "composed": kernels.composed, "blocked": kernels.blocked}


def once(kernel: kernels.Kernel, qkv: list[torch.Tensor], causal: bool, mask: torch.Tensor | None, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        out = kernel(*qkv, causal, mask)
    if grad:
        torch.autograd.grad(out, qkv, torch.ones_like(out))


def main(sites: int = 8192, heads: int = 4, width: int = 32, rounds: int = 7, threads: int = 1) -> None:
    """Times all kernels forward and forward + backward, whole, causal and ragged."""
    torch.set_num_threads(threads)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for length in (8, 16, 28, 32, 48, 64, 128, 256, 512, 1024, 2048):
            lines = max(1, sites // length)
            qkv = [torch.randn(lines, heads, length, width, dtype=dtype).requires_grad_() for _ in range(3)]
            for kind in ("whole", "causal", "ragged"):
                mask = torch.rand(lines, length) > 0.2 if kind == "ragged" else None
                for grad in (False, True):
                    runs = {name: partial(once, k, qkv, kind == "causal", mask, grad) for name, k in KERNELS.items()}
                    times = interleaved(runs, rounds)
                    best = min(times.values())
                    chosen = kernels.choose("cpu", dtype, length).__name__
                    row = {
                        "dtype": str(dtype).removeprefix("torch."),
                        "length": length,
                        "mask": kind,
                        "grad": grad,
                        **{name: round(seconds / best, 2) for name, seconds in times.items()},
                        "ms": round(best * 1e3, 2),
                        "chosen": chosen,
                        "fits": times[chosen] <= 1.25 * best,
                    }
                    print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                    rows.append(row)
    print(json.dumps({"torch": torch.__version__, "threads": threads, "rows": rows}))


if __name__ == "__main__":
    tyro.cli(main)
