"""The arithmetic of archives: equal bits from C and its reference, at every level, in every state of the processor."""

import ctypes
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from axial_transformers.engine import arithmetic, network, reference, rounded_linear, structures
from axial_transformers.engine.definition import (
    GROUP,
    MASKED,
    MIN_STATE,
    PRECISION,
    AnyLinear,
    Attention,
    Categorical,
    Feedforward,
    Head,
    Known,
    Layer,
    Line,
    Linear,
    Lstm,
    Norm,
    Output,
    Stream,
)
from tests.engine.levels import LIBRARY, door, levels
from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import exact_functions

D, HIDDEN, VALUES, LENGTH = 40, 21, 19, 17
"""Sizes that are no multiples of what C takes at once; a head has 20 numbers."""
HARD = [*(sign * x for sign in (1, -1) for x in (0.0, 1.0, 2.0**-149, 3.4e38)), 1 + 2.0**-23, 2.0**-24, 2.0**-126]


def random_numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def unchanged(layer: Linear) -> Linear:
    return layer


def random_block(seed: int, line: Line = MASKED, rounded=unchanged) -> list[Layer]:
    def linear(inputs: int, outputs: int) -> AnyLinear:
        weight, bias = random_numbers(inputs, outputs, seed=seed + outputs), random_numbers(outputs, seed=seed)
        return rounded(Linear(weight / np.float32(inputs**0.5), bias))

    norm = Norm(1 + random_numbers(D, seed=seed) / 8, random_numbers(D, seed=seed + 1))
    rotations = random_numbers(LENGTH, D // 2, seed=seed)
    attention = Attention(norm, linear(D, 3 * D), rotations, linear(D, D), line)
    return [attention, Feedforward(norm, linear(D, HIDDEN), linear(HIDDEN, D))]


def outputs_of(arithmetic, rounded=unchanged) -> list[np.ndarray]:
    """What random weights give: the last slab, the context of known ones, nats and intervals of a row, twice."""
    blocks = [random_block(n, line, rounded) for n, line in ((1, Line(5, 1)), (2, MASKED), (3, Line(2, 5)))]
    slabs = arithmetic.Slabs([layer for block in blocks for layer in block], 2)
    state = slabs.start(20, LENGTH, 10)
    for i in range(LENGTH):
        u = slabs.step(random_numbers(20, D, seed=i), i, state)
    context = random_numbers(2 * LENGTH * 10, D)
    kind = Categorical(random_numbers(VALUES, D))
    slabs.add_upper(context, np.arange(len(context))[:, None] % VALUES, kind, LENGTH, 10)
    found = [u, context, arithmetic.Embedding(kind)(np.arange(VALUES)[:, None])]
    wide = rounded(Linear(random_numbers(D, 4 * D), random_numbers(4 * D)))
    head = Head(None, rounded(Linear(random_numbers(D, VALUES), random_numbers(VALUES))))
    layers = [*random_block(1, MASKED, rounded), *random_block(2, MASKED, rounded)]
    output = Output(layers[0].norm, [head], kind)
    for inner, heads in (layers, 2), (Lstm(layers[2].norm, wide, wide), 0):
        known = np.random.default_rng(5).integers(0, VALUES, (26, 3, 1))
        nats, intervals = np.zeros((26, 3, 1), np.float32), np.zeros((26, 3, 1, 2), np.int64)
        rows, context = arithmetic.Rows(inner, heads, output), random_numbers(26, 3, D)
        rows.take_known(context, Known(known, nats, intervals))
        assert_read_back(rows, context, known, intervals, arithmetic)
        found += [nats, intervals]
    return found


def stream_of(words: np.ndarray) -> Stream:
    return Stream(words, np.array([int(words[0]) << 32 | int(words[1]), 2, 0]))


def assert_read_back(rows, context, codes, intervals, arithmetic, centring=None) -> None:
    """Read the codes of rows [B, L, P], written by their intervals, in groups of examples."""
    in_order = [np.moveaxis(part, 0, 2).reshape(-1, 2) for part in np.split(intervals, [GROUP])]
    stream, read = stream_of(arithmetic.write_stream(np.concatenate(in_order), MIN_STATE + 3)), np.zeros_like(codes)
    rows.read(context, centring, read, stream)
    assert np.array_equal(read, codes)
    assert stream.state.tolist() == [MIN_STATE + 3, len(stream.words), 0]


def assert_same_bits(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    assert all(np.isfinite(array).all() for array in a)
    assert [array.tobytes() for array in a] == [array.tobytes() for array in b]


@pytest.fixture(scope="module")
def of_reference() -> list[np.ndarray]:
    return outputs_of(reference)


def test_the_references_fused_multiply_add_is_rounded_once():
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(1000).astype(np.float32) * 2.0 ** rng.integers(-30, 30, 1000) for _ in range(3))
    c[:500] = -(a * b).astype(np.float32)[:500]  # cancellation
    c[500:600] *= 2.0**-40
    hard = np.array(np.meshgrid(HARD, HARD, HARD), np.float32).reshape(3, -1)
    a, b, c = (np.concatenate([random, some]).astype(np.float32) for random, some in zip((a, b, c), hard))
    with np.errstate(all="ignore"):
        found = reference.fma(a, b, c)
    for x, y, z, result in zip(*(numbers.tolist() for numbers in (a, b, c, found))):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if np.isinf(result):
            assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
            continue
        distance, number = abs(exact - Fraction(result)), np.float32(result)
        for neighbour in (np.nextafter(number, np.float32(np.inf)), np.nextafter(number, np.float32(-np.inf))):
            if np.isfinite(neighbour):
                further = abs(exact - Fraction(float(neighbour)))
                assert distance < further or (distance == further and not number.view(np.int32) & 1)


@pytest.mark.parametrize("name", exact_functions.FUNCTIONS)
def test_functions_equal_their_reference(name):
    """benchmarks/exact_functions.py compares all 2^32 numbers."""
    edges = np.array([*HARD, 87, -87, 88, -88, np.inf, -np.inf, np.nan, 0.34657359, -0.34657359], np.float32)
    near = np.concatenate([np.nextafter(edges, np.float32(to)) for to in (-np.inf, np.inf)])
    x = np.concatenate([edges, near, *exact_functions.numbers(every=200_003), 30 * random_numbers(20_000)])
    assert not len(exact_functions.differences(name, x))


def test_exponential_and_logarithm_are_accurate():
    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    assert np.abs(reference.exp(x) / np.exp(x.astype(np.float64)) - 1).max() < 1.2e-7
    assert reference.exp(np.array([-87.1, -np.inf], np.float32)).tolist() == [0, 0]
    x = np.concatenate([np.linspace(0.5, 3, 100_001), np.geomspace(2.0**-100, 2.0**100, 100_001)]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    assert (np.abs(reference.log(x) - exact) <= 1.2e-7 * np.abs(exact)).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 256), (37, 1), (37, 16), (37, 131)])
