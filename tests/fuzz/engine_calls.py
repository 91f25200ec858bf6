"""Random calls of the engine from Python: each gives the bits of the reference, or a ValueError. No signal ends it.

    python -m tests.fuzz.engine_calls 20000 [SEED]

Sizes are small and often do not fit each other. Some numbers are infinite, NaN or subnormal.
"""

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

from axial_transformers.engine import (
    MASKED,
    MIN_STATE,
    NO_CENTRING,
    Block,
    Known,
    Line,
    Linear,
    Lstm,
    Norm,
    Output,
    Stream,
    network,
    reference,
)

HARD = np.array([np.inf, -np.inf, np.nan, 1e-40, 3e38, -0.0], np.float32)


class Draw:
    """Random arrays, a few of which are of another size than is asked for."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def size(self, most: int) -> int:
        return int(self.rng.integers(1, most + 1))

    def seldom(self) -> bool:
        return bool(self.rng.random() < 0.01)

    def floats(self, *shape: int) -> np.ndarray:
        shape = tuple(max(1, size + int(self.rng.integers(-1, 2))) if self.seldom() else size for size in shape)
        x = self.rng.standard_normal(shape).astype(np.float32)
        if x.size and self.seldom():
            x.flat[self.rng.integers(x.size)] = self.rng.choice(HARD)
        return x

    def linear(self, inputs: int, outputs: int) -> Linear:
        return Linear(self.floats(inputs, outputs), self.floats(outputs))

    def norm(self, dim: int) -> Norm:
        return Norm(self.floats(dim), self.floats(dim))

    def block(self, dim: int, heads: int, hidden: int, length: int) -> Block:
        turns = (
            self.floats(length, dim // heads) if self.rng.random() < 0.3 else np.zeros((0, dim // heads), np.float32)
        )
        return Block(self.norm(dim), self.linear(dim, 3 * dim), turns, self.linear(dim, dim), self.norm(dim),
                     self.linear(dim, hidden), self.linear(hidden, dim))  # fmt: skip


def dense(draw: Draw) -> Callable[..., list[np.ndarray]]:
    layer, x = draw.linear(draw.size(40), draw.size(140)), draw.floats(draw.size(60), draw.size(40))
    if not draw.seldom():
        x = draw.floats(len(x), len(layer.weight))
    return lambda arithmetic: [arithmetic.Dense(layer)(x)]


def slabs(draw: Draw) -> Callable[..., list[np.ndarray]]:
    heads = draw.size(3)
    dim, hidden, length = heads * 2 * draw.size(9), draw.size(40), draw.size(4)
    across, along = draw.size(5), draw.size(3)
    lines = [MASKED, Line(across, along), Line(along, 1)][: draw.size(3)]
    blocks = [draw.block(dim, heads, hidden, max(length, across, along)) for _ in lines]
    examples, positions = draw.size(6), across * along
    inputs = [draw.floats(examples * positions, dim) for _ in range(length)]
    context, values = (
        draw.floats(examples * length * positions, dim),
        draw.rng.integers(0, 5, examples * length * positions),
    )
    table = draw.floats(5 if not draw.seldom() else 4, dim)

    def run(arithmetic) -> list[np.ndarray]:
        layers, upper = arithmetic.Slabs(blocks, heads, lines), context.copy()
        state = layers.start(examples * positions, length, positions)
        found = [layers.step(u.copy(), i, state) for i, u in enumerate(inputs)]
        layers.add_upper(upper, values, table, length, positions)
        return [*found, upper]

    return run


def rows(draw: Draw) -> Callable[..., list[np.ndarray]]:
    heads, count = draw.size(3), draw.size(30) + 1
    dim, length, batch = heads * 2 * draw.size(9), draw.size(5), draw.size(30)
    inner = [draw.block(dim, heads, draw.size(40), length)]
    if draw.rng.random() < 0.3:
        heads, inner = 0, Lstm(draw.norm(dim), draw.linear(dim, 4 * dim), draw.linear(dim, 4 * dim))
    output = Output(draw.norm(dim), draw.linear(dim, count), draw.floats(count, dim))
    context = draw.floats(batch, length, dim)
    known = draw.rng.integers(0, count + draw.seldom(), (batch, length))
    words = draw.rng.integers(0, 1 << 32, draw.size(9), dtype=np.uint32)

    def run(arithmetic) -> list[np.ndarray]:
        held = arithmetic.Rows(inner, heads, output)
        nats, intervals = np.zeros(known.shape, np.float32), np.zeros((*known.shape, 2), np.int64)
        held.take_known(context, Known(known, nats, intervals))
        read, stream = np.zeros_like(known), Stream(words, np.array([MIN_STATE + 12345, 0, 0]))
        held.read(context, NO_CENTRING, read, stream)
        damaged = stream.state[2] != 0  # then what was read means nothing
        return [nats, intervals, *([] if damaged else [read, stream.state])]

    return run


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != np.float32:
        return np.array_equal(a, b)
    return a.shape == b.shape and bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def main(count: int, seed: int = 0) -> Counter[str]:
    """Make the calls, and count how they end."""
    ends, draw = Counter[str](), Draw(seed)
    for number in range(count):
        make = (dense, slabs, rows)[number % 3]
        run = make(draw)
        try:
            found = run(network)
        except ValueError:
            ends[f"{make.__name__}: ValueError"] += 1
            continue
        with np.errstate(all="ignore"):
            expected = run(reference)
        if len(found) != len(expected) or not all(map(same, found, expected)):
            raise AssertionError(f"call {number} of seed {seed}, {make.__name__}, differs from the reference")
        ends[f"{make.__name__}: equal"] += 1
    return ends


if __name__ == "__main__":
    print(dict(main(*map(int, sys.argv[1:]))))
