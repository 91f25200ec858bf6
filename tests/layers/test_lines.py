"""Attention with biases, gates, windows, positions and tied rows: equal to its references and to NumPy restatements."""

from itertools import product
from math import log, sqrt

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.ops import line_groups
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.positions import rotation_table
from tests import attention_reference as reference

Options = axial.AttentionOptions
EXACT = {"rtol": 0, "atol": 1e-12}


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def randomised(layer):
    """Weights of scale 1 in float64."""
    randomise(layer)
    return layer.double()


def array(tensor):
    return tensor.detach().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def affine(layer, x):
    return x @ array(layer.weight).T + (0 if layer.bias is None else array(layer.bias))


def bias_of(kind, shape, axis, columns):
    """A bias of every accepted form, and the same one in the form of the reference: one a line, all sizes whole."""
    others, length = [size for dim, size in enumerate(shape, 1) if dim != axis], shape[axis - 1]
    given = {
        "all": (1, 4, length, columns),
        "examples": (2, 1, length, columns),
        "lines": (2, *others, 4, length, columns),
        "table": (1, 4, 1, columns),
    }[kind]
    bias = normal(*given).requires_grad_()
    whole = bias if len(given) == len(shape) + 3 else bias[:, *[None] * len(others)]
    return bias, whole.expand(2, *others, 4, length, columns)


CASES = [
    # shape, axis, causal, masked, heads of keys, window, dilation, bias
    ((5,), 1, False, True, 4, None, 1, "all"),
    ((2, 4), 2, True, False, 2, None, 1, "examples"),
    ((4, 2), 1, True, True, 4, None, 1, "lines"),
    ((1, 7), 2, False, False, 1, None, 3, None),
    ((5, 2), 1, True, True, 4, None, 2, None),
    ((19,), 1, False, True, 4, 3, 1, None),
    ((3, 6), 2, True, False, 2, 5, 1, "table"),
    ((18, 1), 1, False, False, 4, 3, 1, "lines"),
    ((2, 5, 2), 2, False, True, 4, 3, 2, "examples"),
    ((2, 7), 2, True, True, 2, 3, 3, "lines"),
]


@pytest.mark.parametrize(("shape", "on", "causal", "masked", "groups", "window", "dilation", "kind"), CASES, ids=str)
def test_every_option_equals_the_reference_forward_and_backward(
    shape, on, causal, masked, groups, window, dilation, kind, monkeypatch
):
    q, k, v = (normal(2, *shape, heads, 2).requires_grad_() for heads in (4, groups, groups))
    mask = torch.rand(2, *shape) > 0.3 if masked else None
    bias, whole = (None, None) if kind is None else bias_of(kind, shape, on, window or shape[on - 1])
    slow = reference.axial_attention(q, k, v, on, causal, mask, whole, window=window, dilation=dilation)
    tensors, grad = [q, k, v] + [bias] * (kind is not None), torch.randn_like(slow)
    expected = torch.autograd.grad(slow, tensors, grad)
    for piece, any_length in ((2**20, False), (40, False), (2**20, True)):  # at once; in pieces; as graphs have it
        monkeypatch.setitem(line_groups.PIECE, "cpu", piece)
        monkeypatch.setattr(AttentionCall, "any_length", any_length)
        fast = axial.axial_attention(q, k, v, on, causal, mask, bias, window=window, dilation=dilation)
        torch.testing.assert_close(fast, slow, **EXACT)
        for a, b in zip(torch.autograd.grad(fast, tensors, grad), expected):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("piece", [2**20, 20], ids=["at once", "in pieces"])
