"""The attention layers are the formulas of the literature, restated in NumPy; weights name the axis they are of."""

from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn

from axial_transformers.layers.attention import AxialAttention, CrossAttention, FullAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.lines import LineAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention

GRIDS = pytest.mark.parametrize("grid", [(3, 5, 2), (1, 7), (6,)], ids=lambda grid: "x".join(map(str, grid)))


def with_random_weights(layer: nn.Module) -> nn.Module:
    randomise(layer)
    return layer.double()


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """softmax(scale Q K^T) V of matrices [n, d], [m, d], [m, e]."""
    scores = np.exp(scale * q @ k.T)
    return scores / scores.sum(axis=1, keepdims=True) @ v


def heads_of(weights: np.ndarray, heads: int) -> list[np.ndarray]:
    """The matrix of each head, [D, K], from that of a linear layer [heads * K, D]."""
    return [part.T for part in np.split(weights, heads)]


def multi_head(x: np.ndarray, y: np.ndarray, wq: np.ndarray, wk: np.ndarray, wv: np.ndarray, heads: int) -> np.ndarray:
    """Concat(head_1, ..): head_i = softmax(Q_i K_i^T / sqrt(d)) V_i, Q_i = x Wq_i, K_i = y Wk_i, V_i = y Wv_i."""
    found = []
    for q, k, v in zip(*(heads_of(w, heads) for w in (wq, wk, wv))):
        found.append(attention(x @ q, y @ k, y @ v, 1 / sqrt(q.shape[1])))
    return np.concatenate(found, axis=1)


def assert_equal(found: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(array(found), expected, rtol=0, atol=1e-12)


def lines(grid: tuple[int, ...], axis: int) -> list[tuple[int | slice, ...]]:
    """The index of every line along dimension `axis` of [*grid, ..]."""
    rest = [range(size) if dim != axis else [slice(None)] for dim, size in enumerate(grid)]
    found: list[tuple[int | slice, ...]] = [()]
    for places in rest:
        found = [(*index, place) for index in found for place in places]
    return found


@GRIDS
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize(("heads", "widths"), [(1, (4, 5)), (3, (6, 9))], ids=["single", "multi"])
def test_full_attention_is_the_formula_over_all_positions(grid, heads, widths, project):
    """Of a sequence (6) the survey's self-attention, of an image or a video vanilla attention over all positions."""
    key_dim, value_dim = widths
    layer = with_random_weights(FullAttention(4, heads, key_dim, value_dim, bias=False, project=project))
    x = normal(1, *grid, 4)
    wq, wk, wv = np.split(array(layer.qkv.weight), [key_dim, 2 * key_dim])
    positions = array(x).reshape(-1, 4)
    expected = multi_head(positions, positions, wq, wk, wv, heads)
    if project:
        expected = expected @ array(layer.out.weight).T
    assert_equal(layer(x), expected.reshape(1, *grid, -1))
    assert sum(1 for _ in layer.parameters()) == 1 + project


@GRIDS
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize(("heads", "widths"), [(1, (4, 5)), (3, (6, 9))], ids=["single", "multi"])
def test_cross_attention_is_the_formula_with_keys_and_values_of_the_context(grid, heads, widths, project):
    key_dim, value_dim = widths
    layer = with_random_weights(CrossAttention(4, heads, 3, key_dim, value_dim, bias=False, project=project))
    x, context = normal(1, *grid, 4), normal(1, 2, 4, 3)
    wk, wv = np.split(array(layer.kv.weight), [key_dim])
    positions, others = array(x).reshape(-1, 4), array(context).reshape(-1, 3)
    expected = multi_head(positions, others, array(layer.q.weight), wk, wv, heads)
    if project:
        expected = expected @ array(layer.out.weight).T
    assert_equal(layer(x, context), expected.reshape(1, *grid, -1))
    assert sum(1 for _ in layer.parameters()) == 2 + project


@GRIDS
@pytest.mark.parametrize("combine", ["sequence", "sum"])
def test_axial_attention_is_the_formula_along_lines(grid, combine):
    """Innermost axis first; in a sequence without projections, values keep the width."""
    axes = tuple(range(len(grid), 0, -1))
    width = 4 if combine == "sequence" else 6
    layer = with_random_weights(
        AxialAttention(4, 2, axes, combine, key_dim=6, value_dim=width, bias=False, project=False)
    )
    x = normal(1, *grid, 4)
    y, total = array(x)[0], 0
    for axis, part in zip(axes, layer.layers.values()):
        wq, wk, wv = np.split(array(part.qkv.weight), [6, 12])
        out = np.empty((*grid, width))
        for line in lines(grid, axis - 1):
            out[line] = multi_head(y[line], y[line], wq, wk, wv, 2)
        y, total = (out, out) if combine == "sequence" else (y, total + out)
    assert_equal(layer(x)[0], total)


@GRIDS
@pytest.mark.parametrize("extent", [{"size": 7}, {"span": 3}, {"span": 3, "causal": True}], ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "a head"])
def test_position_sensitive_attention_without_normalisation_is_equation_4_as_printed(grid, extent, shared):
    """y_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}), heads concatenated."""
    axis, reach = (len(grid) + 2) // 2, 6 if "size" in extent else 1
    layer = with_random_weights(
        PositionSensitiveAxialAttention(4, 2, axis, key_dim=6, normalisation="none", shared_tables=shared, **extent)
    )
    x = normal(1, *grid, 4)
    wq, wk, wv = (heads_of(w, 2) for w in np.split(array(layer.qkv.weight), [6, 12]))
    tables = [array(table) for table in (layer.query_table, layer.key_table, layer.value_table)]
    expected = np.empty((*grid, 4))
    for line in lines(grid, axis - 1):
        on_line = array(x)[0][line]
        for head in range(2):
            q, k, v = on_line @ wq[head], on_line @ wk[head], on_line @ wv[head]
            rq, rk, rv = (table[:, 0 if shared else head] for table in tables)
            for o in range(len(on_line)):
                numerator, denominator = np.zeros(2), 0.0
                for p in range(len(on_line)):
                    offset = p - o
                    if abs(offset) > reach or (offset > 0 and extent.get("causal")):
                        continue
                    row = reach + offset
                    weight = np.exp(q[o] @ k[p] + q[o] @ rq[row] + k[p] @ rk[row])
                    numerator, denominator = numerator + weight * (v[p] + rv[row]), denominator + weight
                expected[line][o, 2 * head : 2 * head + 2] = numerator / denominator
    assert_equal(layer(x)[0], expected)
    assert {name for name, _ in layer.named_parameters()} == {"qkv.weight", "query_table", "key_table", "value_table"}


