"""Multiply-adds, time and memory of full, axial and local attention: for docs/explanation/complexity.md.

    python benchmarks/complexity.py
    pip install axial-transformers[plots]
    python benchmarks/complexity.py docs/images/complexity.png

Without a picture to write, FLOPs only: those of the score and value products, counted by torch's flop counter on
meta tensors, for grids of 1 to 4 equal axes. With one, time and memory over squares besides: time is CPU time of a
forward pass, memory the peak of a process of its own. The last line is JSON: all numbers, and the exponents in the
number of positions.
"""

import json
import multiprocessing
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.layers.attention import AxialAttention, FullAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from command_line import run_command
from timing import interleaved, peak_memory, rows_of

DIM, HEADS, WINDOW = 64, 4, 9
KINDS = ("full", "axial", "local")
SQUARES = (8, 16, 32, 64, 128)
SIDES = {1: (64, 256, 1024, 4096, 16384), 2: (16, 32, 64, 128), 3: (10, 16, 24, 32), 4: (10, 12, 14, 16)}
"""Lengths of the axes, by the number of axes; all longer than WINDOW."""


def layer(kind: str, axes: int = 2) -> nn.Module:
    """Attention to all positions ("full"), or to each axis in turn: all ("axial"), or WINDOW positions ("local")."""
    if kind == "full":
        return FullAttention(DIM, HEADS)
    if kind == "axial":
        return AxialAttention(DIM, HEADS, axes=range(1, axes + 1))
    return nn.Sequential(
        *(PositionSensitiveAxialAttention(DIM, HEADS, axis, span=WINDOW, key_dim=DIM) for axis in range(1, axes + 1))
    )


def products(kind: str, sides: Sequence[int]) -> int:
    """Multiply-adds of the score and value products of one forward pass over a grid, counted while it runs."""
    with torch.device("meta"):
        module, x = layer(kind, len(sides)), torch.zeros(1, *sides, DIM)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    counts = counter.get_flop_counts()["Global"]
    return sum(flops for op, flops in counts.items() if "bmm" in str(op)) // 2


@torch.no_grad()
def forward(module: nn.Module, x: torch.Tensor) -> None:
    module(x)


def peak(kind: str, side: int) -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (kind, side))


def _peak(kind: str, side: int) -> int:
    torch.set_num_threads(1)
    module = layer(kind)
    small = 48 if side > 48 else 4
    forward(module, torch.randn(1, small, small, DIM))  # loads the libraries that the size takes
    return peak_memory(partial(forward, module, torch.randn(1, side, side, DIM)))


def seconds(kind: str, side: int, rounds: int) -> float:
    run = partial(forward, layer(kind), torch.randn(1, side, side, DIM))
    return interleaved({kind: run}, rounds)[kind]


def exponent(positions: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log(values) over log(number of positions)."""
    return round(float(np.polyfit(np.log(positions), np.log(np.maximum(values, 1e-9)), 1)[0]), 2)


def counted(axes: int) -> dict[str, Any]:
    """Multiply-adds over grids of so many equal axes, their exponents in the number of positions, and that of full
    attention's over axial attention's, the savings."""
    sides = SIDES[axes]
    positions = [side**axes for side in sides]
    found = {kind: [products(kind, (side,) * axes) for side in sides] for kind in KINDS}
    savings = [full / axial for full, axial in zip(found["full"], found["axial"])]
    exponents = {kind: exponent(positions, values) for kind, values in found.items()}
    return {
        "sides": sides,
        "multiply-adds": found,
        "exponents": {**exponents, "savings": exponent(positions, savings)},
        "savings, largest": round(savings[-1], 1),
    }


def measured(out: Path, rounds: int) -> dict[str, Any]:
    """Operations, time and memory over squares, and a plot of them."""
    import matplotlib.pyplot as plt

    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {
        what: {kind: [] for kind in KINDS} for what in ("multiply-adds", "seconds", "bytes")
    }
    for kind, side in rows_of([*product(KINDS, SQUARES)]):
        values = products(kind, (side, side)), seconds(kind, side, rounds), peak(kind, side)
        print(kind, side, *values, flush=True)
        for of_kind, value in zip(found.values(), values):
            of_kind[kind].append(value)
    positions = [side**2 for side in SQUARES]
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6))
    for panel, (what, of_kind) in zip(panels, found.items()):
        for kind in KINDS:
            panel.loglog(positions, of_kind[kind], "o-", label=kind)
        panel.set_xlabel("positions")
        panel.set_title(what)
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(out, dpi=90)
    largest = {
        what: {kind: exponent(positions[-2:], values[kind][-2:]) for kind in KINDS} for what, values in found.items()
    }
    return {**found, "exponents, largest two": largest}


def main(out: Annotated[Path | None, Parameter(help="plot to write")] = None, rounds: int = 5) -> None:
    """Counts FLOPs, and where a plot is wanted measures time and memory."""
    result: dict[str, Any] = {"axes": {axes: counted(axes) for axes in SIDES}}
    table = Table(
        "axes", "full", "axial", "local", "full / axial", title="Exponents in the number of positions, counted"
    )
    for axes, found in result["axes"].items():
        table.add_row(str(axes), *(f"{value:.2f}" for value in found["exponents"].values()))
    Console().print(table)
    if out:
        result["squares"] = measured(out, rounds)
    print(json.dumps(result))


if __name__ == "__main__":
    run_command(main)
