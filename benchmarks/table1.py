"""Table 1 of the paper, measured. JSON on the last line.

python benchmarks/table1.py

- reach: share of a site's past that its logits depend on, by the all-pairs dependency matrix (8x8, weights of scale 1).
- exponent: score and value products of one forward pass over n x n images, n = 16 .. 64, counted by torch's flop
  counter on meta tensors, fitted as a power of the number of sites. Blocks and memories have a fixed size, as in
  their papers.
- waste: those products over the ones that the pattern needs, the price of standard dense operations in place of kernels
  written for the pattern.
- parallel: share of all operations of a decode that run a whole row or more at a time; steps: how many sequential calls
  of a layer stack a 64x64 image takes a site at a time, and a row at a time.
"""

import json
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.baselines import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)
from axial_transformers.baselines.sequence_attention import SequenceAttention
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.dependencies import check, influence
from axial_transformers.models import AxialTransformer, AxialTransformerConfig

COMMON = {"num_values": 16, "dim": 32, "heads": 4, "mlp_ratio": 1.0}
SIZES = (16, 32, 48, 64)
PAPER = {  # full receptive field, attention faster than O(N^2), needs no custom kernels, semi-parallel context
    "Transformer": "yes no yes no",
    "Image Transformer": "no yes yes no",
    "Block Transformer": "no yes yes no",
    "Strided Sparse Transformer": "yes yes no no",
    "Axial Transformer": "yes yes yes yes",
}


def build(name: str, n: int, local: int) -> AxialTransformer:
    """The architecture for n x n images, two to four layers; `local` is the side of the local patterns."""
    size = {"shape": (n, n), **COMMON}
    builders: dict[str, Callable[[], AxialTransformer]] = {
        "Transformer": lambda: AxialTransformer(AxialTransformerConfig(layout="raster", inner_layers=2, **size)),
        "Image Transformer": lambda: ImageTransformer(
            ImageTransformerConfig(inner_layers=2, block=local**2, memory=local**2, **size)
        ),
        "Block Transformer": lambda: BlockTransformer(
            BlockTransformerConfig(inner_layers=2, blocks=((local, local), (local // 2, local * 2)), **size)
        ),
        "Strided Sparse Transformer": lambda: SparseTransformer(SparseTransformerConfig(inner_layers=2, **size)),
        "Axial Transformer": lambda: AxialTransformer(AxialTransformerConfig(outer_layers=2, inner_layers=2, **size)),
    }
    return builders[name]()


def reach(name: str) -> float:
    """Share of the past that logits depend on; asserts that they depend on nothing else."""
    model = build(name, 8, local=4).double()
    randomise(model, torch.Generator().manual_seed(0))
    found = check(influence(model, torch.randint(0, 16, (1, 8, 8, 1))))
    assert found.leaks == 0
    return 1 - found.holes / int(found.past.sum())


def operations(model: AxialTransformer, shape: tuple[int, ...]) -> tuple[int, int]:
    """Operations of one forward pass of one example: of scores and values, and of everything."""
    x, channel = (torch.zeros(size, dtype=torch.int64, device="meta") for size in ((1, *shape, 1), (1,)))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.slice_logits(x, channel)
    by_operation = counter.get_flop_counts()["Global"]
    linear = sum(flops for op, flops in by_operation.items() if "mm" in str(op) and "bmm" not in str(op))
    total = sum(by_operation.values())
    return total - linear, total


def needed(model: AxialTransformer) -> int:
    """Operations of scores and values that the patterns need: two products for each pair that is not masked."""
    pairs, shape = 0, model.layout.shape
    sites = int(np.prod(shape))
    for block in model.modules():
        if isinstance(block, SequenceAttention):
            groups = [block.attended(i) for i in range(sites)]
            pairs += sum(len(places) for each in groups for places in each) * block.heads // len(groups[0])
        elif isinstance(block, AxisAttention):
            length = shape[block.axis + 1]
            pairs += block.heads * (sites // length) * (length * (length + 1) // 2 if block.masked else length**2)
    return pairs * 4 * COMMON["dim"] // COMMON["heads"]


def parallel_share(model: AxialTransformer, n: int) -> float:
    """Share of the operations that decoding runs a row or more at a time: all but the inner decoder and the head."""
    _, total = operations(model, (n, n))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        rows = torch.zeros(1, *model.layout.shape, COMMON["dim"], device="meta")
        model.head(model.inner_decoder(rows))
    return 1 - counter.get_total_flops() / total


def measure(name: str) -> dict[str, float | str]:
    """The figures of one row of the table."""
    counts, waste = [], 0.0
    for n in SIZES:
        with torch.device("meta"):
            model = build(name, n, local=8)
        counts.append(operations(model, (n, n))[0])
        if n == 32:
            waste = counts[-1] / needed(build(name, n, local=8))
    exponent = float(np.polyfit(np.log([n * n for n in SIZES]), np.log(counts), 1)[0])
    return {
        "reach": round(reach(name), 4),
        "exponent": round(exponent, 3),
        "waste": round(waste, 2),
        "parallel": round(parallel_share(model, SIZES[-1]), 3),
        "site_steps": SIZES[-1] ** 2,
        "row_steps": SIZES[-1] if model.outer_decoders else 0,
        "paper": PAPER[name],
    }


def verdict(row: dict[str, float | str]) -> str:
    """The paper's four columns, as measured. No row needs a custom kernel here: that column is the measured waste."""
    answers = (row["reach"] == 1, float(row["exponent"]) < 1.9, True, float(row["parallel"]) > 0)
    return " ".join("yes" if answer else "no" for answer in answers)


def main() -> None:
    """Prints the table and its JSON."""
    rows = {name: measure(name) for name in PAPER}
    table = Table(
        "", "receptive field", "attention, N^", "standard operations", "semi-parallel", title="Table 1, measured"
    )
    for name, row in rows.items():
        field, faster, kernels, parallel = str(row["paper"]).split()
        table.add_row(
            name,
            f"{row['reach']:.0%} ({field})",
            f"{row['exponent']:.2f} ({faster})",
            f"{row['waste']:.2f}x the needed ({kernels})",
            f"{row['parallel']:.0%} ({parallel})",
        )
        row["measured"] = verdict(row)
    Console().print(table, "In brackets: the paper's answer.")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
