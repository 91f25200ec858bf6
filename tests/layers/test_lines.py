"""Attention with biases, gates, windows, positions and tied rows: equal to its references."""

from itertools import product
from math import sqrt

import pytest
import torch

import axial_transformers as axial
from axial_transformers.ops import line_groups, sdpa
from axial_transformers.ops.attention_call import AttentionCall
from axial_transformers.ops.positions import rotation_table
from tests import attention_reference as reference
from tests.forced_backend import forced
from tests.layers.test_attention import normal, randomised

Options = axial.AttentionOptions
EXACT = {"rtol": 0, "atol": 1e-12}


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
    ((1, 4), 1, False, False, 4, None, 1, None),
    ((2, 3, 4), 2, True, True, 4, None, 1, None),
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
    if (window, dilation, kind) == (None, 1, None):
        with forced(sdpa):
            fused = axial.axial_attention(q, k, v, on, causal, mask)
            torch.testing.assert_close(fused, slow, **EXACT)
            for a, b in zip(torch.autograd.grad(fused, tensors, grad), expected):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_long_lines_by_any_kernel_and_half_precision_are_as_near_as_they_can_be(dtype, learned, monkeypatch):
    monkeypatch.setitem(line_groups.PIECE, "cpu", 2**14)
    q, k, v = (normal(2, 2, 70, 2, 4).to(dtype) for _ in range(3))
    bias, mask = normal(2, 2, 70, 70).to(dtype).requires_grad_(learned), torch.rand(2, 2, 70) > 0.3
    mask[1, 1] = False
    out = axial.axial_attention(q, k, v, 2, True, mask, bias)
    wide = axial.axial_attention(*(x.double() for x in (q, k, v)), 2, True, mask, bias.double())
    bound = 1e-5 if dtype == torch.float32 else 0.04
    assert out.dtype == dtype
    assert not out[1, 1].any()
    torch.testing.assert_close(out.double(), wide, rtol=bound, atol=bound)


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


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("given", ["indices", "line", "positions"])
def test_rotary_positions_of_an_axis_are_their_formula(axis, given):
    x, length = normal(2, 3, 5, 2, 6).requires_grad_(), (3, 5)[axis - 1]
    c = {"indices": None, "line": normal(length) * 9, "positions": normal(2, 3, 5) * 9}[given]
    whole = torch.arange(length, dtype=torch.float64) if c is None else c
    if given != "positions":
        whole = whole.view((-1, 1) if axis == 1 else (1, -1)).expand(2, 3, 5)
    torch.testing.assert_close(axial.rotary(x, axis, c, base=100.0), reference.rotary(x, whole, 100.0), **EXACT)
    assert axial.rotary(x.bfloat16(), axis).dtype == torch.bfloat16
    tensors = (x,) if c is None else (x, c.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, c=None: axial.rotary(x, axis, c), tensors, fast_mode=True)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("node", ["starting", "ending"])
@torch.no_grad()
def test_triangle_attention_is_alphafolds_algorithm(node, masked):
    """Jumper et al. 2021, supplementary algorithms 13 and 14; with padding, k runs over the pairs that are there."""
    heads, width, size = 2, 3, 4
    layer = randomised(axial.TriangleAttention(5, heads, node, head_dim=width))
    pairs = normal(2, size, size, 5)
    mask = (torch.rand(2, size, size) > 0.3) | torch.eye(size, dtype=torch.bool) if masked else None
    z = torch.nn.functional.layer_norm(pairs, (5,), layer.norm.weight, layer.norm.bias)
    q, k, v = (part.unflatten(-1, (heads, width)) for part in layer.attention.qkv(z).chunk(3, dim=-1))
    b, o = layer.pair_bias(z), torch.zeros_like(q)
    for e, i, j, h in product(range(2), range(size), range(size), range(heads)):
        edges = [((i, n), (j, n)) if node == "starting" else ((n, j), (n, i)) for n in range(size)]
        edges = [(edge, third) for edge, third in edges if mask is None or mask[e][edge]]
        scores = [q[e, i, j, h] @ k[e][edge][h] / sqrt(width) + b[e][third][h] for edge, third in edges]
        if edges:
            o[e, i, j, h] = torch.stack(scores).softmax(0) @ torch.stack([v[e][edge][h] for edge, _ in edges])
    expected = layer.attention.out(layer.attention.gate(z).sigmoid() * o.flatten(-2))
    torch.testing.assert_close(layer(pairs, mask), expected, **EXACT)


OPTIONS = {
    "grouped": Options(kv_heads=2, window=3, dilation=2),
    "normalised and gated": Options(gate=True, qk_norm=True),
    "relative": Options(relative=1),
    "all": Options(kv_heads=1, window=5, gate=True, qk_norm=True, rotary=50.0, relative=1),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_layer_is_the_reference_between_its_projections_with_every_option(name):
    options, length = OPTIONS[name], 6
    layer = randomised(axial.LineAttention(6, 4, -2, options=options, key_dim=8, value_dim=4))
    x = normal(2, 2, length, 6)
    heads = 4, layer.kv_heads, layer.kv_heads
    q, k, v = (part.unflatten(-1, (n, -1)) for part, n in zip(layer.qkv(x).split(layer.widths, dim=-1), heads))
    if options.qk_norm:
        roots = [(part.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt() for part in (q, k)]
        q, k = q / roots[0] * layer.query_norm.weight, k / roots[1] * layer.key_norm.weight
    coordinates = normal(length) * 5 if options.rotary else None
    if options.rotary:
        q, k = (reference.rotary(part, coordinates.expand(2, 2, length), options.rotary) for part in (q, k))
    bias, radius = None, options.relative
    if radius is not None:
        offsets = torch.arange(length) - torch.arange(length)[:, None]
        if options.window:
            offsets = torch.arange(options.window).expand(length, -1) - options.window // 2
        bias = layer.table[:, offsets.clamp(-radius, radius) + radius].expand(2, 2, -1, -1, -1)
    window = {"window": options.window, "dilation": options.dilation}
    out = reference.axial_attention(q, k, v, 2, attn_bias=bias, **window).flatten(-2)
    expected = layer.out(torch.sigmoid(layer.gate(x)) * out if options.gate else out)
    torch.testing.assert_close(layer(x, coordinates=coordinates), expected, **EXACT)


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


STEPPED = {
    "none": Options(),
    "rotations": Options(),
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
    """Also by numbers on the device, as graphs have them, whatever is later in the cache."""
    more = {"rotations": rotation_table(7, 2, base=50.0)} if name == "rotations" else {}
    layer = randomised(axial.LineAttention(6, 4, axis, True, STEPPED[name], key_dim=8, value_dim=4, **more)).eval()
    x = normal(2, 7, 3, 6)
    expected = layer(x)
    for on_device in (False, True) if name in ("none", "rotations") else (False,):
        cache = layer.start(2, (3,), 7)
        for later in cache if on_device else ():
            later.fill_(1000)
        steps = [layer.step(x[:, i], torch.tensor([i]) if on_device else i, cache) for i in range(7)]
        torch.testing.assert_close(torch.stack(steps, dim=1), expected, **EXACT)


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
