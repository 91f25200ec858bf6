"""Blocks, embeddings and initialisation."""

from math import sqrt

import pytest
import torch
from torch import nn

from axial_transformers.layers.blocks import Dropout, TransformerBlock, without_dropout
from axial_transformers.layers.embeddings import Embedding, Labels, Positions
from axial_transformers.layers.initialisation import Dense, normal_table, randomise
from axial_transformers.layers.lines import LineAttention


def block(axis: int, masked: bool = False, dropout: float = 0.0) -> TransformerBlock:
    return TransformerBlock(LineAttention(8, 2, axis, masked, residual=True), hidden=16, dropout=dropout)


@pytest.mark.parametrize("axis", [-2, -3])
def test_a_block_begins_as_the_identity(axis):
    x = torch.randn(2, 3, 5, 8)
    assert torch.equal(block(axis)(x), x)


@pytest.mark.parametrize("axis", [-2, -3])
def test_a_masked_block_is_computed_slab_by_slab_as_at_once(axis):
    layer = block(axis, masked=True)
    randomise(layer)
    layer.double()
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    length, slab = x.shape[axis], x.select(axis, 0).shape[1:-1]
    cache = layer.start(2, slab, length)
    steps = [layer.step(x.select(axis, i), i, cache) for i in range(length)]
    torch.testing.assert_close(torch.stack(steps, dim=axis), layer(x), rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
def test_the_embedding_of_a_position_is_the_sum_of_its_rows(shape):
    positions = Positions(shape, 4)
    for position in ((0,) * len(shape), tuple(size - 1 for size in shape), tuple(range(len(shape)))):
        expected = sum(table[i] for table, i in zip(positions.tables, position))
        torch.testing.assert_close(positions()[position], expected)
    assert positions().shape == (*shape, 4)


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
    dense, norm, table, lstm = (
        Dense(400, 300, residual=True),
        nn.LayerNorm(1000),
        Embedding(300, 400),
        nn.LSTM(100, 100),
    )
    parts = nn.ModuleDict({"dense": dense, "norm": norm, "table": table, "lstm": lstm})
    randomise(parts, torch.Generator().manual_seed(0))
    scales = {
        "dense.weight": 1 / 20,
        "dense.bias": 0.1,
        "norm.bias": 0.1,
        "table.table": 1.0,
        "lstm.weight_hh_l0": 1 / sqrt(100),
        "lstm.bias_ih_l0": 0.1,
    }
    for name, parameter in parts.named_parameters():
        if name in scales:
            assert parameter.std().item() == pytest.approx(scales[name], rel=0.15), name
    assert norm.weight.mean().item() == pytest.approx(1, abs=0.02)
