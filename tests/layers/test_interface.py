"""What layers have in common: axes from either end, masks, weights, and refusals in words of what was given."""

import pytest
import torch

import axial_transformers as axial
from axial_transformers.layers.position_sensitive import ScoreNorm
from axial_transformers.ops.axial_attention import axial_attention, full_attention, position_sensitive_attention
from axial_transformers.ops.positions import rotation_table
from tests.layers.test_attention import normal, randomised

Options, EquationFour = axial.AttentionOptions, axial.PositionSensitiveAxialAttention
LINES = {
    "plain": (Options(), {}),
    "causal window": (Options(window=3, dilation=2, kv_heads=1), {"causal": True}),
    "positions": (Options(rotary=100.0, relative=2, qk_norm=True), {}),
    "rotations": (Options(), {"rotations": rotation_table(5, 4, 9.0)}),
}


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("options", LINES)
def test_outputs_of_lines_are_weights_times_values(options, axis):
    chosen, more = LINES[options]
    layer = randomised(axial.LineAttention(8, 2, axis, options=chosen, **more))
    x, mask = normal(2, 4, 5, 8), normal(2, 4, 5) > -1
    values = layer.qkv(x)[..., -layer.widths[2] :].unflatten(-1, (layer.kv_heads, -1))
    values = values.repeat_interleave(2 // layer.kv_heads, dim=-2)
    bias = normal(1, 2, x.shape[axis], layer.options.window or x.shape[axis])
    for given in ((), (mask,), (mask, bias)):
        weights = layer.weights(x, *given)
        equation = "bijnp,bpjnk->bijnk" if axis == 1 else "bijnp,bipnk->bijnk"
        torch.testing.assert_close(layer(x, *given), layer.out(torch.einsum(equation, weights, values).flatten(-2)))


def test_weights_of_blocks_triangles_and_tied_rows_are_those_that_they_attend_by():
    x, mask = normal(2, 5, 5, 8), normal(2, 5, 5) > -1
    block = randomised(axial.AxialBlock(8, 2, axes=(-2, 1), causal=(1,)))
    of_rows, of_columns = block.weights(x, mask)
    torch.testing.assert_close(of_rows, block.attentions["axis_-2"].weights(block.norms["axis_-2"](x), mask))
    after = x + block.attentions["axis_-2"](block.norms["axis_-2"](x), mask)
    torch.testing.assert_close(of_columns, block.attentions["axis_1"].weights(block.norms["axis_1"](after), mask))
    turned = axial.ChannelsFirst(block).weights(x.movedim(-1, 1), mask)
    assert all(torch.equal(a, b) for a, b in zip(turned, (of_rows, of_columns), strict=True))

    triangle = randomised(axial.TriangleAttention(8, 2, "ending", 4))
    z = triangle.norm(x)
    values, gates = triangle.attention.qkv(z)[..., 16:].unflatten(-1, (2, 4)), triangle.attention.gate(z).sigmoid()
    attended = torch.einsum("bijnp,bpjnk->bijnk", triangle.weights(x, mask), values).flatten(-2)
    torch.testing.assert_close(triangle(x, mask), triangle.attention.out(gates * attended))

    tied = randomised(axial.TiedAxialAttention(8, 2))
    weights = tied.weights(x)
    assert torch.equal(weights[:, :1].expand_as(weights), weights)
    values = tied.qkv(x)[..., 16:].unflatten(-1, (2, 4))
    attended = torch.einsum("bijnp,bipnk->bijnk", weights, values).flatten(-2)
    torch.testing.assert_close(tied(x), tied.out(attended))


@pytest.mark.parametrize(
    "make",
    [
        lambda *axes: axial.AxialAttention(8, 2, axes, causal=axes[:1]),
        lambda *axes: axial.AxialBlock(
            8, 2, axes, causal=axes[:1], options={axes[0]: Options(window=3), axes[1]: Options(rotary=100.0)}
        ),
    ],
    ids=["attention", "block"],
)
def test_axes_count_from_either_end(make):
    layers, x = [randomised(make(*axes)) for axes in ((2, 1), (-2, -3), (-2, 1))], normal(2, 4, 5, 8)
    for layer in layers[1:]:
        for mine, other in zip(layer.parameters(), layers[0].parameters(), strict=True):
            mine.data.copy_(other)
        assert torch.equal(layer(x), layers[0](x))
    q, k, v = normal(3, 2, 4, 5, 2, 3)
    for axis in (1, 2):
        assert torch.equal(axial_attention(q, k, v, axis - 5), axial_attention(q, k, v, axis))


@pytest.mark.parametrize("extent", [{"size": 7}, {"span": 3, "causal": True}], ids=str)
@pytest.mark.parametrize("normalisation", ["scale", "batch"])
def test_absent_positions_do_not_count_in_position_sensitive_attention(extent, normalisation):
    layer = randomised(axial.PositionSensitiveAxialAttention(8, 2, 2, normalisation=normalisation, **extent)).eval()
    x, mask = normal(2, 3, 7, 8).requires_grad_(), torch.rand(2, 3, 7) > 0.4
    mask[0, 0] = False
    weights = layer.weights(x, mask)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, (sums > 0.5).double())
    assert (sums[mask] > 0.5).all()
    assert not sums[0, 0].any()
    if "size" in extent:
        assert not weights[~mask[:, :, None, None].expand_as(weights)].any()
    assert torch.autograd.grad(layer(x, mask).sum(), x)[0].isfinite().all()
    crop = torch.zeros_like(mask)
    crop[..., :5] = True
    torch.testing.assert_close(layer(x, crop)[:, :, :5], layer(x[:, :, :5]))


