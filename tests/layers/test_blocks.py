"""Blocks, embeddings and initialisation."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from axial_transformers.layers.blocks import Dropout, GatedConvolution, TransformerBlock, without_dropout
from axial_transformers.layers.embeddings import Embedding, Labels, Positions
from axial_transformers.layers.initialisation import Dense, normal_table, randomise
from axial_transformers.layers.lines import LineAttention


def block(axis: int, dropout: float = 0.0) -> TransformerBlock:
    return TransformerBlock(LineAttention(8, 2, axis, residual=True), hidden=16, dropout=dropout)


@pytest.mark.parametrize("axis", [-2, -3])
def test_a_block_begins_as_the_identity(axis):
    x = torch.randn(2, 3, 5, 8)
    assert torch.equal(block(axis)(x), x)


def test_dropout_acts_on_the_branches_only():
    layer = block(-2, dropout=0.999)
    randomise(layer)
    x = torch.randn(2, 3, 8)
    assert (layer(x) == x).double().mean() > 0.9


def test_without_dropout_restores_the_mode_even_after_an_error():
    layer = Dropout(0.5)

    def fail() -> None:
        with without_dropout(layer):
            assert not layer.training
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert layer.training


WINDOWS = pytest.mark.parametrize(
    ("shape", "reach", "inside"),
    [
        ((6,), 2, 0),
        ((1,), 2, 0),
        ((3, 5), 1, 1),
        ((4, 1), 1, 1),
        ((3, 2, 5), 1, 2),
        ((3, 1, 2, 4), 1, 3),
        ((2, 3, 1, 2, 2), 2, 4),
    ],
)


def random_convolution(reach: int, inside: int) -> GatedConvolution:
    layer = GatedConvolution(4, 3, reach, inside).double()
    randomise(layer, torch.Generator().manual_seed(0))
    return layer


@WINDOWS
def test_a_gated_convolution_is_a_gate_of_linear_layers_of_each_window(shape, reach, inside):
    layer = random_convolution(reach, inside)
    x = torch.randn(2, *shape, 4, dtype=torch.float64)
    padded = F.pad(layer.norm(x), (0, 0) + (1, 1) * inside + (reach, 0))
    gated = torch.empty(2, *shape, 3, dtype=torch.float64)
    for position in product(*map(range, shape)):
        sizes = (reach + 1, *[3] * inside)
        window = padded[(slice(None), *(slice(i, i + size) for i, size in zip(position, sizes)))].flatten(1)
        values, gates = F.linear(window, layer.near.weight, layer.near.bias).chunk(2, dim=-1)
        gated[(slice(None), *position)] = values * gates.sigmoid()
    torch.testing.assert_close(layer(x), x + layer.out(gated))


@WINDOWS
def test_a_gated_convolution_slab_by_slab_equals_that_of_all_slabs(shape, reach, inside):
    layer = random_convolution(reach, inside)
    x = torch.randn(2, *shape, 4, dtype=torch.float64)
    state = layer.start(2, shape[1:], shape[0])
    slabs = [layer.step(slab, i, state) for i, slab in enumerate(x.unbind(1))]
    torch.testing.assert_close(torch.stack(slabs, dim=1), layer(x))


def test_a_gated_convolution_is_along_the_innermost_axes():
    layer = random_convolution(reach=1, inside=1)
    x = torch.randn(2, 3, 4, 5, 4, dtype=torch.float64)
    frames = [layer(frame) for frame in x.unbind(1)]
    torch.testing.assert_close(layer(x), torch.stack(frames, dim=1))


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
def test_the_embedding_of_a_position_is_the_sum_of_its_rows(shape):
    positions = Positions(shape, 4)
    assert positions().shape == (*shape, 4)
    for position in product(*map(range, shape)):
        expected = sum(table[i] for table, i in zip(positions.tables, position))
        torch.testing.assert_close(positions()[position], expected)


def test_no_label_is_the_last_row():
    labels = Labels(3, 4)
    assert torch.equal(labels(None, 2), labels(torch.tensor([3, 3]), 2))
    assert not torch.equal(labels(None, 1), labels(torch.tensor([2]), 1))


def test_weights_begin_with_variance_one_over_fan_in():
    dense = Dense(400, 300)
    assert not dense.bias.any()
    assert dense.weight.std().item() == pytest.approx(1 / 20, rel=0.01)
    assert dense.weight.abs().max() <= 2.2737 / 20
    assert not Dense(8, 8, residual=True).weight.any()
    assert normal_table(300, 400).std().item() == pytest.approx(1 / 20, rel=0.01)


def test_random_weights_have_scale_one():
    layers = {"dense": Dense(400, 300, residual=True), "norm": nn.LayerNorm(1000), "table": Embedding(300, 400)}
    parts = nn.ModuleDict({**layers, "lstm": nn.LSTM(100, 100)})
    randomise(parts, torch.Generator().manual_seed(0))
    scales = {"dense.weight": 1 / 20, "table.table": 1.0, "lstm.weight_hh_l0": 1 / 10}
    scales |= dict.fromkeys(("dense.bias", "norm.bias", "norm.weight", "lstm.bias_ih_l0"), 0.1)
    for name, scale in scales.items():
        assert parts.get_parameter(name).std().item() == pytest.approx(scale, rel=0.15), name
    assert parts["norm"].weight.mean().item() == pytest.approx(1, abs=0.02)