def test_a_row_alone_gives_the_bits_that_it_gives_among_others_and_in_the_reference(inputs, outputs):
    layer = Linear(random_numbers(inputs, outputs), random_numbers(outputs))
    x = random_numbers(61, inputs)
    expected = reference.linear(x, layer)
    for rows in (1, 2, 4, 5, 12, 13, 48, 61):
        assert_same_bits([expected[:rows]], [network.Dense(layer)(x[:rows])])


@pytest.mark.parametrize(("scale", "strange"), [(2.0**-140, None), (2.0**126, None), (1, np.inf), (1, np.nan)])
def test_hard_numbers_give_the_bits_of_the_reference(scale, strange):
    """NaN where the reference has NaN."""
    x, layer = random_numbers(7, 20) * np.float32(scale), Linear(random_numbers(20, 40), random_numbers(40))
    if strange:
        x[2, 3], x[4, 5], layer.weight[7, 8] = np.inf, -np.inf, strange
    with np.errstate(all="ignore"):
        expected = reference.linear(x, layer)
    found, undefined = network.Dense(layer)(x), np.isnan(expected)
    assert np.array_equal(np.isnan(found), undefined)
    assert ((found.view(np.uint32) == expected.view(np.uint32)) | undefined).all()
    assert undefined.any() == bool(strange)


