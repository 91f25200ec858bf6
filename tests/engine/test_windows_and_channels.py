"""Gated convolutions and positions of several values: equal bits from C and its reference, and what they may read."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch

from axial_transformers.engine import network, reference
from axial_transformers.engine.definition import (
    COEFFICIENT_BITS,
    GROUP,
    LEVELS,
    MASKED,
    Attention,
    Categorical,
    Centring,
    Convolution,
    Features,
    Feedforward,
    Head,
    Known,
    Layer,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    RowSampling,
    level_scales,
)
from axial_transformers.models.values.ordinal import Mixture
from tests.engine.levels import door, levels
from tests.engine.test_exact_arithmetic import assert_read_back, assert_same_bits, random_numbers
from tests.engine.test_ordinal_arithmetic import features_of

D, HEADS, HIDDEN, V = 20, 2, 13, 11
"""Sizes that are no multiples of what C takes at once."""


def random_linear(inputs: int, outputs: int, seed: int) -> Linear:
    weight = random_numbers(inputs, outputs, seed=seed + 7 * inputs + outputs) / np.float32(inputs**0.5)
    return Linear(weight.astype(np.float32), random_numbers(outputs, seed=seed) / 8)


def random_norm(seed: int) -> Norm:
    return Norm(1 + random_numbers(D, seed=seed) / 8, random_numbers(D, seed=seed + 1) / 8)


def convolution(seed: int, near: int, reach: int) -> Convolution:
    """Return a convolution that takes `near` neighbours in each of reach + 1 slabs."""
    layers = random_linear((reach + 1) * near * D, 2 * HIDDEN, seed), random_linear(HIDDEN, D, seed + 1)
    return Convolution(random_norm(seed), *layers)


def feedforward(seed: int) -> Feedforward:
    hidden = HIDDEN + 30
    return Feedforward(random_norm(seed), random_linear(D, hidden, seed), random_linear(hidden, D, seed + 1))


def attention(seed: int, line: Line = MASKED) -> Attention:
    no_rotations = np.zeros((0, D // HEADS), np.float32)
    return Attention(
        random_norm(seed), random_linear(D, 3 * D, seed), no_rotations, random_linear(D, D, seed + 1), line
    )


def neighbours_of(shape: tuple[int, ...], reach: int = 1) -> np.ndarray:
    """Return the neighbours [positions, (2 reach + 1)^axes] of positions in a slab, the last axis fastest."""
    padded = np.pad(np.arange(np.prod(shape, dtype=int)).reshape(shape), reach, constant_values=-1)
    width = 2 * reach + 1
    corners = [padded[tuple(slice(at, at + size) for at, size in zip(corner, shape))].ravel()
               for corner in product(range(width), repeat=len(shape))]  # fmt: skip
    return np.stack(corners, axis=1)


class Stack(NamedTuple):
    """Layers of an outer decoder, and the slabs that they take."""

    length: int
    neighbours: np.ndarray
    layers: list[Layer]

    def of(self, arithmetic):
        return arithmetic.Slabs(self.layers, HEADS, self.neighbours)


def stacks() -> dict[str, Stack]:
    square, pair, alone = neighbours_of((5, 2)), neighbours_of((2,)), neighbours_of((1,), reach=0)
    wide = neighbours_of((17,))
    beside = [
        *(attention(1, Line(2, 1)), convolution(2, 9, 1), feedforward(3)),
        *(feedforward(5), convolution(6, 9, 2), attention(4, Line(5, 2)), convolution(7, 9, 0)),
        *(convolution(9, 9, 1), attention(8)),
    ]
    return {
        "3x5x2": Stack(3, square, beside),
        "5x2": Stack(5, pair, [attention(1), *[convolution(2, 3, 2)] * 2, attention(1, Line(2, 1))]),
        "1x17": Stack(1, wide, [attention(1, Line(17, 1)), convolution(2, 3, 1)]),
        "4x17": Stack(4, wide, [attention(1, Line(17, 1)), convolution(2, 3, 1), attention(3)]),
        "17x1": Stack(17, alone, [convolution(2, 1, 2), attention(1), convolution(3, 1, 1)]),
        "3x2 without attention": Stack(3, pair, [convolution(2, 3, 1)]),
    }


EVERY_STACK = pytest.mark.parametrize("stack", [pytest.param(stack, id=name) for name, stack in stacks().items()])


def stepped(layers, stack: Stack, slabs: np.ndarray) -> np.ndarray:
    """Return the output for inputs [slabs, rows, D], slab by slab."""
    state = layers.start(slabs.shape[1], stack.length, len(stack.neighbours))
    return np.stack([layers.step(slab, i, state) for i, slab in enumerate(slabs)])


def upper(layers, stack: Stack, context: np.ndarray, codes: np.ndarray, kind) -> np.ndarray:
    added = context.copy()
    layers.add_upper(added, codes, kind, stack.length, len(stack.neighbours))
    return added


@EVERY_STACK
@pytest.mark.parametrize("examples", [1, 7])
def test_windows_across_slabs_equal_their_reference(stack, examples):
    positions = len(stack.neighbours)
    slabs = random_numbers(stack.length, examples * positions, D)
    outputs = [stepped(stack.of(arithmetic), stack, slabs) for arithmetic in (reference, network)]
    assert_same_bits([outputs[0]], [outputs[1]])
    context = random_numbers(examples * stack.length * positions, D)
    codes = np.random.default_rng(1).integers(0, V, (len(context), 1))
    kind = Categorical(random_numbers(V, D))
    known = [upper(stack.of(arithmetic), stack, context, codes, kind) for arithmetic in (reference, network)]
    assert_same_bits([known[0]], [known[1]])


@EVERY_STACK
def test_slab_by_slab_equals_all_slabs_at_once(stack):
    """With more rows than go through the layers together."""
    positions = len(stack.neighbours)
    examples = 1500 // (stack.length * positions)
    context = random_numbers(examples, stack.length, positions, D)
    codes = np.random.default_rng(1).integers(0, V, context.shape[:3])
    kind = Categorical(random_numbers(V, D))
    slabs = (context + kind.table[codes]).swapaxes(0, 1).reshape(stack.length, -1, D)
    layers = stack.of(network)
    found = stepped(layers, stack, slabs).reshape(stack.length, examples, positions, D).swapaxes(0, 1)
    expected = context.copy()
    expected[:, 1:] += found[:, :-1]
    known = upper(layers, stack, context.reshape(-1, D), codes.reshape(-1, 1), kind)
    assert_same_bits([expected.reshape(-1, D)], [known])


@EVERY_STACK
def test_examples_do_not_change_each_other(stack):
    slabs = random_numbers(stack.length, 6 * len(stack.neighbours), D)
    together = stepped(stack.of(network), stack, slabs)
    alone = slabs[:, : len(stack.neighbours)]
    assert_same_bits([stepped(stack.of(network), stack, alone)], [together[:, : len(stack.neighbours)].copy()])


def test_a_window_has_slabs_from_the_oldest_and_in_each_the_neighbours_with_zeros_outside():
    neighbours = neighbours_of((2, 3))
    slabs = random_numbers(2, 12, D)
    found = reference.windows([*slabs], neighbours).reshape(2, 2, 3, 2, 3, 3, D)
    grid = slabs.reshape(2, 2, 2, 3, D)
    for example, row, column, slab, down, right in np.ndindex(2, 2, 3, 2, 3, 3):
        at = row + down - 1, column + right - 1
        inside = 0 <= at[0] < 2 and 0 <= at[1] < 3
        expected = grid[slab, example, *at] if inside else np.zeros(D)
        assert np.array_equal(found[example, row, column, slab, down, right], expected)


def test_a_convolution_is_what_its_definition_says():
    """In float64, along slabs of one position."""
    layer = convolution(2, 1, 2)
    stack = Stack(5, neighbours_of((1,), reach=0), [layer])
    slabs = random_numbers(5, 1, D)
    normed = (slabs - slabs.mean(-1, keepdims=True)) / np.sqrt(slabs.var(-1, keepdims=True) + 1e-5)
    normed = np.concatenate([np.zeros((2, 1, D)), normed * layer.norm.gain.astype(np.float64) + layer.norm.bias])
    for i, found in enumerate(stepped(stack.of(network), stack, slabs)):
        a, b = np.split(normed[i : i + 3].reshape(1, -1) @ layer.near.weight + layer.near.bias, 2, axis=-1)
        expected = slabs[i] + (a / (1 + np.exp(-b))) @ layer.out.weight + layer.out.bias
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def random_ordinal(count: int, channels: int, centred: bool, activity: bool) -> Ordinal:
    values, differences = features_of(count, centred)
    numbers = values.shape[1] + (differences.shape[1] if centred else 0) + 3 * activity
    features = Features(values, differences, random_linear(channels * numbers, D, 3))
    return Ordinal(features, 3, np.float32(max(count / 16.5, 1)), np.float32(2.5), activity, channels)


def random_output(ordinal: Ordinal) -> Output:
    """Heads in a chain; those of odd channels are wider."""
    features = len(ordinal.features.linear.weight) // ordinal.channels
    heads = []
    for p in range(ordinal.channels):
        hidden = HIDDEN + 20 * (p % 2)
        contract = random_linear(hidden, 3 * ordinal.mixtures, p)
        contract.bias[2 * ordinal.mixtures :] -= 1 if ordinal.activity else np.float32(np.log(ordinal.num_values / 9))
        heads.append(Head(random_linear(D + p * features, hidden, p + 9), contract))
    return Output(random_norm(5), heads, ordinal)


def random_centring(examples: int, size: int, count: int, activity: bool) -> Centring:
    """Two rows of `size` values in one array. Row 1 is predicted from row 0, and from itself."""
    rng = np.random.default_rng(size)
    positions = size + rng.permutation(size)
    before = np.concatenate([[-1], positions[:-1]])
    neighbours = np.stack([np.arange(size), before, rng.permutation(size)], axis=1)
    coefficients = rng.integers(-(1 << COEFFICIENT_BITS), 1 << COEFFICIENT_BITS, (size, 4))
    values = rng.integers(0, count, (examples, 2 * size))
    if not activity:
        return Centring(values, positions, neighbours, coefficients)
    sizes = rng.integers(0, count, (examples, 2 * size))
    return Centring(values, positions, neighbours, coefficients, sizes, neighbours, abs(coefficients) // 2)


def codes_of(values: np.ndarray, centring: Centring | None, ordinal: Ordinal) -> np.ndarray:
    """Return the codes of values [B, L, P], with what is predicted of each."""
    kind = reference.OrdinalValues(ordinal)
    flat = values.reshape(len(values), -1)
    codes = [kind.keep(centring, n, flat[:, n], kind.centres(centring, len(flat), n)) for n in range(flat.shape[1])]
    return np.stack(codes, axis=1).reshape(values.shape)


def causal_layers() -> list[Layer]:
    return [convolution(2, 1, 2), attention(1), feedforward(3), attention(4), convolution(5, 1, 1)]


def lstm() -> Lstm:
    return Lstm(random_norm(1), random_linear(D, 4 * D, 2), random_linear(D, 4 * D, 3))


KINDS = {
    "one": (17, 1, False, False),
    "two": (17, 2, False, False),
    "two, centred": (256, 2, True, False),
    "three": (256, 3, True, True),
    "three of 16 bits": (65536, 3, True, True),
    "three of two values": (2, 3, True, True),
    "eight": (300, 8, True, True),
    "two of 16 bits, not centred": (65536, 2, False, False),
}


@pytest.mark.parametrize(("kind", "inner"), [*((kind, causal_layers) for kind in KINDS), ("three", lstm)])
def test_channels_of_a_position_equal_their_reference_and_are_read_again(kind, inner, monkeypatch):
    """At every level of this processor: nats, intervals, reading, and the context of later slabs."""
    ordinal = random_ordinal(*KINDS[kind])
    examples, length, channels = 2 if ordinal.num_values > 300 else GROUP + 2, 4, ordinal.channels

    def centring() -> Centring | None:
        if not ordinal.centred:
            return None
        return random_centring(examples, length * channels, ordinal.num_values, ordinal.activity)

    values = np.random.default_rng(2).integers(0, ordinal.num_values, (examples, length, channels))
    codes = codes_of(values, centring(), ordinal)
    context = random_numbers(examples, length, D)
    stack = Stack(2, neighbours_of((2,)), [attention(1), convolution(2, 3, 1)])
    results = []
    for level in (None, *levels()):
        arithmetic = network if level else reference
        monkeypatch.setenv("AXIAL_CPU", level or "")
        door.library.cache_clear()
        rows = arithmetic.Rows(inner(), HEADS, random_output(ordinal))
        nats, intervals = np.zeros(codes.shape, np.float32), np.zeros((*codes.shape, 2), np.int64)
        rows.take_known(context, Known(codes, nats, intervals))
        own = centring()
        assert_read_back(rows, context, codes, intervals, arithmetic, own)
        if own:
            assert np.array_equal(own.values[:, own.positions], values.reshape(examples, -1))
        flat = context.reshape(-1, D), codes.reshape(-1, channels)
        embedded = arithmetic.Embedding(ordinal)(flat[1])
        results.append([nats, intervals, embedded, upper(stack.of(arithmetic), stack, *flat, ordinal)])
    door.library.cache_clear()
    for other in results[1:]:
        assert_same_bits(results[0], other)


@pytest.mark.parametrize("inner", [causal_layers, lstm])
def test_a_value_depends_on_the_channels_and_positions_before_it_and_on_no_others(inner):
    ordinal = random_ordinal(17, 3, False, False)
    rows = network.Rows(inner(), HEADS, random_output(ordinal))
    context, codes = random_numbers(1, 4, D), np.random.default_rng(0).integers(0, 17, (1, 4, 3))

    def nats_of(codes: np.ndarray) -> np.ndarray:
        nats = np.zeros(codes.shape, np.float32)
        rows.take_known(context, Known(codes, nats))
        return nats.ravel()

    before = nats_of(codes)
    for n in range(12):
        other = codes.copy()
        other.ravel()[n] = 16 - other.ravel()[n] if other.ravel()[n] != 8 else 0
        changed = nats_of(other) != before
        assert not changed[:n].any()
        assert changed[n:].all()


@pytest.mark.parametrize("kind", ["one", "two, centred", "three", "eight"])
@pytest.mark.parametrize("inner", [causal_layers, lstm])
def test_samples_are_those_of_the_distributions_that_the_reference_gives(kind, inner):
    """Known values stay, and a sample is that of `Mixture.sample` in float64."""
    ordinal = random_ordinal(*KINDS[kind])
    examples, length, channels = 5, 4, ordinal.channels
    rng = np.random.default_rng(4)
    noise = rng.uniform(0.01, 0.99, (examples, length, channels))
    known = np.where(rng.random(noise.shape) < 0.3, rng.integers(0, ordinal.num_values, noise.shape), -1)
    context, codes = random_numbers(examples, length, D), np.zeros(noise.shape, np.int64)
    output = random_output(ordinal)

    def centring() -> Centring | None:
        if not ordinal.centred:
            return None
        return random_centring(examples, length * channels, ordinal.num_values, ordinal.activity)

    sampling = RowSampling(noise, known, np.float32(0.7), ordinal.num_values, np.float32(1))
    network.Rows(inner(), HEADS, output).sample(context, centring(), codes, sampling)
    values = codes % ordinal.num_values
    assert np.array_equal(codes_of(values, centring(), ordinal), codes)
    exact = reference.OrdinalValues(ordinal)
    for n, outputs in enumerate(reference.Rows(inner(), HEADS, output)._logits(context, codes)):
        at = (slice(None), *divmod(n, channels))
        predictions, scales, logarithms = split_centres(exact.value_and_centre(codes[at])[1], ordinal)
        weights, means, precisions = (torch.from_numpy(part.astype(float)) for part in np.split(outputs, 3, axis=-1))
        precisions = (precisions - logarithms).clamp(-12, float(ordinal.max_log_precision)).exp()
        mixture = Mixture(weights, means * scales, precisions, predictions, ordinal.num_values)
        sampled = mixture.sample(torch.from_numpy(noise[at]), 0.7).numpy()
        assert np.array_equal(values[at], np.where(known[at] < 0, sampled, known[at]))


def split_centres(centres: np.ndarray, ordinal: Ordinal) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return predictions [B], and units of components and what they take off log precisions [B, K]."""
    unit = torch.tensor(float(ordinal.unit))
    if not ordinal.activity:
        return torch.from_numpy(centres), unit, torch.zeros(1)
    scales, logarithms = (torch.from_numpy(table.astype(float)) for table in level_scales())
    chosen, predictions = np.divmod(centres, ordinal.num_values)
    assert chosen.max() < LEVELS
    is_odd = torch.arange(ordinal.mixtures) % 2 == 1
    units = torch.where(is_odd, scales[chosen][:, None], unit.double())
    return torch.from_numpy(predictions), units, torch.where(is_odd, logarithms[chosen][:, None], 0)