def test_layers_without_biases_or_projection_go_step_by_step_too():
    layer = with_random_weights(LineAttention(4, 2, axis=-3, causal=True, value_dim=6, bias=False, project=False))
    x = normal(2, 3, 5, 4)
    cache = layer.start(2, (5,), 3)
    steps = torch.stack([layer.step(x[:, i], i, cache) for i in range(3)], dim=1)
    torch.testing.assert_close(steps, layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalisation", ["none", "scale", "batch"])
def test_biases_and_projection_of_position_sensitive_attention_are_as_asked(normalisation):
    for bias, project in ((False, False), (False, True), (True, False), (True, True)):
        layer = PositionSensitiveAxialAttention(
            4, 2, 1, 5, normalisation=normalisation, value_dim=6, bias=bias, project=project
        )
        names = {name for name, _ in layer.named_parameters()}
        assert [f"{part}.bias" in names for part in ("qkv", "out")] == [bias, bias and project]
        assert layer(normal(2, 5, 4).float()).shape == (2, 5, 4 if project else 6)


def test_rows_come_first_unless_axes_say_otherwise():
    layer = with_random_weights(AxialAttention(4, 2))
    x = normal(1, 3, 5, 4)
    rows, columns = layer.layers["axis_2"], layer.layers["axis_1"]
    assert (rows.axis, columns.axis) == (2, 1)
    torch.testing.assert_close(layer(x), columns(rows(x)), rtol=0, atol=0)


def test_weights_are_named_by_axis_and_come_back_to_it_in_any_order():
    stored = AxialAttention(4, 2, (1, 2, 1)).state_dict()
    assert {name.split(".")[1] for name in stored} == {"axis_1", "axis_2", "axis_1_round_2"}
    layer = AxialAttention(4, 2, (2, 1, 1))
    layer.load_state_dict(stored)
    assert [part.axis for part in layer.layers.values()] == [2, 1, 1]
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, stored[name])
