"""Operations, time and memory of full, axial and local attention over growing squares: for docs/complexity.md.

    pip install axial-transformers[plots]
    python benchmarks/complexity.py docs/images/complexity.png

Operations are those of the score and value products, counted on paper; time is CPU time of a forward pass, memory the
peak of a process of its own. The last line is JSON: all numbers, and the exponents in the number of sites.
"""

import json
import multiprocessing
from functools import partial
from pathlib import Path
from typing import Annotated

import matplotlib.pyplot as plt
import numpy as np
import torch
import tyro
from torch import nn

from axial_transformers.layers.attention import AxialAttention, FullAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from timing import interleaved, peak_memory

DIM, HEADS, SPAN = 64, 4, 9
SIDES = {"full": (8, 16, 32, 64, 128), "axial": (8, 16, 32, 64, 128), "local": (8, 16, 32, 64, 128)}


def layer(kind: str) -> nn.Module:
    """Attention to all sites ("full"), to a row and then a column ("axial"), or to SPAN sites of both ("local")."""
    if kind == "full":
        return FullAttention(DIM, HEADS)
    if kind == "axial":
        return AxialAttention(DIM, HEADS)
    return nn.Sequential(
        *(PositionSensitiveAxialAttention(DIM, HEADS, axis, span=SPAN, key_dim=DIM) for axis in (1, 2))
    )


def products(kind: str, side: int) -> int:
    """Multiply-adds of the score and value products: 2 DIM for each site and each of its keys."""
    sites = side * side
    return sites * 2 * DIM * {"full": sites, "axial": 2 * side, "local": 2 * SPAN}[kind]


@torch.no_grad()
def forward(kind: nn.Module, x: torch.Tensor) -> None:
    kind(x)


def peak(kind: str, side: int) -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (kind, side))


def _peak(kind: str, side: int) -> int:
    torch.set_num_threads(1)
    module = layer(kind)
    forward(module, torch.randn(1, 4, 4, DIM))
    return peak_memory(partial(forward, module, torch.randn(1, side, side, DIM)))


def exponent(sides: tuple[int, ...], values: list[float]) -> float:
    """The slope of log(values) over log(number of sites)."""
    return round(float(np.polyfit(2 * np.log(sides), np.log(np.maximum(values, 1e-9)), 1)[0]), 2)


def main(out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="plot to write")], rounds: int = 5) -> None:
    """Measures and plots."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {}
    for kind, sides in SIDES.items():
        module = layer(kind)
        seconds = [
            interleaved({kind: partial(forward, module, torch.randn(1, side, side, DIM))}, rounds)[kind]
            for side in sides
        ]
        found[kind] = {
            "multiply-adds": [products(kind, side) for side in sides],
            "seconds": seconds,
            "bytes": [peak(kind, side) for side in sides],
        }
    exponents = {
        kind: {
            "multiply-adds": exponent(SIDES[kind], values["multiply-adds"]),
            "seconds, largest two": exponent(SIDES[kind][-2:], values["seconds"][-2:]),
            "bytes, largest two": exponent(SIDES[kind][-2:], values["bytes"][-2:]),
        }
        for kind, values in found.items()
    }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
    for panel, what in zip(axes, ("multiply-adds", "seconds", "bytes")):
        for kind, values in found.items():
            panel.loglog([side**2 for side in SIDES[kind]], values[what], "o-", label=kind)
        panel.set_xlabel("sites")
        panel.set_title(what)
        panel.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(out, dpi=90)
    print(json.dumps({"sides": SIDES, "found": found, "exponents": exponents}))


if __name__ == "__main__":
    tyro.cli(main)
