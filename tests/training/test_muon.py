"""Muon moves the matrices of the blocks, each along its own orthogonalised momentum; the rest stays Adam's."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.layers.blocks import block_matrices
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, optimizer as muon_module, train
from axial_transformers.training.optimizer import Muon, optimizers, orthogonalise

MODEL = AxialTransformerConfig(
    shape=(3, 2), channels=2, num_values=4, dim=8, heads=2, encoder_layers=2, outer_layers=2, inner_layers=1
)
CONFIG = TrainConfig(
    steps=6, batch_size=4, optimizer="muon", learning_rate=1e-2, warmup_steps=2, device="cpu", precision="float32",
    compile=False, save_every=3,
)  # fmt: skip


def model() -> AxialTransformer:
    torch.manual_seed(0)
    return AxialTransformer(MODEL)


def run(folder: Path, **changes) -> Path:
    values = np.random.default_rng(1).integers(0, 4, (9, 3, 2, 2), dtype=np.uint8)
    examples = Examples(values, [str(i) for i in range(9)], range=ValueRange(0, 3))
    train(model(), examples, dataclasses.replace(CONFIG, **changes), folder, resume=True)
    return folder


def stored(folder: Path) -> list[dict[str, Tensor]]:
    return [load_file(file) for file in sorted((folder / "checkpoints/step-00000006").glob("*.safetensors"))]


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (8, 8)])
def test_an_orthogonalised_matrix_keeps_its_singular_vectors_and_has_singular_values_near_one(shape):
    matrices = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, s, v = torch.linalg.svd(matrices * 100, full_matrices=False)
    turned = u.mT @ orthogonalise(matrices * 100) @ v.mT
    values = turned.diagonal(dim1=-2, dim2=-1)
    assert (turned - torch.diag_embed(values)).abs().max() < 1e-9
    large = values[s > 0.05 * s.amax(-1, keepdim=True)]
    assert 0.65 < large.min() < large.max() < 1.25


def test_gradients_of_nearly_zero_move_a_matrix_by_nearly_nothing():
    matrices = torch.randn(3, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = torch.linalg.matrix_norm(orthogonalise(matrices * 1e-8), ord=2)
    assert (sizes < 0.01).all()
    assert (torch.linalg.matrix_norm(orthogonalise(matrices), ord=2) > 0.6).all()


@pytest.mark.parametrize("together", [2**22, 1])
def test_steps_are_those_of_torchs_muon_with_each_matrix_by_itself(monkeypatch, together):
    """In one call or parameter by parameter; queries, keys and values apart, and not as one tall matrix."""
    monkeypatch.setattr(muon_module, "MAX_NUMBERS", together)
    generator = torch.Generator().manual_seed(0)
    shapes = {(24, 8): 3, (8, 8): 1, (32, 8): 1, (8, 32): 1}
    ours = {nn.Parameter(torch.randn(shape, generator=generator)): count for shape, count in shapes.items()}
    theirs = [nn.Parameter(part.clone()) for each, count in ours.items() for part in each.detach().chunk(count)]
    muon = Muon(ours.items(), lr=0.1, weight_decay=0.5)
    reference = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.5)
    before = [each.detach().clone() for each in ours]
    for _ in range(3):
        for each in ours:
            each.grad = torch.randn(each.shape, generator=generator)
        parts = [part for each, count in ours.items() if each.grad is not None for part in each.grad.chunk(count)]
        for each, gradient in zip(theirs, parts, strict=True):
            each.grad = gradient
        muon.step()
        reference.step()
    found = [part for each, count in ours.items() for part in each.detach().chunk(count)]
    assert all((a - b).abs().max() < 5e-3 for a, b in zip(found, theirs, strict=True))  # of bfloat16: 0.3 * 2^-8
    assert all((a - b).abs().max() > 0.05 for a, b in zip(ours, before, strict=True))


def test_muon_has_the_matrices_of_blocks_and_adam_all_else():
    found = model()
    names = {parameter: name for name, parameter in found.named_parameters()}
    adam, muon = ([names[each] for group in one.param_groups for each in group["params"]]
                  for one in optimizers(found, CONFIG))  # fmt: skip
    assert sorted(adam + muon) == sorted(names.values())
    kinds = (".qkv.weight", ".out.weight", ".expand.weight", ".contract.weight")
    assert {*muon} == {name for name in names.values() if name.endswith(kinds)}
    assert [count for each, count in block_matrices(found).items() if len(each) == 24] == [3] * MODEL.layers


def test_a_resumed_run_has_the_weights_and_momenta_of_a_whole_one(tmp_path):
    whole = stored(run(tmp_path / "whole"))
    run(tmp_path / "halves", steps=3)
    resumed = stored(run(tmp_path / "halves"))
    for one, other in zip(whole, resumed, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(name.endswith(".momentum_buffer") for name in whole[2])