@pytest.mark.parametrize("level", levels())
def test_layers_equal_their_reference_at_every_level(of_reference, level, monkeypatch):
    """Levels of this processor. The build rounds once at each."""
    monkeypatch.setenv("AXIAL_CPU", level)
    door.library.cache_clear()
    assert door.library().level == level
    right = ctypes.c_int(0)
    door.library().check_arithmetic(ctypes.byref(right))
    found, of_integers = outputs_of(network), outputs_of(network, rounded_linear)
    door.library.cache_clear()
    assert right.value == 1
    assert_same_bits(of_reference, found)
    assert_same_bits(outputs_of(reference, rounded_linear), of_integers)


@pytest.mark.parametrize("flags", [["-ffast-math"], ["-ffp-contract=fast", "-mfma"]])
def test_the_self_test_refuses_a_build_that_contracts_or_flushes(flags, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None or (flags[-1] == "-mfma" and "v3" not in levels()):
        pytest.skip("there is no C compiler, or no fused multiply-add")
    source = tmp_path / "check.c"
    text = (door.FOLDER / "arithmetic.h").read_text().replace('#error "compile without', '#warning "compile without')
    source.write_text(text + "int main(void) { return is_ieee(); }\n")
    subprocess.run([compiler, "-O2", *flags, "-o", tmp_path / "check", source, "-lm"], check=True, capture_output=True)
    assert subprocess.run([tmp_path / "check"], check=False).returncode == 0


def test_the_library_calls_no_function_of_libm():
    if shutil.which("nm") is None or sys.platform != "linux":
        pytest.skip("there is no nm")
    printed = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY], check=True, capture_output=True, text=True)
    called = {name for name in re.findall(r" U (\w+)", printed.stdout) if not name.startswith("_")}
    assert called <= {"calloc", "free", "malloc", "memcpy", "memmove", "memset", "qsort", "strcmp"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda patch: patch.setattr(door, "sources_digest", lambda: "other"), "pip install"),
        (lambda patch: patch.setenv("AXIAL_CPU", "v9"), "AXIAL_CPU .*v9"),
    ],
    ids=["other sources", "an unknown level"],
)
def test_a_library_that_does_not_fit_is_refused(change, message, monkeypatch):
    change(monkeypatch)
    door.library.cache_clear()
    with pytest.raises(ValueError, match=message):
        door.library()
    door.library.cache_clear()


def test_without_a_library_the_reference_runs_and_one_warning_says_so(monkeypatch, caplog):
    monkeypatch.setattr(door, "NAME", "no such library")
    door.library.cache_clear()
    try:
        assert (door.library(), door.library(), arithmetic()) == (None, None, reference)
        assert [record.getMessage()[:26] for record in caplog.records] == ["the engine is not compiled"]
        with pytest.raises(RuntimeError, match="not compiled"):
            network.Dense(Linear(np.ones((1, 1), np.float32), np.ones(1, np.float32)))(np.ones((1, 1), np.float32))
    finally:
        door.library.cache_clear()


@pytest.mark.skipif("v2" not in levels(), reason="bits of MXCSR")
def test_the_callers_state_of_the_processor_makes_no_difference_and_is_restored(of_reference):
    """Rounding upwards, denormal numbers flushed to zero."""
    upwards_and_flushed, before = ctypes.c_uint64(0x1F80 | 0x4000 | 0x8040), ctypes.c_uint64()
    door.library().environment(ctypes.byref(before), 1)
    door.library().environment(ctypes.byref(upwards_and_flushed), 0)
    try:
        assert np.float32(1) + np.float32(2.0**-40) > 1
        with network.ieee_arithmetic():
            found = outputs_of(network)
        with pytest.raises(KeyError), network.ieee_arithmetic():
            raise KeyError
        now = ctypes.c_uint64()
        door.library().environment(ctypes.byref(now), 1)
        assert now.value & 0xFFC0 == upwards_and_flushed.value
    finally:
        door.library().environment(ctypes.byref(before), 0)
    assert_same_bits(of_reference, found)


def test_two_networks_in_two_threads_have_their_own_bits(of_reference):
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: outputs_of(network), range(2)):
            assert_same_bits(of_reference, found)


