"""Attention by the engine equals its definition, forward and backward."""

from copy import deepcopy
from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.engine import library, threads
from axial_transformers.engine.threads import parallel_map, parallel_ranges
from axial_transformers.layers.attention import AxialAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from axial_transformers.ops import (
    engine_attention,
    engine_relative,
    sdpa,
    torch_attention,
    torch_relative,
)
from axial_transformers.ops.attention_call import AttentionCall, normalised, packed_call, unpacked
from axial_transformers.ops.backends import attend as attend_call, choose, explain
from axial_transformers.ops.operators import HAS_ENGINE
from axial_transformers.ops.positions import rotation_table
from tests import attention_reference as reference
from tests.forced_backend import forced

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
needs_engine = pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not compiled")


def attend(q, k, v, axis, causal=False, bias=None, present=None):
    return engine_attention.run(normalised(AttentionCall(q, k, v, axis, causal, present, bias)))


def assert_near(got, expected, dtype):
    bound = TOLERANCE[dtype] * max(1.0, expected.abs().max().item() if expected.numel() else 0)
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=bound)


@needs_engine
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "heads", "width", "value_width", "rotated"),
    [
        ((2, 7), 2, 32, 32, True),
        ((3, 9, 7), 2, 16, 16, False),
        ((2, 3, 5, 2), 3, 5, 20, False),
        ((1, 1, 33), 2, 32, 32, False),
        ((1, 38, 1), 1, 50, 7, True),
        ((2, 3, 17), 2, 6, 6, True),
    ],
    ids=str,
)
def test_compiled_attention_equals_its_reference(shape, heads, width, value_width, rotated, causal, monkeypatch):
    """Lengths that fill a tile or not, and lines that do not fill the last vector."""
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 0)
    packing = (heads, heads * width, heads * width, heads * value_width)
    numbers = torch.randn(*shape, sum(packing[1:])).bfloat16()  # of both dtypes
    wide = numbers.double().requires_grad_()
    grad = torch.randn(*shape, heads, value_width).bfloat16()
    for axis in range(1, len(shape)):
        q, k, v = unpacked(wide, packing)
        table = rotation_table(shape[axis] + 2, width, 50.0) if rotated else None
        if rotated:
            positions = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - 1 - axis)).expand(shape)
            q, k = (reference.rotary(part, positions, 50.0) for part in (q, k))
        expected = reference.axial_attention(q, k, v, axis, causal)
        (expected_gradient,) = torch.autograd.grad(expected, wide, grad.double())
        for dtype in TOLERANCE:
            qkv = numbers.to(dtype, copy=True).requires_grad_()
            packed = packed_call(qkv, packing, axis, causal=causal, rotations=table)
            outs = [engine_attention.run(packed)]
            if not rotated:
                outs.append(attend(*unpacked(qkv, packing), axis, causal))
            elif dtype == torch.float32:
                with forced(torch_attention):
                    outs.append(attend_call(packed))
            for out in outs:
                assert out.dtype == dtype
                assert_near(out, expected, dtype)
                assert_near(torch.autograd.grad(out, qkv, grad.to(dtype))[0], expected_gradient, dtype)


