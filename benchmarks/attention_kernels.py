"""The measurement behind the dispatch of attention in `ops`: every kernel at every length.

    python benchmarks/attention_kernels.py

Along the columns of queries, keys and values that lie beside each other, as a layer's linear map leaves them; the
number of sites is held fixed while their lines grow. The last line is JSON: a row a case, times relative to the fastest
kernel, and whether the one that is chosen is within 1.25 of it.
"""

import json
from collections.abc import Callable
from functools import partial

import torch
import tyro
from torch import Tensor

from axial_transformers.ops import compiled_attention as lines
from axial_transformers.ops import torch_attention as kernels
from axial_transformers.ops.axial_attention import from_lines, to_lines
from timing import interleaved

Attend = Callable[[Tensor, int, bool, Tensor | None], Tensor]


def compiled(qkv: Tensor, heads: int, causal: bool, mask: Tensor | None) -> Tensor:
    width = qkv.shape[-1] // 3
    return lines.attend_packed(qkv, heads, (width, width, width), 1, causal, mask)


def by_lines(kernel: kernels.Kernel, qkv: Tensor, heads: int, causal: bool, mask: Tensor | None) -> Tensor:
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in qkv.chunk(3, dim=-1))
    mask = None if mask is None else mask.mT.flatten(0, 1)
    return from_lines(kernel(to_lines(q, 1), to_lines(k, 1), to_lines(v, 1), causal, mask), q, 1)


KERNELS: dict[str, Attend] = {
    "compiled": compiled,
    "fused": partial(by_lines, kernels.fused),
    "composed": partial(by_lines, kernels.composed),
    "blocked": partial(by_lines, kernels.blocked),
}


def once(attend: Attend, qkv: Tensor, heads: int, causal: bool, mask: Tensor | None, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        out = attend(qkv, heads, causal, mask)
    if grad:
        torch.autograd.grad(out, qkv, torch.ones_like(out))


def main(sites: int = 8192, heads: int = 4, width: int = 32, rounds: int = 7, threads: int = 1) -> None:
    """Times all kernels forward and forward + backward, whole, causal and ragged."""
    torch.set_num_threads(threads)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for length in (8, 16, 28, 32, 48, 64, 128, 256, 512, 1024, 2048):
            count = max(1, sites // length)
            qkv = torch.randn(1, length, count, 3 * heads * width, dtype=dtype).requires_grad_()
            suits = lines.suits(qkv.shape[:-1], heads, 1, dtype, qkv.device)
            chosen = "compiled" if suits else kernels.choose("cpu", dtype, length).__name__
            for kind in ("whole", "causal", "ragged"):
                mask = torch.rand(1, length, count) > 0.2 if kind == "ragged" else None
                for grad in (False, True):
                    runs = {
                        name: partial(once, attend, qkv, heads, kind == "causal", mask, grad)
                        for name, attend in KERNELS.items()
                    }
                    times = interleaved(runs, rounds)
                    best = min(times.values())
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