@pytest.mark.parametrize(("window", "dropout"), [(None, 0.0), (3, 0.0), (None, 0.5)])
def test_biased_attention_has_first_and_second_derivatives(piece, window, dropout, monkeypatch):
    monkeypatch.setitem(line_groups.PIECE, "cpu", piece)
    q, k, v = (normal(2, 4, 1, 2).requires_grad_() for _ in range(3))
    bias = normal(2, 1, 4, window or 4).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4])

    def attend(q, k, v, bias):
        torch.manual_seed(1)
        return axial.axial_attention(q, k, v, 1, key_mask=mask, attn_bias=bias, window=window, dropout=dropout)

    assert torch.autograd.gradcheck(attend, (q, k, v, bias), fast_mode=True, atol=1e-7)
    assert torch.autograd.gradgradcheck(attend, (q, k, v, bias), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_long_lines_by_any_kernel_and_half_precision_are_as_near_as_they_can_be(dtype, learned, monkeypatch):
    monkeypatch.setitem(line_groups.PIECE, "cpu", 2**14)
    q, k, v = (normal(2, 2, 70, 2, 4, dtype=dtype) for _ in range(3))
    bias, mask = normal(2, 2, 70, 70, dtype=dtype).requires_grad_(learned), torch.rand(2, 2, 70) > 0.3
    mask[1, 1] = False
    out = axial.axial_attention(q, k, v, 2, True, mask, bias)
    wide = axial.axial_attention(*(x.double() for x in (q, k, v)), 2, True, mask, bias.double())
    bound = 1e-5 if dtype == torch.float32 else 0.04
    assert out.dtype == dtype
    assert not out[1, 1].any()
    torch.testing.assert_close(out.double(), wide, rtol=bound, atol=bound)


def test_operations_of_windows_grow_linearly_with_the_length():
    counts = []
    for length in (128, 256, 512):
        q = torch.randn(1, length, 2, 4)
        with FlopCounterMode(display=False) as counter:
            axial.axial_attention(q, q, q, 1, window=9, dilation=2)
        counts.append(counter.get_total_flops())
    assert log(counts[2] / counts[1]) / log(2) == pytest.approx(1, abs=0.1)
    assert log(counts[1] / counts[0]) / log(2) == pytest.approx(1, abs=0.1)


def test_dropout_sets_weights_to_zero_and_keeps_their_mean():
    q, k = normal(1, 300, 1, 4), normal(1, 300, 1, 4)
    positions = torch.eye(300, dtype=torch.float64)[None, :, None]
    weights, dropped = (axial.axial_attention(q, k, positions, 1, dropout=p) for p in (0.0, 0.25))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75, **EXACT)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.01)
    layer = randomised(axial.LineAttention(4, 2, 1, options=Options(dropout=0.5)))
    x = normal(1, 6, 4)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