@needs_engine
@pytest.mark.skipif(not (HAS_ENGINE and library().multiplies_pairs), reason="no instructions for pairs of bfloat16")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "heads", "groups", "width", "value_width"),
    [(1, 2, 2, 2, 8), (5, 4, 2, 20, 6), (17, 2, 1, 34, 36), (33, 3, 3, 64, 8), (65, 1, 1, 32, 66), (70, 2, 2, 32, 32)],
    ids=str,
)
def test_products_of_pairs_of_bfloat16_are_as_good_as_those_of_float32(
    length, heads, groups, width, value_width, causal, monkeypatch
):
    """Odd lengths have a pair with one key; results and gradients are rounded to bfloat16 in any case."""
    shape, numbers = (2, length, 3), list[torch.Tensor]()
    for each in ((heads, width), (groups, width), (groups, value_width)):
        numbers.append(torch.randn(*shape, *each).bfloat16().requires_grad_())
    grad = torch.randn(*shape, heads, value_width).bfloat16()
    wide = [x.detach().double().requires_grad_() for x in numbers]
    repeated = [wide[0], *(x.repeat_interleave(heads // groups, dim=-2) for x in wide[1:])]
    exact = reference.axial_attention(*repeated, 1, causal)
    expected = [exact, *torch.autograd.grad(exact, wide, grad.double())]
    results = {}
    for pairs in (False, True):
        monkeypatch.setattr(library(), "multiplies_pairs", pairs)
        out = attend(*numbers, 1, causal)
        results[pairs] = [out, *torch.autograd.grad(out, numbers, grad)]
    for by_pairs, by_numbers, each in zip(results[True], results[False], expected):
        error, usual = ((x.double() - each).norm() for x in (by_pairs, by_numbers))
        assert error <= 2 * usual + 1e-3 * each.norm() + 1e-6


@needs_engine
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_queries_of_very_low_scores_do_not_spoil_the_gradients_of_shorter_panels(dtype):
    """The last queries of a line fill no panel: the largest scores before them, here 2^-128, do not count."""
    q, k, v = ((scale * torch.randn(1, 35, 1, 8)).to(dtype).requires_grad_() for scale in (0.1, 1, 1))
    bias = torch.full((1, 1, 35, 35), -89.0).to(dtype)
    grad = torch.randn(1, 35, 1, 8).to(dtype)
    found = torch.autograd.grad(attend(q, k, v, 1, False, bias), (q, k, v), grad)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(reference.axial_attention(*wide, 1), wide, grad.double())
    for a, b in zip(found, expected):
        assert_near(a, b, dtype)


@needs_engine
@pytest.mark.parametrize(
    ("shape", "axis", "groups", "width", "value_width", "causal", "masked", "kind"),
    [
        ((3, 5), 1, 2, 4, 20, False, False, None),
        ((3, 5), 2, 1, 4, 20, True, False, None),
        ((3, 7, 2), 2, 6, 5, 3, False, False, "examples"),
        ((33, 2), 1, 2, 5, 3, True, False, "all"),
        ((1, 3), 1, 6, 1, 8, False, True, "lines"),
        ((3, 3), 1, 1, 33, 12, True, True, "lines"),
        ((2, 17), 2, 3, 12, 33, False, True, "examples"),
        ((33, 1), 1, 6, 12, 33, True, True, "lines"),
    ],
    ids=str,
)
def test_shared_heads_masks_and_biases_equal_the_reference_whatever_lies_at_absent_keys(
    shape, axis, groups, width, value_width, causal, masked, kind, monkeypatch
):
    """All heads at once, and three at a time."""
    length, others = shape[axis - 1], [size for dim, size in enumerate(shape, 1) if dim != axis]
    numbers = [
        torch.randn(2, *shape, *each).bfloat16() for each in ((6, width), (groups, width), (groups, value_width))
    ]
    present = torch.rand(2, *shape) > 0.3 if masked else None
    if kind is not None:
        lines = {"all": (1,), "examples": (2,), "lines": (2, *others)}[kind]
        numbers.append(torch.randn(*lines, 6, length, length).bfloat16())
    wide, whole = [x.double().requires_grad_() for x in numbers], None
    if kind is not None:
        whole = wide[3] if kind == "lines" else wide[3][:, *[None] * len(others)]
        whole = whole.expand(2, *others, 6, length, length)
    expected = reference.axial_attention(*wide[:3], axis, causal, present, whole)
    grad = torch.randn(expected.shape).bfloat16()
    wanted = torch.autograd.grad(expected, wide, grad.double(), allow_unused=True, materialize_grads=True)
    if masked:
        for x in numbers[1:3]:
            x[~present] = torch.nan
    for dtype, at_once in product(TOLERANCE, (engine_attention.AT_ONCE, 3 * length * (4 * width + 3 * value_width))):
        monkeypatch.setattr(engine_attention, "AT_ONCE", at_once)
        q, k, v, *bias = narrow = [x.to(dtype, copy=True).requires_grad_() for x in numbers]
        got = attend(q, k, v, axis, causal, *bias, present=present)
        assert_near(got, expected, dtype)
        found = torch.autograd.grad(got, narrow, grad.to(dtype))
        for a, b in zip(found, wanted):
            assert_near(a, b, dtype)
        if bias:
            fixed = attend(q, k, v, axis, causal, bias[0].detach(), present=present)  # whose gradient nobody asks for
            assert torch.equal(fixed, got)
            assert torch.equal(torch.autograd.grad(fixed, q, grad.to(dtype))[0], found[0])


@needs_engine
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_is_not_a_number_stays_in_its_line(dtype):
    q, k, v = (torch.randn(1, 4, 9, 2, 8).to(dtype) for _ in range(3))
    out = attend(q, k, v, 2)
    q[0, 3] = torch.nan
    changed = attend(q, k, v, 2)
    assert torch.equal(changed[:, :3], out[:, :3])
    assert changed[0, 3].isnan().all(), "what is not a number must not be hidden"


@needs_engine
def test_threads_do_not_change_a_bit():
    qkv, bias = torch.randn(2, 5, 33, 3 * 32, requires_grad=True), torch.randn(2, 4, 33, 33, requires_grad=True)
    before, results = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        out = engine_attention.run(packed_call(qkv, (4, 32, 32, 32), 2, causal=True))
        biased = attend(*unpacked(qkv, (4, 32, 32, 32)), 2, bias=bias)
        gradients = (
            *torch.autograd.grad(out.square().sum(), qkv),
            *torch.autograd.grad(biased.sin().sum(), (qkv, bias)),
        )
        results.append((out, biased, *gradients))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0]))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("own", [False, True], ids=["torch's threads", "a pool"])
