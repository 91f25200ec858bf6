"""Ordinal values in the arithmetic of archives: a mixture of logistic distributions, and its integers."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from axial_transformers.engine import network, reference
from axial_transformers.engine.definition import (
    COEFFICIENT_BITS,
    GROUP,
    LOGISTIC_BITS,
    LOGISTIC_END,
    MIN_LOG_PRECISION,
    MIN_STATE,
    NOT_FINITE,
    PRECISION,
    Centring,
    Features,
    Head,
    Known,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    Stream,
    logistic_table,
)
from axial_transformers.models.values.ordinal import Features as FeaturesOfValues
from tests.engine.levels import door, levels
from tests.engine.test_exact_arithmetic import (
    D,
    assert_read_back,
    assert_same_bits,
    random_block,
    random_numbers,
)

SIZES = pytest.mark.parametrize(("count", "mixtures", "scale"), [(2, 1, 5), (17, 10, 1), (256, 3, 5), (65536, 3, 1)])


def random_outputs(ordinal: Ordinal, rows: int, scale: float, seed: int = 0) -> np.ndarray:
    """Outputs [rows, 3 K] whose components are about as wide as the range of values, or narrower."""
    outputs = np.float32(scale) * random_numbers(rows, 3 * ordinal.mixtures, seed=seed)
    outputs[:, 2 * ordinal.mixtures :] -= np.float32(np.log(ordinal.num_values / 30))
    return outputs


def ordinal_of(count: int, mixtures: int, centred: bool = False, most: float = 1.5) -> Ordinal:
    """Ordinal values whose embeddings [4] are zeros."""
    values, differences = features_of(count, centred)
    inputs = values.shape[1] + (differences.shape[1] if centred else 0)
    linear = Linear(np.zeros((inputs, 4), np.float32), np.zeros(4, np.float32))
    features = Features(values, differences, linear)
    return Ordinal(features, mixtures, np.float32(max(count / 16.5, 1)), np.float32(most))


def exact_nats(outputs: np.ndarray, codes: np.ndarray, ordinal: Ordinal) -> np.ndarray:
    """The definition in float64, for outputs [R, 3 K] and codes [R]."""
    weights, means, log_precisions = np.split(outputs.astype(np.float64), 3, axis=1)
    values, centres = reference.OrdinalValues(ordinal).value_and_centre(codes)
    precisions = np.exp(log_precisions.clip(MIN_LOG_PRECISION, ordinal.max_log_precision))
    middle = (values - centres)[:, None] - float(ordinal.unit) * means
    upper, lower = -np.logaddexp(0, -(middle + 0.5) * precisions), -np.logaddexp(0, (middle - 0.5) * precisions)
    first, last = (values == 0)[:, None], (values == ordinal.num_values - 1)[:, None]
    inner = upper + lower + np.log(-np.expm1(-precisions))
    terms = weights + np.where(first, upper, np.where(last, lower, inner))
    return np.logaddexp.reduce(weights, axis=1) - np.logaddexp.reduce(terms, axis=1)


def starts_of(outputs: np.ndarray, centre: int, ordinal: Ordinal) -> np.ndarray:
    return reference.OrdinalValues(ordinal).counts_below(np.arange(ordinal.num_values + 1), centre, outputs)


@cache
def features_of(count: int, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Tables of the features of values and of differences."""
    scales = tuple(4**n for n in range(8) if 4**n < count and 4**n <= 1 << 14)
    features = FeaturesOfValues(count, scales if centred else ())
    values = features.of_values(torch.arange(count)).float().numpy()
    differences = features.of_differences(torch.arange(1 - count, count)).float().numpy()
    return values, differences if centred else np.zeros((0, 0), np.float32)


def plain_output(ordinal: Ordinal, outputs: np.ndarray) -> Output:
    """A head whose output for the zero vector is `outputs` [3 K], whatever was embedded."""
    dim = 4
    head = Head(None, Linear(np.zeros((dim, len(outputs)), np.float32), outputs))
    zeros = np.zeros(dim, np.float32)
    return Output(Norm(zeros, zeros), [head], ordinal)


def rows_of(arithmetic, ordinal: Ordinal, outputs: np.ndarray):
    """Rows whose positions all have the same outputs [3 K]: an LSTM without weights, and a head with a bias."""
    output = plain_output(ordinal, outputs)
    gates = Linear(np.zeros((4, 16), np.float32), np.zeros(16, np.float32))
    return arithmetic.Rows(Lstm(output.norm, gates, gates), 0, output)


