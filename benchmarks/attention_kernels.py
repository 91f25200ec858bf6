"""The measurement behind `ops.backends`: every backend of attention at every length.

    python benchmarks/attention_kernels.py

Attention along columns; queries, keys and values are the output of one linear layer. All lengths have the same number
of positions, in float32, and in bfloat16 where the processor multiplies it faster. The last line is JSON: a row for
each case, times relative to the fastest kernel, and whether the chosen one takes at most 1.25 times as long.
"""

import json
from functools import partial
from itertools import product

import torch
from torch import Tensor

from axial_transformers.ops import compiled_attention, composed_attention, fused_attention
from axial_transformers.ops.attention_call import AttentionCall, packed_call
from axial_transformers.ops.backends import Backend, choose
from command_line import run_command
from timing import dtypes, interleaved, rows_of

BACKENDS: dict[str, Backend] = {
    "compiled": compiled_attention,
    "fused": fused_attention,
    "composed": composed_attention,
}


def call_of(qkv: Tensor, heads: int, causal: bool, mask: Tensor | None) -> AttentionCall:
    width = qkv.shape[-1] // 3
    return packed_call(qkv, (heads, width, width, width), 1, causal, mask)


def once(backend: Backend, qkv: Tensor, heads: int, causal: bool, mask: Tensor | None, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        out = backend.run(call_of(qkv, heads, causal, mask))
    if grad:
        torch.autograd.grad(out, qkv, torch.ones_like(out))


def main(
    lengths: tuple[int, ...] = (8, 16, 28, 32, 48, 64, 128, 256, 512, 1024, 2048),
    positions: int = 8192,
    heads: int = 4,
    width: int = 32,
    rounds: int = 7,
    threads: int = 1,
) -> None:
    """Times all kernels forward and forward + backward, whole, causal and ragged."""
    torch.set_num_threads(threads)
    rows = []
    for (dtype_name, dtype), length in rows_of([*product(dtypes().items(), lengths)]):
        count = max(1, positions // length)
        qkv = torch.randn(1, length, count, 3 * heads * width, dtype=dtype).requires_grad_()
        taken = choose(call_of(qkv, heads, False, None))
        chosen = next(name for name, backend in BACKENDS.items() if backend is taken)
        for kind, grad in product(("whole", "causal", "ragged"), (False, True)):
            mask = torch.rand(1, length, count) > 0.2 if kind == "ragged" else None
            runs = {
                name: partial(once, backend, qkv, heads, kind == "causal", mask, grad)
                for name, backend in BACKENDS.items()
            }
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