def test_statistics_of_scores_are_of_the_pairs_whose_key_is_present():
    ours, theirs = ScoreNorm(2).double(), torch.nn.BatchNorm1d(2).double()
    scores, allowed = normal(3, 2, 4, 5), torch.rand(3, 1, 4, 5) > 0.4
    found, chosen = ours(scores, allowed).movedim(1, -1), allowed[:, 0]
    torch.testing.assert_close(found[chosen], theirs(scores.movedim(1, -1)[chosen]))
    for name, statistic in theirs.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), statistic)


X = torch.zeros(1, 2, 2, 8)
QKV = [torch.zeros(1, 2, 4, 4, 2)] * 3
REFUSED = [
    (lambda: axial.AxialAttention(8, 2, axes=()), "at least one"),
    (lambda: axial.AxialAttention(8, 2, axes=(0, 1)), "^axes"),
    (lambda: axial.AxialAttention(8, 2, axes=(1,), causal=(2,)), "causal"),
    (lambda: axial.AxialAttention(8, 2, combine="mean"), "combine"),
    (lambda: axial.AxialAttention(8, 2, value_dim=4, project=False), "projections"),
    (lambda: axial.AxialAttention(8, 2, options={3: Options(window=3)}), "options"),
    (lambda: axial.AxialAttention(8, 3), "heads 3"),
    (lambda: axial.FullAttention(8, 2)(X, torch.ones(1, 2, dtype=torch.bool)), "key_mask"),
    (lambda: axial.FullAttention(8, 2, key_dim=5), "key_dim"),
    (lambda: EquationFour(8, 8, 1, size=3), "heads 8"),
    (lambda: axial.LineAttention(8, 4, 1, options=Options(kv_heads=3)), "kv_heads"),
    (lambda: axial.LineAttention(8, 4, 1)(X, coordinates=torch.zeros(2)), "rotary"),
    (lambda: axial.LineAttention(8, 4, 1).start(1, (), 3), "causal=True"),
    (lambda: axial.LineAttention(8, 4, 1, options=Options(rotary=9.0), rotations=X[0, 0]), "twice"),
    (lambda: axial.TiedAxialAttention(8, 2, options=Options(window=3)), "only"),
    (lambda: axial.TriangleAttention(8, node="middle"), "starting"),
    (lambda: axial.AxialBlock(8, 2, axes=(2, -1)), "^axes"),
    (lambda: axial.AxialBlock(8, 0), "heads 0"),
    (lambda: axial.AxialBlock(8, 2, axes=(1, 1)), "once"),
    (lambda: axial.AxialBlock(8, 2, drop_path=1.0), "drop_path"),
    (lambda: axial.AxialBlock(8, 2, causal=(3,)), "causal"),
    (lambda: axial.AxialBlock(8, 2, options={3: Options()}), "options"),
    (lambda: axial.AxialBlock(8, 2)(X, coordinates={3: torch.zeros(2)}), "coordinates"),
    (lambda: axial_attention(*QKV, 2, attn_bias=torch.zeros(1, 4, 3, 4)), r"attn_bias .*\[1, 4, 4, 4\]"),
    (lambda: axial_attention(*QKV, 2, attn_bias=torch.zeros(1, 4, 4, 4), dilation=2), "window"),
    (lambda: axial_attention(QKV[0], QKV[1][..., :3, :], QKV[2], 2), "divisor"),
    (lambda: axial_attention(*[torch.zeros(1, 2, 1, n) for n in (4, 3, 3)], axis=1), "share"),
    (lambda: full_attention(*[torch.zeros(1, 2, 1, n) for n in (4, 3, 3)]), "fit q"),
    (lambda: axial.tied_axial_attention(*QKV, 2, -3), "same axis"),
    (lambda: axial.tied_axial_attention(QKV[0], QKV[1][..., :2, :], QKV[2], 2, 1), "share"),
    (lambda: axial.rotary(torch.zeros(1, 3, 1, 3), 1), "even"),
    (lambda: axial.rotary(QKV[0], 1, torch.zeros(3)), "coordinates"),
    (lambda: axial.relative_bias(torch.zeros(2, 4), 3), "2R"),
    (lambda: axial.relative_bias(torch.zeros(5), 4), "heads, 2R"),
    (lambda: axial_attention(*QKV, 2, attn_bias=torch.ones(1, 4, 4, 4) > 0), "attn_bias"),
    (lambda: axial.LineAttention(8, 2, 2)(X, attn_bias=torch.zeros(1, 2, 3, 2)),
     r"\[1, 2, 2, 2\], .*\[1, 2, 2, 2, 2\]"),
    (lambda: axial.TiedAxialAttention(8, 2)(X, attn_bias=torch.zeros(1, 2, 2, 2, 2)), "attn_bias"),
    (lambda: EquationFour(8, 2, 1, span=4), "odd"),
    (lambda: EquationFour(8, 2, 1, span=0), "odd"),
    (lambda: EquationFour(8, 2, 1), "size and span"),
    (lambda: EquationFour(8, 2, 1, span=3, size=3), "size and span"),
    (lambda: EquationFour(8, 2, 1, size=0), "size"),
    (lambda: EquationFour(8, 2, 1, size=3, normalisation="layer"), "normalisation"),
    (lambda: position_sensitive_attention(*QKV, *[torch.zeros(4, 1, 2)] * 3, axis=1), "even"),
    (lambda: Options(relative=2, dilation=2), "window"),
    *((lambda shape=shape: axial.TriangleAttention(8)(torch.zeros(shape)), "N, N, 8")
      for shape in ((1, 5, 6, 8), (5, 5, 8), (1, 5, 5, 9))),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


LAYERS = {
    "AxialAttention": {}, "AxialBlock": {}, "CrossAttention": {}, "FullAttention": {}, "LineAttention": {"axis": 1},
    "PositionSensitiveAxialAttention": {"axis": 1, "size": 9}, "TiedAxialAttention": {}, "TriangleAttention": {},
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_inputs_of_another_dtype_or_order_are_refused_with_what_to_do(name):
    made, x = getattr(axial, name), torch.zeros(2, 5, 5, 8)
    layer, context = made(8, 2, **LAYERS[name]), (x,) if name == "CrossAttention" else ()
    with pytest.raises(ValueError, match=r"int64.* x\.float\(\)"):
        layer(x.long(), *context)
    for call in (layer, layer.weights) if name != "TriangleAttention" else ():
        with pytest.raises(ValueError, match="ChannelsFirst"):
            call(torch.zeros(2, 8, 5, 6), *context)
        with pytest.raises(ValueError, match=r"\[B, \*A, 8\], not \[2, 5, 6, 7\]$"):
            call(torch.zeros(2, 5, 6, 7), *context)