def slabs(layer: Layer, heads: int = 2) -> network.Slabs:
    return network.Slabs([layer], heads)


def dense(inputs: int, outputs: int, biases: int) -> network.Dense:
    return network.Dense(Linear(random_numbers(inputs, outputs), random_numbers(biases)))


def read_into(starts: list[int], values: np.ndarray) -> None:
    network.read_from(np.array(starts, np.int32), Stream(np.zeros(9, np.uint32), np.array([MIN_STATE, 0, 0])), values)


TABLE = Categorical(random_numbers(VALUES, D))
ATTENTION = random_block(1)[0]
READ_ONLY = np.frombuffer(bytes(8), np.int64)
WRONG = {
    "read-only values": lambda: read_into([0, 1 << 28], READ_ONLY),
    "inputs": lambda: dense(3, 5, 5)(random_numbers(2, 4)),
    "bias": lambda: dense(3, 5, 4),
    "the sizes of attention": lambda: slabs(ATTENTION._replace(out=Linear(random_numbers(D, 3), random_numbers(3)))),
    "heads": lambda: slabs(ATTENTION, 3),
    "lines": lambda: slabs(ATTENTION._replace(line=Line(5, 1))).start(12, 3, 6),
    "rotations": lambda: slabs(ATTENTION).start(2, LENGTH + 1, 1),
    "the number of a slab": lambda: slabs(ATTENTION).step(random_numbers(2, D), 3, slabs(ATTENTION).start(2, 3, 1)),
    "codes that are embedded": lambda: network.Embedding(TABLE)(np.full((4, 1), VALUES)),
    "values of a position": lambda: network.Embedding(TABLE)(np.zeros((4, 2), np.int64)),
    "codes": lambda: slabs(ATTENTION).add_upper(random_numbers(4, D), np.full((4, 1), VALUES), TABLE, 2, 1),
    "intervals": lambda: network.write_stream(np.array([[0, 0]]), MIN_STATE),
    "starts": lambda: read_into([0, 5, 5], np.zeros(1, np.int64)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_c_would_not_check_is_refused_by_a_line_that_says_what_is_wrong(what):
    with pytest.raises(ValueError, match=r"^(?!.*(True|False))"):
        WRONG[what]()


def test_a_structure_of_another_size_than_in_c_is_refused_by_name_when_the_library_is_loaded(monkeypatch):
    longer = type("Linear", (structures.Linear,), {"_fields_": [("more", ctypes.c_uint64)]})
    monkeypatch.setattr(door, "STRUCTURES", [*structures.STRUCTURES, longer])
    door.library.cache_clear()
    with pytest.raises(ValueError, match="Linear"):
        door.library()
    door.library.cache_clear()


def test_streams_of_the_coder_equal_its_reference_and_are_read_again():
    rng = np.random.default_rng(0)
    numbers = np.where(
        rng.random((300, 20)) < 0.3, 0, rng.integers(0, 1 << 28, (300, 20)) >> rng.integers(0, 28, (300, 1))
    )
    numbers[:4] = reference.fixed_points(
        np.concatenate(
            [
                random_numbers(2, 20),
                np.eye(2, 20) * 80,
            ]
        ).astype(np.float32)
    )
    values = rng.integers(0, 20, 300)
    starts = [reference.boundaries(row) for row in numbers]
    for ends in starts:  # each value has a frequency of at least 1, whatever the logits are
        assert np.diff(ends).min() >= 1
        assert (ends[0], ends[-1]) == (0, 1 << PRECISION)
    intervals = np.array([[row[v], row[v + 1] - row[v]] for row, v in zip(starts, values.tolist())])
    words = reference.write_stream(intervals, MIN_STATE + 5)
    assert_same_bits([words], [network.write_stream(intervals, MIN_STATE + 5)])
    stream = stream_of(words)
    found = np.zeros(300, np.int64)
    for i, row in enumerate(starts):
        reference.read_from(row, stream, found[i : i + 1])
    assert found.tolist() == values.tolist()
    assert stream.state.tolist() == [MIN_STATE + 5, len(words), 0]
    ideal = (PRECISION - np.log2(intervals[:, 1])).sum()
    assert ideal < 32 * len(words) < ideal + 64 + 32