def known_of(arithmetic, ordinal: Ordinal, outputs: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nats [n] and intervals [n, 2] of codes [n] from one row of outputs."""
    codes = codes[:, None, None]
    nats, intervals = np.zeros(codes.shape, np.float32), np.zeros((*codes.shape, 2), np.int64)
    context = np.zeros((len(codes), 1, 4), np.float32)
    rows_of(arithmetic, ordinal, outputs).take_known(context, Known(codes, nats, intervals))
    return nats[:, 0, 0], intervals[:, 0, 0]


def some_values(count: int) -> np.ndarray:
    values = np.random.default_rng(count).integers(0, count, 6)
    return np.unique([0, 1, count - 2, count - 1, count // 2, *values])


@SIZES
def test_nats_intervals_and_reading_equal_their_reference(count, mixtures, scale):
    ordinal = ordinal_of(count, mixtures)
    for outputs in random_outputs(ordinal, 2, scale):
        codes = some_values(count)
        expected, found = (known_of(arithmetic, ordinal, outputs, codes) for arithmetic in (reference, network))
        assert_same_bits([*expected], [*found])
        for arithmetic in (reference, network):
            context = np.zeros((1, len(codes), 4), np.float32)
            rows = rows_of(arithmetic, ordinal, outputs)
            assert_read_back(rows, context, codes[None, :, None], found[1][None, :, None], arithmetic)


@SIZES
def test_nats_are_those_of_the_definition_and_the_integers_cost_less_than_a_thousandth_of_a_bit(count, mixtures, scale):
    ordinal, centre = ordinal_of(count, mixtures), (count - 1) // 2
    codes = np.arange(count)
    for outputs in random_outputs(ordinal, 3, scale):
        exact = exact_nats(np.broadcast_to(outputs, (count, 3 * mixtures)), codes, ordinal)
        probabilities = np.exp(-exact)
        assert abs(probabilities.sum() - 1) < 1e-9
        some = some_values(count)
        nats = reference.OrdinalValues(ordinal).nats(np.tile(outputs, (len(some), 1)), some)
        np.testing.assert_allclose(nats, exact[some], rtol=1e-5, atol=1e-5)
        frequencies = np.diff(starts_of(outputs, centre, ordinal))
        assert frequencies.sum() == 1 << PRECISION
        assert (probabilities * (PRECISION - np.log2(frequencies) - exact / np.log(2))).sum() < 0.001


def test_every_value_has_a_frequency_for_any_outputs():
    ordinal = ordinal_of(65536, 2, most=5.0)
    for mean, log_precision, centre in product([-1000, 0.3, 1000], [-50, MIN_LOG_PRECISION, 50], [0, 40000, 65535]):
        starts = starts_of(np.array([50, -50, mean, 0.01, log_precision, -4], np.float32), centre, ordinal)
        assert np.diff(starts).min() >= 1
        assert (starts[0], starts[-1]) == (0, 1 << PRECISION)


def test_the_integer_logistic_function_is_monotone_and_accurate():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(-25, 25, 100_000), np.arange(-25, 25, 1 / 128), rng.normal(0, 1e-7, 1000), [-0.0]])
    z = np.sort(np.concatenate([z.astype(np.float32), *(np.nextafter(z.astype(np.float32), to, dtype=np.float32)
                                                        for to in (-np.inf, np.inf))]))  # fmt: skip
    found = reference.integer_logistic(z)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(found / 2.0**LOGISTIC_BITS, 1 / (1 + np.exp(-z.astype(np.float64))), rtol=0, atol=4e-6)
    ends = np.array([-LOGISTIC_END, LOGISTIC_END, -1e30, 1e30], np.float32)
    assert reference.integer_logistic(ends).tolist() == [0, 1 << LOGISTIC_BITS] * 2
    assert len(logistic_table()) == 64 * LOGISTIC_END + 2


def test_outputs_that_are_not_finite_are_seen():
    ordinal = ordinal_of(17, 3)
    for place in (0, 4, 8):
        for wrong in (np.nan, -np.inf, 1e38):
            outputs = random_outputs(ordinal, 1, 1)[0]
            outputs[place] = wrong
            for arithmetic in (reference, network):
                stream = Stream(np.zeros(9, np.uint32), np.array([MIN_STATE, 0, 0]))
                with np.errstate(all="ignore"):
                    nats, intervals = known_of(arithmetic, ordinal, outputs, np.arange(17))
                    rows = rows_of(arithmetic, ordinal, outputs)
                    rows.read(np.zeros((1, 1, 4), np.float32), None, np.zeros((1, 1, 1), np.int64), stream)
                assert np.isnan(nats).all()
                assert not intervals.any()
                assert stream.state[2] == NOT_FINITE


COUNT, LENGTH, BATCH = 1000, 5, GROUP + 2


def random_features(count: int, dim: int, centred: bool) -> Features:
    """Features of values, as C computes them, and a random linear layer."""
    values, differences = features_of(count, centred)
    inputs = values.shape[1] + (differences.shape[1] if centred else 0)
    return Features(values, differences, Linear(random_numbers(inputs, dim), random_numbers(dim, seed=4)))


def centring_of(seed: int) -> Centring:
    """Two rows of positions in one array. Row 1 is predicted from row 0, and from itself."""
    rng = np.random.default_rng(seed)
    positions = LENGTH + np.arange(LENGTH)
    neighbours = np.stack([np.arange(LENGTH), positions - 1, rng.permutation(LENGTH)], axis=1)
    neighbours[0, 1] = -1
    coefficients = rng.integers(-(1 << COEFFICIENT_BITS), 1 << COEFFICIENT_BITS, (LENGTH, 4))
    return Centring(rng.integers(0, COUNT, (BATCH, 2 * LENGTH)), positions, neighbours, coefficients)


def codes_of(centring: Centring, values: np.ndarray) -> np.ndarray:
    """Values [B, L] and what the neighbours of each say of it, in Python's integers."""
    codes = np.zeros_like(values)
    for b, i in np.ndindex(values.shape):
        total = int(centring.coefficients[i, -1])
        for at, coefficient in zip(centring.neighbours[i].tolist(), centring.coefficients[i].tolist()):
            total += coefficient * int(centring.values[b, at]) if at >= 0 else 0
        codes[b, i] = values[b, i] + COUNT * min(max(total >> COEFFICIENT_BITS, 0), COUNT - 1)
        centring.values[b, centring.positions[i]] = values[b, i]
    return codes


@pytest.mark.parametrize("inner", ["blocks", "lstm"])
@pytest.mark.parametrize("centred", [False, True])
def test_networks_of_ordinal_values_equal_their_reference_and_read_what_was_written(centred, inner, monkeypatch):
    """At every level of this processor."""
    ordinal = ordinal_of(COUNT, 3, centred)._replace(features=random_features(COUNT, D, centred))
    blocks = [*random_block(1), *random_block(2)]
    norm = blocks[0].norm
    head = Linear(random_numbers(D, 9) / np.float32(D**0.5), random_numbers(9))
    head.bias[6:] -= 3
    wide = Linear(random_numbers(D, 4 * D), random_numbers(4 * D))
    of_inner: tuple = (blocks, 2) if inner == "blocks" else (Lstm(norm, wide, wide), 0)
    output = Output(norm, [Head(None, head)], ordinal)
    values = np.random.default_rng(2).integers(0, COUNT, (BATCH, LENGTH))
    codes = (codes_of(centring_of(0), values) if centred else values)[..., None]
    context, found = random_numbers(BATCH, LENGTH, D), []
    for level in (None, *levels()):
        arithmetic = network if level else reference
        monkeypatch.setenv("AXIAL_CPU", level or "")
        door.library.cache_clear()
        rows = arithmetic.Rows(*of_inner, output)
        nats, intervals = np.zeros(codes.shape, np.float32), np.zeros((*codes.shape, 2), np.int64)
        rows.take_known(context, Known(codes, nats, intervals))
        found.append([nats, intervals])
        centring = centring_of(0) if centred else None
        assert_read_back(rows, context, codes, intervals, arithmetic, centring)
        if centred:
            assert np.array_equal(centring.values[:, LENGTH:], values)
        found[-1].append(random_numbers(60, D))
        slabs = arithmetic.Slabs([*random_block(1, Line(5, 1)), *random_block(2)], 2)
        slabs.add_upper(found[-1][-1], codes.reshape(-1, 1)[:60], ordinal, 3, 10)
    door.library.cache_clear()
    for other in found[1:]:
        assert_same_bits(found[0], other)