ORDINAL = random_ordinal(17, 3, False, False)
OUTPUT = random_output(ORDINAL)
STACK = Stack(5, neighbours_of((2,)), [attention(1), convolution(2, 3, 2)])
NARROW = random_linear(9, D, 1)


def stack_of(**fields: object) -> object:
    return STACK._replace(**fields).of(network)


def add_upper_of(positions: int, channels: int, kind: Categorical | Ordinal) -> None:
    context, codes = random_numbers(5 * positions, D), np.zeros((5 * positions, channels), np.int64)
    STACK.of(network).add_upper(context, codes, kind, 5, positions)


def rows_of(ordinal: Ordinal = ORDINAL, heads: list[Head] = OUTPUT.heads) -> network.Rows:
    return network.Rows(lstm(), 0, Output(OUTPUT.norm, heads, ordinal))


def sample_with(*noise_shape: int) -> None:
    known = np.full((1, 2, 3), -1)
    sampling = RowSampling(np.zeros(noise_shape), known, np.float32(1), 17, np.float32(1))
    rows_of().sample(random_numbers(1, 2, D), None, known.copy(), sampling)


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "neighbours beyond the slab": ("neighbours", lambda: stack_of(neighbours=np.full((2, 3), 2))),
    "neighbours below -1": ("neighbours", lambda: stack_of(neighbours=np.full((2, 3), -2))),
    "no neighbours": ("neighbours", lambda: stack_of(neighbours=np.zeros((2, 0), np.int64))),
    "another slab than that of the neighbours": ("neighbours", lambda: STACK.of(network).start(9, 5, 3)),
    "known slabs of other sizes": ("neighbours", lambda: add_upper_of(3, 1, Categorical(random_numbers(V, D)))),
    "known slabs of other channels": ("values", lambda: add_upper_of(2, 2, ORDINAL)),
    "a window of no whole slabs": ("attention", lambda: stack_of(neighbours=neighbours_of((2,))[:, :2])),
    "a convolution without halves": (
        "attention",
        lambda: stack_of(layers=[convolution(1, 3, 1)._replace(out=NARROW)]),
    ),
    "a feedforward block of two widths": (
        "attention",
        lambda: stack_of(layers=[feedforward(1)._replace(contract=NARROW)]),
    ),
    "too few heads": ("heads", lambda: rows_of(heads=OUTPUT.heads[:2])),
    "what heads take": ("head", lambda: rows_of(heads=OUTPUT.heads[::-1])),
    "what heads give": ("head", lambda: rows_of(heads=[head._replace(contract=NARROW) for head in OUTPUT.heads])),
    "too many channels": ("9", lambda: rows_of(ORDINAL._replace(channels=9))),
    "features of other channels": ("features", lambda: rows_of(ORDINAL._replace(channels=2))),
    "values of other channels": (
        "values of a position",
        lambda: rows_of().take_known(random_numbers(1, 2, D), Known(np.zeros((1, 2, 2), np.int64))),
    ),
    "noise without channels": ("noise", lambda: sample_with(1, 2)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_c_would_not_check_of_windows_and_channels_is_refused(what):
    word, call = WRONG[what]
    with pytest.raises(ValueError, match=word):
        call()
