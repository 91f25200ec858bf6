"""Linear layers of archives: inputs and weights are integers, whose sums every level and every order gives exactly."""

import numpy as np
import pytest

from axial_transformers.engine import Linear, network, reference, rounded_linear
from axial_transformers.engine.definition import MAX_INPUTS, MAX_INTEGER, IntegerLinear, rounded_rows
from tests.engine.levels import door, levels

SIZES = [(1, 1, 1), (2, 3, 33), (3, 31, 7), (4, 16, 6), (5, 64, 1), (97, 100, 49), (576, 128, 13), (3000, 33, 2)]
"""Inputs, outputs and rows."""


def random_numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_layer(inputs: int, outputs: int) -> IntegerLinear:
    """Return a layer whose outputs have weights of very different sizes."""
    scales = np.float32(10) ** np.random.default_rng(1).integers(-41, 3, outputs).astype(np.float32)
    return rounded_linear(Linear(random_numbers(inputs, outputs) * scales, random_numbers(outputs)))


def hard_rows(rows: int, inputs: int) -> np.ndarray:
    """Return rows of which the first are zeros, equal, denormal, huge, of both signs, infinite, and not numbers."""
    x = random_numbers(rows, inputs, seed=2)
    with np.errstate(under="ignore"):
        for row, factor in zip(x, (0, 1, 1e-41, 1e30)):
            row *= np.float32(factor)
    x[1:2] = 3.3
    x[4:5, ::2] = -3e38
    x[5:6, -1:] = np.inf
    x[6:7, :1] = np.nan
    return x


@pytest.mark.parametrize("level", levels())
def test_every_level_gives_the_bits_of_the_reference(level, monkeypatch):
    monkeypatch.setenv("AXIAL_CPU", level)
    door.library.cache_clear()
    for inputs, outputs, rows in SIZES:
        layer, x = random_layer(inputs, outputs), hard_rows(rows, inputs)
        with np.errstate(all="ignore"), network.ieee_arithmetic():
            fast, slow = network.Dense(layer)(x), reference.Dense(layer)(x)
        assert np.array_equal(np.isnan(fast), np.isnan(slow))
        assert np.where(np.isnan(fast), 0, fast).tobytes() == np.where(np.isnan(slow), 0, slow).tobytes()
        assert np.isnan(fast[5:7]).all()
        assert np.isfinite(fast[:4]).all()
    door.library.cache_clear()


def test_the_largest_sums_are_exact():
    """Above 2^24, float32 has no odd numbers: a sum is rounded once, to the nearest."""
    inputs = 8192
    signs = np.where(np.random.default_rng(0).random((inputs, 1)) < 0.9, 1, -1).astype(np.float32)
    layer = IntegerLinear((signs * MAX_INTEGER).astype(np.int8), np.ones(1, np.float32), np.zeros(1, np.float32))
    x = np.full((1, inputs), MAX_INTEGER, np.float32)
    x[0, 0] = MAX_INTEGER - 1
    whole = int(signs[:, 0] @ x[0].astype(int)) * MAX_INTEGER
    assert abs(whole) > 1 << 24
    assert network.Dense(layer)(x).item() == reference.Dense(layer)(x).item() == np.float32(whole)


def test_a_row_gives_the_same_bits_alone_and_in_any_order_of_its_inputs():
    layer, x = rounded_linear(Linear(random_numbers(97, 70), random_numbers(70))), random_numbers(50, 97, seed=3)
    together = network.Dense(layer)(x)
    assert all(network.Dense(layer)(x[i : i + 1]).tobytes() == together[i].tobytes() for i in range(len(x)))
    order = np.random.default_rng(0).permutation(97)
    mixed = layer._replace(integers=layer.integers[order])
    assert network.Dense(mixed)(x[:, order]).tobytes() == together.tobytes()


def test_numbers_are_rounded_to_the_nearest_integer_half_to_even():
    integers, units = rounded_rows(np.array([[MAX_INTEGER, 0.5, 1.5, -2.5, -0.4], [0, 0, 0, 0, 0]], np.float32))
    assert integers.tolist() == [[MAX_INTEGER, 0, 2, -2, 0], [0, 0, 0, 0, 0]]
    assert units.tolist() == [1, 0]
    integers, units = rounded_rows(random_numbers(40, 300))
    assert np.abs(integers).max(axis=1).tolist() == [MAX_INTEGER] * 40
    np.testing.assert_allclose(integers * units[:, None], random_numbers(40, 300), atol=units.max() * 0.5001)


def test_a_rounded_layer_is_near_the_layer():
    layer = Linear(random_numbers(200, 50), random_numbers(50))
    x = random_numbers(20, 200, seed=1)
    exact, rounded = network.Dense(layer)(x), network.Dense(rounded_linear(layer))(x)
    assert np.abs(rounded - exact).std() < 0.02 * exact.std()


def test_more_inputs_than_sums_of_32_bits_hold_are_refused():
    most = np.full((MAX_INPUTS, 1), MAX_INTEGER, np.int8)
    layer = IntegerLinear(most, np.ones(1, np.float32), np.zeros(1, np.float32))
    x = np.ones((1, MAX_INPUTS), np.float32)
    assert network.Dense(layer)(x).item() == reference.Dense(layer)(x).item()
    with pytest.raises(ValueError, match=f"{MAX_INPUTS:,}"):
        network.Dense(layer._replace(integers=np.pad(most, ((0, 1), (0, 0)))))
    with pytest.raises(ValueError, match=str(MAX_INTEGER)):
        network.Dense(layer._replace(integers=np.full((5, 1), MAX_INTEGER + 1, np.int8)))