def test_all_parts_are_worked_on_once_and_failures_come_through(count, own, monkeypatch):
    if own:
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        done = [0] * 7

        def work(first, last):
            for i in range(first, last):
                done[i] += 1

        parallel_ranges(work, 7)
        assert done == [1] * 7
        with pytest.raises(ZeroDivisionError):
            parallel_ranges(lambda first, last: 1 // 0, 7)
        assert parallel_map(lambda i: i * i, range(7)) == [i * i for i in range(7)]
        assert parallel_map(lambda i: i * i, []) == []
        nested = parallel_map(lambda i: parallel_map(lambda j: i * j, range(4)), range(5))
        assert nested == [[i * j for j in range(4)] for i in range(5)]
    finally:
        torch.set_num_threads(before)


@needs_engine
@pytest.mark.parametrize("scale", [1.0, 275.0])
@pytest.mark.parametrize(
    ("layer", "length", "width"),
    [
        (lambda: AxialAttention(32, 4, 2), 5, 32),
        (lambda: AxialAttention(32, 4, 1, causal=(1,)), 37, 32),
        (lambda: AxialAttention(64, 4, 1), 5, 64),
        (lambda: PositionSensitiveAxialAttention(32, 4, 2, span=5), 5, 32),
        (lambda: PositionSensitiveAxialAttention(32, 4, 1, size=37, causal=True), 37, 32),
    ],
    ids=["lines", "causal", "short", "window", "relative"],
)
def test_gradients_are_as_good_at_large_inputs(layer, length, width, scale, monkeypatch):
    """Relative to the largest gradient: 3e-6 where a query attends to one key alone, whatever the scale; 3e-6 plus a
    millionth of the square of the scale elsewhere, as the scores are rounded, which grow with it."""
    monkeypatch.setattr(engine_attention, "PAYS_FROM", 0)
    module = layer()
    randomise(module)
    x, wide = scale * torch.randn(4, length, length, width), deepcopy(module).double()
    weights = wide.weights(x.double())
    saturated = ((weights[0] if isinstance(weights, list) else weights).amax(-1) > 1 - 1e-12).all(-1, keepdim=True)
    assert (saturated.sum() > saturated.numel() / 2) == (scale > 100)
    for positions, bound in ((saturated, 3e-6), (torch.ones_like(saturated), 3e-6 + 1e-6 * scale**2)):
        grad = torch.randn_like(x) * positions
        found, expected = (
            torch.autograd.grad(part(given), [given, *part.parameters()], grad.to(given.dtype))
            for part, given in ((module, x.clone().requires_grad_()), (wide, x.double().requires_grad_()))
        )
        largest = max(each.abs().max() for each in expected)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a.double(), b, rtol=0, atol=float(bound * largest))


def call(length, dtype=torch.float32, lines=2**18, device="meta", **options):
    """A call without values."""
    q = torch.empty(1, length, lines, 1, 4, dtype=dtype, device=device)
    return AttentionCall(q, q, q, 1, **options)


ON_CPU = {"device": "cpu", "lines": 64}
BIAS = torch.zeros(1, 1, 1, 64, 64, requires_grad=True)
MASK = torch.ones(1, 64, 64, dtype=torch.bool)
TABLES = tuple(torch.zeros(127, 1, 4) for _ in range(3))


