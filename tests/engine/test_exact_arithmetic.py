"""The arithmetic of archives: equal bits from kernels and their reference, on every processor, in every state."""

import os
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from fractions import Fraction
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axial_transformers.kernels.exact import reference
from axial_transformers.kernels.exact.definition import (
    GROUP,
    MASKED,
    MIN_STATE,
    NO_CENTRING,
    PRECISION,
    Block,
    Known,
    Line,
    Linear,
    Lstm,
    Norm,
    Output,
    Stream,
)
from tests.paths import ROOT

pytest.importorskip("numba", reason="exact kernels are compiled by numba")
sys.path.insert(0, str(ROOT / "benchmarks"))

from llvmlite import binding
from numba import njit

import exact_functions
from axial_transformers.kernels import llvm
from axial_transformers.kernels.exact import compiled, float_environment, instructions, steps

D, HIDDEN, VALUES, LENGTH = 40, 21, 19, 17
"""Sizes that are no multiples of what the kernels take at once; a head has 20 numbers."""
HARD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1 + 2.0**-23,
    2.0**-12,
    2.0**-24,
    -(2.0**-149),
    2.0**-149,
    2.0**-126,
    3.4e38,
    -3.4e38,
    1e20,
]


def random_numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_block(seed: int) -> Block:
    def linear(inputs: int, outputs: int) -> Linear:
        weight, bias = random_numbers(inputs, outputs, seed=seed + outputs), random_numbers(outputs, seed=seed)
        return Linear(weight / np.float32(inputs**0.5), bias)

    norm = Norm(1 + random_numbers(D, seed=seed) / 8, random_numbers(D, seed=seed + 1))
    rotations = random_numbers(LENGTH, D // 2, seed=seed)
    return Block(norm, linear(D, 3 * D), rotations, linear(D, D), norm, linear(D, HIDDEN), linear(HIDDEN, D))


def outputs_of(arithmetic) -> list[np.ndarray]:
    """What random weights give: the last slab, the context of known ones, nats and intervals of a row, twice."""
    blocks = [random_block(1), random_block(2), random_block(3)]
    slabs = arithmetic.Slabs(blocks, 2, [Line(5, 1), MASKED, Line(2, 5)])
    state = slabs.start(20, LENGTH, 10)
    for i in range(LENGTH):
        u = slabs.step(random_numbers(20, D, seed=i), i, state)
    context = random_numbers(2 * LENGTH * 10, D)
    slabs.add_upper(context, np.arange(len(context)) % VALUES, random_numbers(VALUES, D), LENGTH, 10)
    found = [u, context]
    wide = Linear(random_numbers(D, 4 * D), random_numbers(4 * D))
    output = Output(blocks[0].attention_norm, Linear(random_numbers(D, VALUES), random_numbers(VALUES)),
                    random_numbers(VALUES, D))  # fmt: skip
    for inner, heads in (blocks[:2], 2), (Lstm(blocks[1].attention_norm, wide, wide), 0):
        known = np.random.default_rng(5).integers(0, VALUES, (26, 3))
        nats, intervals = np.zeros((26, 3), np.float32), np.zeros((26, 3, 2), np.int64)
        rows, context = arithmetic.Rows(inner, heads, output), random_numbers(26, 3, D)
        rows.take_known(context, Known(known, nats, intervals))
        in_order = [part.swapaxes(0, 1).reshape(-1, 2) for part in np.split(intervals, [GROUP])]
        words = arithmetic.write_stream(np.concatenate(in_order), MIN_STATE)
        stream, values = Stream(words, np.array([int(words[0]) << 32 | int(words[1]), 2, 0])), np.zeros_like(known)
        rows.read(context, NO_CENTRING, values, stream)
        assert np.array_equal(values, known)
        assert stream.state.tolist() == [MIN_STATE, len(words), 0]
        found += [nats, intervals]
    return found


def no_stream() -> Stream:
    return Stream(np.zeros(0, np.uint32), np.zeros(3, np.int64))


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
def test_compiled_functions_equal_their_reference(name):
    """benchmarks/exact_functions.py compares all 2^32 numbers."""
    edges = np.array([*HARD, 87, -87, 88, -88, np.inf, -np.inf, np.nan, 0.34657359, -0.34657359], np.float32)
    near = np.concatenate([np.nextafter(edges, np.float32(to)) for to in (-np.inf, np.inf)])
    x = np.concatenate([edges, near, *exact_functions.numbers(every=200_003), 30 * random_numbers(20_000)])
    assert not len(exact_functions.differences(name, x[: len(x) // 16 * 16]))


def test_the_exponential_is_accurate():
    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    assert np.abs(reference.exp(x) / np.exp(x.astype(np.float64)) - 1).max() < 1.2e-7
    assert reference.exp(np.array([-87.1, -np.inf], np.float32)).tolist() == [0, 0]


def test_the_logarithm_is_accurate():
    x = np.concatenate([np.linspace(0.5, 3, 100_001), np.geomspace(2.0**-100, 2.0**100, 100_001)]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    assert (np.abs(reference.log(x) - exact) <= 1.2e-7 * np.abs(exact)).all()


@pytest.mark.parametrize(("rows", "vectors", "panels"), [(12, 2, 1), (6, 1, 1), (1, 3, 2)])
def test_products_do_not_depend_on_the_tile(rows, vectors, panels):
    multiply = instructions.product(rows, vectors, panels)
    width = 16 * vectors * panels

    @njit(error_model="numpy")
    def kernel(x, w, bias, out):
        multiply(
            x, np.int64(0), x.shape[1], w, np.int64(0), bias, np.int64(0), x.shape[1], out, np.int64(0), width, False
        )

    x, layer = random_numbers(rows, 37), Linear(random_numbers(37, width), random_numbers(width))
    out = np.zeros((rows, width), np.float32)
    packed = np.ascontiguousarray(layer.weight.reshape(37, panels, -1).swapaxes(0, 1))
    kernel(x, packed, layer.bias, out)
    assert_same_bits([reference.linear(x, layer)], [out])


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_a_row_alone_gives_the_bits_that_it_gives_among_others(panels):
    outputs = panels * instructions.PANEL - 5
    layer = compiled.Dense(Linear(random_numbers(D, outputs), random_numbers(outputs)))
    x = random_numbers(instructions.ROWS + 1, D)
    assert_same_bits([layer(x[3:4])], [layer(x)[3:4]])


def test_the_tile_fits_the_registers():
    assert instructions.tile_of({"+avx", "+avx2", "-avx512f", "+fma"}) == (6, 1)
    assert instructions.tile_of({"+avx2", "+avx512f"}) == (12, 2)


def test_compiled_layers_equal_their_reference(of_reference):
    assert_same_bits(of_reference, outputs_of(compiled))


def test_the_callers_state_of_the_processor_makes_no_difference_and_is_restored(of_reference):
    """Rounding upwards, denormal numbers flushed to zero."""
    if not float_environment.ON_X86:
        pytest.skip("bits of MXCSR")
    upwards_and_flushed = 0x1F80 | 0x4000 | 0x8040
    before = float_environment.read_register()
    float_environment.write_register(upwards_and_flushed)
    try:
        assert np.float32(1) + np.float32(2.0**-40) > 1
        with compiled.ieee_arithmetic():
            found = outputs_of(compiled)
        with pytest.raises(KeyError), compiled.ieee_arithmetic():
            raise KeyError
        assert float_environment.read_register() & 0xFFC0 == upwards_and_flushed
    finally:
        float_environment.write_register(before)
    assert_same_bits(of_reference, found)


def test_on_arm_the_register_is_reached_without_inline_assembly(monkeypatch):
    """LLVM ends the process where code has any and nothing has started a parser of it, and numba starts none."""
    monkeypatch.setattr(float_environment, "ON_ARM", True)
    monkeypatch.setattr(float_environment, "ON_X86", False)
    module, register = llvm.ir.Module(), float_environment.REGISTER
    function = llvm.ir.Function(module, llvm.ir.FunctionType(register, [register]), "exchange")
    builder = llvm.ir.IRBuilder(function.append_basic_block())
    before = float_environment._read._defn(None)[1](None, builder, None, ())
    context = SimpleNamespace(get_dummy_value=lambda: None)
    float_environment._write._defn(None, llvm.types.int64)[1](context, builder, None, function.args)
    builder.ret(before)
    assert " asm " not in str(module)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    arm = binding.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine()
    code = arm.emit_assembly(binding.parse_assembly(str(module)))
    assert re.findall(r"\b(mrs|msr)\b.*FPCR", code, re.IGNORECASE) == ["mrs", "msr"]


def test_the_reference_keeps_denormal_numbers_too():
    tiny = np.full(1, 1e-40, np.float32)
    torch.set_flush_denormal(True)
    try:
        assert tiny * reference.ONE == 0
        with reference.ieee_arithmetic():
            assert tiny * reference.ONE > 0
        assert tiny * reference.ONE == 0
    finally:
        torch.set_flush_denormal(False)


def test_optimised_code_has_no_loose_arithmetic_and_calls_no_library():
    """In what LLVM made of the kernels: no flag that loosens arithmetic, nothing to contract, no function of others."""
    outputs_of(compiled)
    for kernel in (steps.slabs, steps.known_rows, steps.read_row):
        for overload in kernel.overloads.values():
            library = overload.library
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = str(library._shared_module)
            arithmetic = [
                line for line in code.splitlines() if re.search(r"= (?:fadd|fsub|fmul|fdiv|fneg|fcmp)\b", line)
            ]
            assert len(arithmetic) > 50
            assert not [
                line for line in arithmetic if re.search(r"\b(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\b", line)
            ]
            called = set(re.findall(r"@llvm\.([\w.]+)\(", code))
            of_floats = {name for name in called if re.search(r"f32|f64", name)}
            others = {"fma.f32", "fma.v4f32", "fma.v8f32", "fabs.v16f32"}  # LLVM splits vectors on some processors
            assert of_floats - others == {"fma.v16f32", "sqrt.f32"}
            declared = set(re.findall(r"^declare .*@([\w.$]+)\(", code, re.MULTILINE))
            assert {name for name in declared if not re.match(r"llvm\.|NRT_|_?Py|numba_", name)} == set()
            if "+fma" in library._codegen.magic_tuple()[2].split(","):
                symbols = set(
                    re.findall(r"\$([a-zA-Z_]\w*)", library._codegen._tm.emit_assembly(library._shared_module))
                )
                assert {name for name in symbols if re.search("fma|exp|sqrt|svml|memcpyf", name)} == set()


TARGETS = {
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "AVX2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"},
}


def in_another_process(code: str, target: dict[str, str]) -> str:
    """What the code prints where kernels are compiled for another target."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, **target}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return ran.stdout.split()[-1]


LINEAR_AND_NORM = """
import hashlib
import numpy as np
from numba import njit
from axial_transformers.kernels.exact import compiled, layers
from axial_transformers.kernels.exact.definition import Linear, Norm
bits = np.random.default_rng(0).integers(0, 1 << 32, (3, 41, 41), dtype=np.uint32)
x, weight, bias = (bits & 0xBFFFFFFF).view(np.float32)  # below 2, many of them denormal or nearly so
with compiled.ieee_arithmetic():
    rows = compiled._rows(41, 41)
    rows[:41, :41] = compiled.Dense(Linear(weight, bias[0]))(x)
    normed = np.zeros_like(rows)
    norms = compiled._norms([Norm(weight[0], bias[0])])
    njit(lambda x, norms, out: layers.normalise_rows(x, 0, 41, norms, 0, 41, out))(rows, norms, normed)
    print(hashlib.sha256(rows[:41, :41].tobytes() + normed[:41, :41].tobytes()).hexdigest())
"""


def test_a_processor_without_fused_multiply_add_gives_the_same_bits():
    """Nor one whose vector registers are narrower."""
    with redirect_stdout(StringIO()) as printed:
        exec(LINEAR_AND_NORM, {"__name__": "here"})
    assert in_another_process(LINEAR_AND_NORM, TARGETS["generic"]) == printed.getvalue().strip()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_other_processors_give_the_same_bits(of_reference, target):
    code = "import hashlib; from tests.kernels import test_exact_arithmetic as t; found = t.outputs_of(t.compiled)\n"
    code += "print(hashlib.sha256(b''.join(array.tobytes() for array in found)).hexdigest())"
    assert_same_bits(of_reference, outputs_of(compiled))
    assert in_another_process(code, TARGETS[target]) == in_another_process(code, {})


def test_frequencies_of_all_values_fill_the_range():
    """Each is at least 1, whatever the logits are."""
    for logits in (random_numbers(4, 256), np.float32([[0, -1e30]]), np.zeros((1, 3), np.float32), np.eye(5) * 80):
        for numbers in reference.fixed_points(logits.astype(np.float32), no_stream()):
            ends = np.array(reference.boundaries(numbers))
            assert (np.diff(ends) >= 1).all()
            assert ends[0] == 0
            assert ends[-1] == 1 << PRECISION


def test_streams_of_the_coder_equal_its_reference_and_are_read_again():
    rng = np.random.default_rng(0)
    numbers = np.where(
        rng.random((300, 20)) < 0.3, 0, rng.integers(0, 1 << 28, (300, 20)) >> rng.integers(0, 28, (300, 1))
    )
    values = rng.integers(0, 20, 300)
    intervals = np.array([reference.interval(row, value) for row, value in zip(numbers, values.tolist())])
    words = reference.write_stream(intervals, MIN_STATE + 5)
    assert_same_bits([words], [compiled.write_stream(intervals, MIN_STATE + 5)])
    stream = Stream(words, np.array([int(words[0]) << 32 | int(words[1]), 2, 0]))
    assert [reference.read_value(row, stream) for row in numbers] == values.tolist()
    assert stream.state.tolist() == [MIN_STATE + 5, len(words), 0]
    ideal = (PRECISION - np.log2(intervals[:, 1])).sum()
    assert ideal < 32 * len(words) < ideal + 64 + 32
