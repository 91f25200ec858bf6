"""Table 1 of the paper, measured. JSON on the last line.

    python experiments/table1.py --depths 1 2 3 4

A layer is one transformer block in every row: one attention, of one pattern, and one feedforward block. The Axial
Transformer has one or two of its layers in the inner decoder, and the others, alternating rows and columns, in the
outer one. (Its least model of both axes has three layers; with fewer it is the paper's row-wise model.)

- reach: share of a position's past that its logits depend on, by the all-pairs dependency matrix (weights of scale 1),
  for each depth, on images of several sizes. Blocks and memories have 16 positions on all of them.
- exponent: score and value products of one forward pass over n x n images, n = 16 .. 64, counted by torch's
  formulas on meta tensors, fitted as a power of the number of positions. Blocks and memories have a fixed size, as in
  their papers.
- operators, own_operators: those of a forward and backward pass on meta tensors, where no kernel of this package is
  taken, that the plain Transformer does not have; and those that torch does not come with.
- parallel: share of the FLOPs of a forward pass over 64x64 that decoding runs a whole row or more at a time.

Exponent, operators and parallel are of the largest depth.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from dependencies import check, influence
from of_benchmarks import rows_of, run_command
from sequence_models import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)

COMMON: dict[str, Any] = {"num_values": 16, "dim": 32, "heads": 4, "mlp_ratio": 1.0}
SIZES = (16, 32, 48, 64)
TORCH = {"aten", "prim", "prims"}
META = torch.device("meta")
PAPER = {  # full receptive field, attention faster than O(N^2), needs no custom kernels, semi-parallel context
    "Transformer": "yes no yes no",
    "Image Transformer": "no yes yes no",
    "Block Transformer": "no yes yes no",
    "Strided Sparse Transformer": "yes yes no no",
    "Axial Transformer": "yes yes yes yes",
}


def build(name: str, n: int, local: int, depth: int) -> AxialTransformer:
    """The architecture for n x n images, `depth` layers; `local` is the side of the local patterns."""
    common = {"shape": (n, n), **COMMON}
    sequence = {**common, "inner_layers": depth}
    inner = 2 - depth % 2
    builders: dict[str, Callable[[], AxialTransformer]] = {
        "Transformer": lambda: AxialTransformer(AxialTransformerConfig(layout="raster", **sequence)),
        "Image Transformer": lambda: ImageTransformer(
            ImageTransformerConfig(block=local**2, memory=local**2, **sequence)
        ),
        "Block Transformer": lambda: BlockTransformer(
            BlockTransformerConfig(blocks=((local, local), (local // 2, local * 2)), **sequence)
        ),
        "Strided Sparse Transformer": lambda: SparseTransformer(SparseTransformerConfig(**sequence)),
        "Axial Transformer": lambda: AxialTransformer(
            AxialTransformerConfig(inner_layers=inner, outer_layers=depth - inner, **common)
        ),
    }
    return builders[name]()


def reach(name: str, n: int, local: int, depth: int) -> float:
    """Share of the past that logits depend on; asserts that they depend on nothing else."""
    model = build(name, n, local, depth).double()
    generator = torch.Generator().manual_seed(0)
    randomise(model, generator)
    found = check(influence(model, torch.randint(0, 16, (1, n, n, 1), generator=generator)))
    assert found.leaks == 0
    return 1 - found.holes / int(found.past.sum())


class Operators(TorchDispatchMode):
    """Counts the FLOPs of each operator that runs: those of matrix products, masked scores included, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        self.flops[func.name().split(".")[0]] += formula(*args, out_val=out) if formula else 0
        return out


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The FLOPs by operator."""
    with sdpa_kernel(SDPBackend.MATH), Operators() as counter:
        yield counter.flops


def blank(n: int) -> torch.Tensor:
    """An image without values: int64 [1, n, n, 1] on the meta device."""
    return torch.zeros((1, n, n, 1), dtype=torch.int64, device=META)


def logits(model: AxialTransformer) -> torch.Tensor:
    """One forward pass of one image on the meta device."""
    return model.slice_and_outputs(blank(model.config.shape[0]), torch.zeros(1, dtype=torch.int64, device=META))[1]


def flops(model: AxialTransformer) -> tuple[int, int]:
    """FLOPs of one forward pass of one image: of scores and values, and of everything."""
    with counted() as found:
        logits(model)
    return found["aten::bmm"], found.total()


def operators(model: torch.nn.Module, run: Callable[[], torch.Tensor]) -> set[str]:
    """Names of the operators of a forward and backward pass."""
    with counted() as found:
        run().sum().backward()
    model.zero_grad()
    return set(found)


def sequential(model: AxialTransformer) -> int:
    """FLOPs of the inner decoder and the head in a forward pass: what decoding runs position by position."""
    with counted() as found:
        rows = torch.zeros(1, *model.layout.shape, COMMON["dim"], device=META)
        model.head(model.inner_decoder(rows))
    return found.total()


def measure(name: str, depths: tuple[int, ...], reach_sizes: tuple[int, ...]) -> dict[str, Any]:
    """The metrics of one row of the table."""
    deepest = max(depths)
    counts, models = [], {}
    for n in SIZES:
        with META:
            models[n] = build(name, n, local=8, depth=deepest)
        counts.append(flops(models[n])[0])
    with META:
        plain, drawn = (build(row, SIZES[0], local=8, depth=deepest) for row in ("Transformer", name))
    found = operators(drawn, lambda: logits(drawn))
    return {
        "reach": {n: {depth: round(reach(name, n, 4, depth), 4) for depth in depths} for n in reach_sizes},
        "exponent": round(float(np.polyfit(np.log([n * n for n in SIZES]), np.log(counts), 1)[0]), 3),
        "operators": sorted(found - operators(plain, lambda: logits(plain))),
        "own_operators": sorted(each for each in found if each.split("::")[0] not in TORCH),
        "parallel": round(1 - sequential(models[SIZES[-1]]) / flops(models[SIZES[-1]])[1], 3),
        "paper": PAPER[name],
    }


def verdict(row: dict[str, Any]) -> str:
    """The paper's four columns as measured, the receptive field on the largest images at the largest depth."""
    full = list(list(row["reach"].values())[-1].values())[-1] == 1
    answers = (full, row["exponent"] < 1.9, not row["own_operators"], row["parallel"] > 0)
    return " ".join("yes" if answer else "no" for answer in answers)


