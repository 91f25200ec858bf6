"""Transformer blocks and likelihoods in one kernel equal their modules, which are computed in float64."""

import pytest
import torch
import torch.nn.functional as F

from axial_transformers.kernels import registers
from axial_transformers.layers.attention import AxisAttention
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood import bits, bits_map
from axial_transformers.ops import compiled_block
from axial_transformers.ops.prediction import Predictor
from axial_transformers.ops.rotations import rotation_table
from small_models import random_model, random_values, small_config

pytest.importorskip("numba", reason="the kernels are compiled by numba")


@pytest.fixture
def always(monkeypatch):
    """The kernels are taken at any size; how often is counted."""
    calls = []
    monkeypatch.setattr(compiled_block, "PAYS_FROM", 0)
    for name in ("transformer_block", "nats"):
        kernel = getattr(compiled_block, name)
        monkeypatch.setattr(compiled_block, name, lambda *args, kernel=kernel: calls.append(kernel) or kernel(*args))
    return calls


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dim", "heads", "hidden"), [(32, 2, 64), (42, 3, 71), (5, 1, 3)])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 2), (2, 70), (70, 2)], ids=str)
def test_block_in_one_kernel_equals_its_layers(always, shape, dim, heads, hidden, causal):
    for axis in (*range(1, len(shape) + 1), -2):
        turned = None if dim % (2 * heads) else rotation_table(70, dim // heads, 7.0)
        block = TransformerBlock(AxisAttention(dim, heads, axis, causal, rotations=turned), hidden).eval()
        randomise(block, torch.Generator().manual_seed(axis))
        x = torch.randn(3, *shape, dim, generator=torch.Generator().manual_seed(1))
        before, got = x.clone(), block(x)
        assert torch.equal(x, before)
        expected = block.double()(x.double())
        torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-5 * expected.abs().max().item())
    assert len(always) == len(shape) + 1


@torch.no_grad()
@pytest.mark.parametrize(("rows", "dim", "values"), [(1, 5, 3), (70, 42, 41), (64, 32, 256)])
def test_nats_equal_the_cross_entropy_of_the_logits(rows, dim, values):
    head = torch.nn.Sequential(torch.nn.LayerNorm(dim), torch.nn.Linear(dim, values))
    randomise(head, torch.Generator().manual_seed(0))
    x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(1))
    chosen = torch.arange(rows) % values
    got = compiled_block.nats(x, list(head.parameters()), chosen)
    expected = F.cross_entropy(head.double()(x.double()), chosen, reduction="none")
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_nats_of_signed_differences_equal_the_cross_entropy_of_the_logits_that_lead_to_values():
    head = torch.nn.Sequential(torch.nn.LayerNorm(12), torch.nn.Linear(12, 2 * 41))
    randomise(head, torch.Generator().manual_seed(0))
    x = torch.randn(70, 12, generator=torch.Generator().manual_seed(1))
    chosen, predictions = torch.arange(70) % 41, torch.arange(70) * 7 % 41
    got = compiled_block.nats(x, list(head.parameters()), chosen, predictions)
    logits = Predictor(41, False, True).logits(head.double()(x.double()), predictions)
    expected = F.cross_entropy(logits, chosen, reduction="none")
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_bits_of_a_model_are_the_same_from_kernels_and_from_layers(always):
    model = random_model(small_config((3, 5), 2, dim=12), torch.float32)
    x = random_values(model, 3)
    got = bits_map(model, x)
    assert len(always) == 2 * (2 + 2 + 1 + 1), "blocks of encoder, outer and inner decoder, and the head, by slice"
    torch.testing.assert_close(got, bits_map(model.double(), x).float(), rtol=1e-4, atol=1e-4)
    assert len(always) == 12


def test_kernels_are_left_where_gradients_dropout_or_another_attention_ask_for_it(always):
    x = torch.randn(2, 4, 8)
    block = TransformerBlock(AxisAttention(8, 2, 1), 8, dropout=0.5)
    block(x)
    with torch.no_grad():
        block.train()(x)
        TransformerBlock(AxisAttention(8, 2, 1, key_dim=4), 8).eval()(x)
        TransformerBlock(AxisAttention(8, 2, 1, bias=False), 8).eval()(x)
        assert not always
        block.eval()(x)
    assert len(always) == 1


@pytest.mark.parametrize(
    ("features", "lanes"),
    [("+sse,+avx,+avx2,+avx512f", 16), ("+avx,+avx2,+fma,-avx512f", 8), ("+neon", 4), ("-avx,+sse2", 4), ("", 4)],
)
def test_vectors_are_as_wide_as_the_registers(features, lanes):
    assert registers.lanes(features) == lanes


@torch.no_grad()
@pytest.mark.parametrize(("size", "batch"), [(6, 5_000), (28, 300), (100, 20), (300, 3)])
def test_the_parts_of_a_large_batch_are_large_enough_for_the_kernels(size, batch):
    model = random_model(small_config((size, size)))
    x = torch.zeros(batch, size, size, 1, dtype=torch.uint8)
    first, *_ = next(bits._parts(model, x, None, None))
    assert len(first) < batch
    assert first.numel() * model.config.dim >= compiled_block.PAYS_FROM