@pytest.mark.parametrize("grid", [(9,), (2, 7)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_windowed_dilated_grouped_attention_is_its_formula(grid, causal):
    """y_o = sum_j softmax_j(q_o . k_{o + 2j} / sqrt(K)) v_{o + 2j}, |j| <= 1, two heads of q to one of k and v."""
    x = normal(2, *grid, 6)
    options = Options(kv_heads=2, window=3, dilation=2)
    layer = randomised(axial.LineAttention(6, 4, -2, causal, options, key_dim=8, value_dim=4))
    q, k, v = np.split(affine(layer.qkv, array(x)), np.cumsum([8, 4]), axis=-1)
    heads = np.zeros((2, *grid, 4))
    for *line, o, n in product(range(2), *(range(size) for size in grid), range(4)):
        positions = [p for p in (o - 2, o, o + 2) if 0 <= p < grid[-1] and (p <= o or not causal)]
        g, line = n // 2, tuple(line)
        scores = np.array([q[line][o, 2 * n : 2 * n + 2] @ k[line][p, 2 * g : 2 * g + 2] for p in positions]) / sqrt(2)
        heads[(*line, o, n)] = softmax(scores) @ np.array([v[line][p, g] for p in positions])
    np.testing.assert_allclose(array(layer(x)), affine(layer.out, heads), **EXACT)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("given", ["indices", "line", "positions"])
def test_rotary_positions_of_an_axis_are_their_formula(axis, given):
    """Numbers i and i + K/2 as a complex number times exp(1j c base^(-2i/K))."""
    x = normal(2, 3, 5, 2, 6)
    length = (3, 5)[axis - 1]
    c = {"indices": None, "line": normal(length) * 9, "positions": normal(2, 3, 5) * 9}[given]
    by_position = torch.arange(length, dtype=torch.float64) if c is None else c
    by_position = (
        by_position if given == "positions" else by_position.view((-1, 1) if axis == 1 else (1, -1)).expand(2, 3, 5)
    )
    pairs = array(x)[..., :3] + 1j * array(x)[..., 3:]
    turned = pairs * np.exp(1j * array(by_position)[..., None, None] * 100.0 ** (-np.arange(3) / 3))
    out = axial.rotary(x, axis, c, base=100.0)
    np.testing.assert_allclose(array(out), np.concatenate([turned.real, turned.imag], axis=-1), **EXACT)
    torch.testing.assert_close(out, reference.rotary(x, by_position, 100.0), **EXACT)
    assert axial.rotary(x.bfloat16(), axis).dtype == torch.bfloat16


def test_attention_with_rotary_positions_depends_on_differences_of_coordinates_only():
    layer = randomised(axial.LineAttention(8, 2, 1, options=Options(rotary=50.0, qk_norm=True)))
    x, c = normal(1, 6, 8), normal(6) * 5
    torch.testing.assert_close(layer(x, coordinates=c), layer(x, coordinates=c + 17), **EXACT)
    torch.testing.assert_close(layer(x), layer(x, coordinates=torch.arange(6)), **EXACT)
    order = torch.randperm(6)
    torch.testing.assert_close(layer(x[:, order], coordinates=c[order]), layer(x, coordinates=c)[:, order], **EXACT)
    assert not torch.allclose(layer(x, coordinates=c), layer(x, coordinates=2 * c))
    coordinates = c.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, c: axial.rotary(x, 1, c), (normal(1, 6, 1, 4).requires_grad_(), coordinates)
    )


@pytest.mark.parametrize("window", [None, 5])
def test_the_relative_bias_is_that_of_the_offset_and_clipped(window):
    """Added to the scores of attention of equal keys, the weights are softmax_p(table[p - o])."""
    layer = randomised(axial.LineAttention(2, 2, 1, options=Options(relative=1, window=window)))
    with torch.no_grad():
        layer.qkv.weight[:4] = 0
        layer.qkv.bias[:4] = 0
    x, table = normal(1, 6, 2), array(layer.table)
    v = affine(layer.qkv, array(x))[0, :, 4:]
    heads = np.zeros((6, 2))
    for o, n in product(range(6), range(2)):
        positions = [p for p in range(6) if window is None or abs(p - o) <= 2]
        heads[o, n] = softmax(np.array([table[n, np.clip(p - o, -1, 1) + 1] for p in positions])) @ v[positions, n]
    np.testing.assert_allclose(array(layer(x))[0], affine(layer.out, heads), **EXACT)
    extra = normal(1, 1, 6, window or 6)
    torch.testing.assert_close(layer(x, attn_bias=0 * extra), layer(x), **EXACT)
    assert not torch.allclose(layer(x, attn_bias=extra), layer(x))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("node", ["starting", "ending"])
def test_triangle_attention_is_alphafolds_algorithm(node, masked):
    """Jumper et al. 2021, supplementary algorithms 13 and 14; with padding, k runs over the pairs that are there."""
    heads, width, size = 2, 3, 4
    layer = randomised(axial.TriangleAttention(5, heads, node, head_dim=width))
    pairs = normal(2, size, size, 5)
    mask = (torch.rand(2, size, size) > 0.3) | torch.eye(size, dtype=torch.bool) if masked else None
    x = array(pairs)
    z = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    z = z * array(layer.norm.weight) + array(layer.norm.bias)
    q, k, v = (part.reshape(2, size, size, heads, width) for part in np.split(affine(layer.attention.qkv, z), 3, -1))
    b = affine(layer.pair_bias, z)
    g = sigmoid(affine(layer.attention.gate, z))
    o = np.zeros_like(q)
    for e, i, j, h in product(range(2), range(size), range(size), range(heads)):
        edges = [((i, n), (j, n)) if node == "starting" else ((n, j), (n, i)) for n in range(size)]
        edges = [(edge, third) for edge, third in edges if mask is None or mask[e][edge]]
        scores = [q[e, i, j, h] @ k[e][edge][h] / sqrt(width) + b[e][third][h] for edge, third in edges]
        o[e, i, j, h] = softmax(np.array(scores)) @ np.array([v[e][edge][h] for edge, _ in edges]) if edges else 0
    expected = affine(layer.attention.out, g * o.reshape(2, size, size, -1))
    np.testing.assert_allclose(array(layer(pairs, mask)), expected, **EXACT)


def test_tied_attention_of_padded_alignments_is_the_formula_of_each_alignment_by_itself():
    """Rao et al. 2021: softmax over columns of sum_r q_r k_r^T / sqrt(R K); an alignment: 2 x 5 positions of 3 x 6."""
    layer = randomised(axial.TiedAxialAttention(4, 2))
    x, sizes = normal(3, 3, 6, 4), [(2, 5), (3, 6), (1, 4)]
    mask = torch.zeros(3, 3, 6, dtype=torch.bool)
    for b, (rows, columns) in enumerate(sizes):
        mask[b, :rows, :columns] = True
    found = layer(x, mask)
    for b, (rows, columns) in enumerate(sizes):
        q, k, v = np.split(affine(layer.qkv, array(x)[b, :rows, :columns]).reshape(rows, columns, 6, 2), 3, axis=2)
        heads = np.zeros((rows, columns, 2, 2))
        for n in range(2):
            weights = softmax(sum(q[r, :, n] @ k[r, :, n].T for r in range(rows)) / sqrt(rows * 2))
            for r in range(rows):
                heads[r, :, n] = weights @ v[r, :, n]
        expected = affine(layer.out, heads.reshape(rows, columns, 4))
        np.testing.assert_allclose(array(found)[b, :rows, :columns], expected, **EXACT)


def test_tied_attention_equals_its_reference_with_any_gaps_and_along_any_axis():
    q, k, v = (normal(2, 3, 4, 2, width).requires_grad_() for width in (2, 2, 3))
    mask = torch.rand(2, 3, 4) > 0.4
    mask[0, :, 1], mask[1, 2] = False, False
    slow = reference.tied_axial_attention(q, k, v, mask)
    torch.testing.assert_close(axial.tied_axial_attention(q, k, v, 2, 1, key_mask=mask), slow, **EXACT)
    turned = axial.tied_axial_attention(*(x.mT.movedim(1, 2).mT for x in (q, k, v)), -4, -3, key_mask=mask.mT)
    torch.testing.assert_close(turned.movedim(1, 2), slow, **EXACT)
    deep = (x[:, :, None].expand(-1, -1, 2, -1, -1, -1) for x in (q, k, v))
    out = axial.tied_axial_attention(*deep, axis=3, tied=1, key_mask=mask[:, :, None].expand(-1, -1, 2, -1))
    torch.testing.assert_close(out, slow[:, :, None].expand_as(out), **EXACT)
    bias, once = normal(1, 2, 4, 4), [x[:, :1] for x in (q, k, v)]
    tied = axial.tied_axial_attention(*once, 2, 1, causal=True, attn_bias=bias)
    torch.testing.assert_close(tied, axial.axial_attention(*once, 2, True, attn_bias=bias), **EXACT)
    assert torch.autograd.gradcheck(
        lambda *qkv: axial.tied_axial_attention(*qkv, 2, 1, key_mask=mask), (q, k, v), fast_mode=True, atol=1e-7
    )


def test_queries_and_keys_are_normalised_and_heads_gated():
    layer = randomised(axial.LineAttention(4, 2, 1, options=Options(gate=True, qk_norm=True)))
    x = normal(1, 5, 4)
    q, k, v = (part.reshape(5, 2, 2) for part in np.split(affine(layer.qkv, array(x)[0]), 3, axis=-1))
    q, k = (
        part / np.sqrt((part**2).mean(-1, keepdims=True) + np.finfo(float).eps) * array(norm.weight)
        for part, norm in ((q, layer.query_norm), (k, layer.key_norm))
    )
    heads = np.stack([softmax(q[:, n] @ k[:, n].T / sqrt(2)) @ v[:, n] for n in range(2)], axis=1).reshape(5, 4)
    gated = sigmoid(affine(layer.gate, array(x)[0])) * heads
    np.testing.assert_allclose(array(layer(x))[0], affine(layer.out, gated), **EXACT)


STEPPED = {
    "none": Options(),
    "grouped": Options(kv_heads=2),
    "window": Options(window=5, dilation=2, relative=1),
    "dilation": Options(dilation=3),
    "relative": Options(relative=2),
    "rotary": Options(rotary=50.0, qk_norm=True, gate=True),
    "all": Options(kv_heads=1, window=3, dilation=2, gate=True, qk_norm=True, rotary=50.0, relative=1, dropout=0.5),
}


@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("name", STEPPED)
def test_cached_steps_equal_the_whole_with_every_option(name, axis):
    layer = randomised(axial.LineAttention(6, 4, axis, True, STEPPED[name], key_dim=8, value_dim=4)).eval()
    x = normal(2, 7, 3, 6)
    cache = layer.start(2, (3,), 7)
    steps = torch.stack([layer.step(x[:, i], i, cache) for i in range(7)], dim=1)
    torch.testing.assert_close(steps, layer(x), **EXACT)


@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("rotated", [False, True])
def test_steps_by_number_on_the_device_are_those_by_number_whatever_is_later_in_the_cache(axis, rotated):
    rotations = rotation_table(7, 2, base=50.0) if rotated else None
    layer = randomised(axial.LineAttention(6, 4, axis, True, key_dim=8, value_dim=4, rotations=rotations)).eval()
    x = normal(2, 7, 3, 6)
    caches = [layer.start(2, (3,), 7) for _ in range(2)]
    for later in caches[1]:
        later.fill_(1000)
    for i in range(7):
        found = layer.step(x[:, i], torch.tensor([i]), caches[1])
        torch.testing.assert_close(found, layer.step(x[:, i], i, caches[0]), **EXACT)


def test_axial_attention_takes_the_options_of_every_axis_or_of_one():
    window = Options(window=3, relative=1)
    for options, of_rows in (({1: window}, Options()), (window, window)):
        layer = randomised(axial.AxialAttention(8, 2, axes=(2, 1), options=options))
        rows, columns = (axial.LineAttention(8, 2, axis, options=o) for axis, o in ((2, of_rows), (1, window)))
        rows.double().load_state_dict(layer.layers["axis_2"].state_dict())
        columns.double().load_state_dict(layer.layers["axis_1"].state_dict())
        x = normal(2, 5, 4, 8)
        torch.testing.assert_close(layer(x), columns(rows(x)), **EXACT)


def test_a_block_is_its_branches_and_begins_as_the_identity():
    options = {2: Options(rotary=10000.0, gate=True), 1: Options(window=3, relative=1)}
    block = axial.AxialBlock(8, 2, axes=(2, 1), causal=(1,), options=options)
    x = normal(2, 3, 5, 8)
    assert torch.equal(block.double()(x), x)
    randomised(block)
    mask, c, bias = torch.rand(2, 3, 5) > 0.2, normal(5), normal(1, 2, 1, 3)
    rows, columns = block.attentions["axis_2"], block.attentions["axis_1"]
    y = x + rows(block.norms["axis_2"](x), mask, coordinates=c)
    y = y + columns(block.norms["axis_1"](y), mask, bias)
    expected = block.feedforward(y)
    torch.testing.assert_close(block(x, mask, {1: bias}, {2: c}), expected, **EXACT)
    jacobian = torch.autograd.functional.jacobian(block, x[:1]).abs().amax((3, 7))[0, :, :, 0]
    seen = (jacobian > 1e-12).any(3).any(1)
    assert torch.equal(seen, torch.ones(3, 3).tril().bool().triu(-1))  # rows above, of a window of 3 in all


def test_gains_of_a_block_scale_its_branches_and_begin_small():
    plain, block = axial.AxialBlock(8, 2), axial.AxialBlock(8, 2, layer_scale=1e-5)
    x = normal(2, 3, 5, 8)
    out = block.double()(x)
    assert 0 < (out - x).abs().max() < 1e-3
    randomised(block)
    plain.double().load_state_dict({name: w for name, w in block.state_dict().items() if "gamma" not in name})
    with torch.no_grad():  # the gains, multiplied into the last linear layers
        for axis, branch in block.branches.items():
            plain.attentions[axis].out.weight.mul_(branch.gamma[:, None])
            plain.attentions[axis].out.bias.mul_(branch.gamma)
        plain.feedforward.contract.weight.mul_(block.feedforward.dropout.gamma[:, None])
        plain.feedforward.contract.bias.mul_(block.feedforward.dropout.gamma)
    torch.testing.assert_close(block(x), plain(x), **EXACT)


def test_whole_branches_of_an_example_are_dropped_in_training_only():
    block = randomised(axial.AxialBlock(8, 2, axes=(1,), drop_path=0.25))
    x = normal(1, 3, 8).expand(400, 3, 8)
    torch.nn.init.zeros_(block.feedforward.contract.weight)
    torch.nn.init.zeros_(block.feedforward.contract.bias)
    kept = block.eval()(x) - x
    found = block.train()(x) - x
    dropped = (found == 0).all(dim=(1, 2))
    assert dropped.double().mean().item() == pytest.approx(0.25, abs=0.08)
    torch.testing.assert_close(found[~dropped], kept[~dropped] / 0.75, **EXACT)


QKV = [torch.zeros(1, 2, 4, 4, 2)] * 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: axial.axial_attention(*QKV, 2, attn_bias=torch.zeros(1, 4, 3, 4)),
            r"attn_bias must be \[1, 4, 4, 4\]",
        ),
        (lambda: axial.axial_attention(*QKV, 2, attn_bias=torch.zeros(1, 4, 4, 4), dilation=2), "needs a window"),
        (lambda: axial.axial_attention(*QKV, 2, window=4), "odd"),
        (lambda: axial.axial_attention(*QKV, 2, dilation=0), "dilation"),
        (lambda: axial.axial_attention(*QKV, 2, dropout=1.0), "dropout"),
        (lambda: axial.axial_attention(QKV[0], QKV[1][..., :3, :], QKV[2], 2), "divisor"),
        (lambda: axial.tied_axial_attention(*QKV, 2, -3), "same axis"),
        (lambda: axial.tied_axial_attention(QKV[0], QKV[1][..., :2, :], QKV[2], 2, 1), "share"),
        (lambda: axial.rotary(torch.zeros(1, 3, 1, 3), 1), "even"),
        (lambda: axial.rotary(QKV[0], 1, torch.zeros(3)), "coordinates must be"),
        (lambda: axial.relative_bias(torch.zeros(2, 4), 3), "2R"),
        (lambda: axial.LineAttention(8, 4, 1)(torch.zeros(1, 2, 8), coordinates=torch.zeros(2)), "rotary"),
        (lambda: axial.LineAttention(8, 4, 1).start(1, (), 3), "causal=True"),
        (
            lambda: axial.LineAttention(8, 4, 1, options=Options(rotary=9.0), rotations=torch.zeros(3, 2)),
            "given twice",
        ),
        (lambda: axial.AxialAttention(8, 2, options={3: Options(window=3)}), r"options \(3,\) must be among axes"),
        (lambda: Options(relative=2, dilation=2), "need a window"),
        (lambda: axial.TiedAxialAttention(8, 2, options=Options(window=3)), "only"),
        (lambda: axial.TriangleAttention(8, node="middle"), "starting"),
        (lambda: axial.AxialBlock(8, 2, axes=(1, 1)), "named once each"),
        (lambda: axial.AxialBlock(8, 2, drop_path=1.0), "drop_path"),
        (lambda: axial.AxialBlock(8, 2, causal=(3,)), "causal"),
        (lambda: axial.AxialBlock(8, 2, options={3: Options()}), "options"),
        (lambda: axial.AxialBlock(8, 2)(torch.zeros(1, 2, 2, 8), coordinates={3: torch.zeros(2)}), "coordinates"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_a_causal_layers_cache_starts_and_steps_on_the_meta_device():
    with torch.device("meta"):
        layer = axial.LineAttention(8, 2, axis=1, causal=True)
        cache = layer.start(3, (), 5)
        assert layer.step(torch.zeros(3, 8), 4, cache).shape == (3, 8)
    assert cache.keys.device.type == "meta"