@pytest.mark.parametrize(
    ("backend", "asked", "reason"),
    [
        (engine_attention, call(65, torch.bfloat16, **ON_CPU), None),
        (engine_attention, call(513, torch.bfloat16, **ON_CPU), "at most 2048 positions, and bfloat16 lines of at"),
        (engine_attention, call(2049, **ON_CPU), "at most 2048"),
        (engine_attention, call(64, torch.float64, **ON_CPU), "float32"),
        (engine_attention, call(8), "runs on a CPU"),
        (engine_attention, call(31, device="cpu", lines=1), None),
        (engine_attention, call(31, device="cpu", lines=0), "nothing to compute"),
        (engine_attention, call(31, bias=BIAS[..., :31, :31], device="cpu", lines=264), "few scores"),  # 31 is 32
        (engine_attention, call(31, bias=BIAS[..., :31, :31], device="cpu", lines=265), None),
        (engine_attention, call(64, window=3, **ON_CPU), "no windows"),
        (engine_attention, call(64, dropout=0.1, **ON_CPU), "no dropout"),
        (engine_attention, call(64, full=True, **ON_CPU), "one grid"),
        (engine_attention, call(64, bias=BIAS.expand(1, 64, 1, 64, 64), key_mask=MASK, **ON_CPU), None),
        (engine_relative, call(64, **ON_CPU), "equation 4 only"),
        (engine_relative, call(64, tables=TABLES, key_mask=MASK, **ON_CPU), None),
        (engine_relative, call(64, tables=TABLES, device="cpu", lines=8), None),
        (sdpa, call(1, dropout=0.5), None),
        (sdpa, call(63, **ON_CPU), "below 64"),
        (sdpa, call(2048, torch.bfloat16, **ON_CPU), "up to 2048"),
        (sdpa, call(500, window=33, **ON_CPU), None),
        (sdpa, call(500, window=15, **ON_CPU), "below 64"),  # blocks of 16 with 14 keys around
        (sdpa, call(64, bias=BIAS, **ON_CPU), "no gradient of a bias"),
        (sdpa, call(64, dropout=0.5, **ON_CPU), "no dropout"),
        (sdpa, call(64, tables=TABLES), "equation 4"),
        (torch_attention, call(64, tables=TABLES), "equation 4"),
        (torch_relative, call(1), "equation 4 only"),
        (torch_relative, call(1, tables=TABLES), None),
    ],
)
def test_each_backend_takes_a_call_or_says_why_it_refuses(backend, asked, reason, monkeypatch):
    monkeypatch.setattr(engine_attention, "HAS_ENGINE", True)
    found = backend.refuses(asked)
    assert found is None if reason is None else reason in found
    with torch.no_grad():
        assert sdpa.refuses(call(64, bias=BIAS, **ON_CPU)) is None
    monkeypatch.setattr(engine_attention, "HAS_ENGINE", False)
    for compiled in (engine_attention, engine_relative):
        assert compiled.refuses(asked) is not None


@needs_engine
@pytest.mark.parametrize("tables", [None, tuple(torch.randn(9, 1, 4, requires_grad=True) for _ in range(3))])
def test_the_engine_tells_torch_as_many_flops_as_the_products_of_the_formula(tables):
    q, k, v = (torch.randn(2, 5, 3, 2, 4, requires_grad=True) for _ in range(3))
    counts = []
    for backend in (torch_relative, engine_relative) if tables else (torch_attention, engine_attention):
        with FlopCounterMode(display=False) as counter:
            backend.run(AttentionCall(q, k, v, 1, tables=tables)).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@needs_engine
def test_graphs_of_few_scores_are_left_to_the_compiler():
    graphs = []

    def kept(graph, _):
        graphs.append(graph.code)
        return graph.forward

    for lines in (1, 265):
        few = call(31, device="cpu", lines=lines)
        torch.compile(lambda q, few=few: attend_call(few._replace(q=q)), backend=kept, dynamic=False)(few.q)
    assert ["softmax" in code for code in graphs] == [True, False]


def test_the_first_backend_that_does_not_refuse_runs_and_the_reasons_are_logged(caplog):
    few = call(64, torch.float64, device="cpu", lines=1)
    assert choose(few) is sdpa
    assert caplog.records == []
    with caplog.at_level("DEBUG", "axial_transformers.ops.backends"):
        assert choose(few) is sdpa
        torch.compile(lambda q: attend_call(few._replace(q=q)), backend="eager", fullgraph=True)(few.q)
    (record,) = (
        each for each in caplog.records if each.name == "axial_transformers.ops.backends"
    )  # none while tracing
    assert record.getMessage().endswith(explain(few))
    first, second, third, fourth, *_ = explain(few).splitlines()
    assert first.startswith("engine_attention: refuses: ")
    assert second == "engine_relative: refuses: it computes equation 4 only"
    assert third.startswith("triton_attention: refuses: ")
    assert fourth == "sdpa: takes it"