def main(
    depths: tuple[int, ...] = (1, 2, 3, 4),
    reach_sizes: tuple[int, ...] = (8, 16),
) -> None:
    """Prints the table and its JSON.

    Args:
        depths: layers of the models, in ascending order.
        reach_sizes: sides of the images of `reach`, multiples of 8, in ascending order.
    """
    rows = {}
    for name in rows_of(PAPER):
        rows[name] = row = measure(name, depths, reach_sizes)
        row["measured"] = verdict(row)
        print(f"{name}: {json.dumps(row)}", flush=True)
    columns = (f"{n}x{n}: {depth}" for n in reach_sizes for depth in depths)
    reached = Table("", *columns, title="Receptive field by image and number of layers")
    table = Table("", "attention, N^", "own operators", "row by row", title="Table 1, measured")
    for name, row in rows.items():
        _, faster, kernels, parallel = row["paper"].split()
        reached.add_row(name, *(f"{share:.0%}" for shares in row["reach"].values() for share in shares.values()))
        table.add_row(
            name,
            f"{row['exponent']:.2f} ({faster})",
            f"{len(row['own_operators'])} ({kernels})",
            f"{row['parallel']:.0%} ({parallel})",
        )
    Console(width=140).print(reached, table, "In brackets: the paper's answer.")
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(main)
