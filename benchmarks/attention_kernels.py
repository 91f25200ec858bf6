"""The measurement behind `ops.kernel_choice`: every kernel of attention at every length.

    python benchmarks/attention_kernels.py

Attention along columns; queries, keys and values are the output of one linear layer. All lengths have the same number
of sites, in float32, and in bfloat16 where the processor multiplies it faster. The last line is JSON: a row for each
case, times relative to the fastest kernel, and whether the chosen one takes at most 1.25 times as long.
"""

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from unittest.mock import patch

import torch
from torch import Tensor

from axial_transformers.ops import compiled_attention, torch_attention
from axial_transformers.ops.axial_attention import from_lines, to_lines
from axial_transformers.ops.kernel_choice import compiled_can_run, fused_can_run
from command_line import run_command
from timing import dtypes, interleaved, rows_of

Attend = Callable[[Tensor, int, bool, Tensor | None], Tensor]


def compiled(qkv: Tensor, heads: int, causal: bool, mask: Tensor | None) -> Tensor:
    width = qkv.shape[-1] // 3
    return compiled_attention.attend((qkv,), (heads, width, width, width), 1, causal, mask)


def along_lines(qkv: Tensor, heads: int, causal: bool, mask: Tensor | None) -> Tensor:
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in qkv.chunk(3, dim=-1))
    mask = None if mask is None else mask.mT.flatten(0, 1)
    lines = to_lines(q, 1), to_lines(k, 1), to_lines(v, 1)
    return from_lines(torch_attention.attend(*lines, causal, mask), q, 1)


KERNELS: dict[str, Attend] = {"compiled": compiled, "fused": along_lines, "composed": along_lines}


def once(name: str, qkv: Tensor, heads: int, causal: bool, mask: Tensor | None, grad: bool) -> None:
    fused = None if name == "fused" else "not chosen"
    with torch.set_grad_enabled(grad), patch.object(torch_attention, "fused_can_run", lambda *_: fused):
        out = KERNELS[name](qkv, heads, causal, mask)
        if grad:  # a long line is computed again here, by the same kernel
            torch.autograd.grad(out, qkv, torch.ones_like(out))


def main(
    lengths: tuple[int, ...] = (8, 16, 28, 32, 48, 64, 128, 256, 512, 1024, 2048),
    sites: int = 8192,
    heads: int = 4,
    width: int = 32,
    rounds: int = 7,
    threads: int = 1,
) -> None:
    """Times all kernels forward and forward + backward, whole, causal and ragged."""
    torch.set_num_threads(threads)
    rows = []
    for (dtype_name, dtype), length in rows_of([*product(dtypes().items(), lengths)]):
        count = max(1, sites // length)
        qkv = torch.randn(1, length, count, 3 * heads * width, dtype=dtype).requires_grad_()
        call = qkv.device, dtype, length
        chosen = "fused" if fused_can_run(*call) is None else "composed"
        chosen = "compiled" if compiled_can_run(*call, heads * length * count) is None else chosen
        for kind, grad in product(("whole", "causal", "ragged"), (False, True)):
            mask = torch.rand(1, length, count) > 0.2 if kind == "ragged" else None
            runs = {name: partial(once, name, qkv, heads, kind == "causal", mask, grad) for name in KERNELS}
            times = interleaved(runs, rounds)
            best = min(times.values())
            row = {
                "dtype": dtype_name,
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
    run_command(main)
