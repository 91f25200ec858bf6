"""Models whose weights are not plain tensors: quantised by torchao, or shards."""

from functools import partial
from importlib.util import find_spec

import pytest
import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from tests.launching import fork
from tests.quantised_weights import quantised


def new_model():
    torch.manual_seed(0)
    model = axial.AxialTransformer(axial.AxialTransformerConfig(shape=(3, 4), channels=1, num_values=5, dim=8, heads=2))
    randomise(model)
    return model.eval()


def test_quantised_models_score_and_sample_as_their_numbers_do_and_are_not_stored(tmp_path):
    small, plain = quantised(new_model())
    x = axial.sample(plain, 3, seed=0, compile=False)
    assert torch.equal(axial.sample(small, 3, seed=0), x)
    torch.testing.assert_close(axial.bits_per_dim(small, x), axial.bits_per_dim(plain, x), rtol=1e-5, atol=0)
    with pytest.raises(ValueError, match="Quantised"):
        small.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.skipif(not find_spec("torchao"), reason="needs torchao")
def test_models_quantised_by_torchao_are_sampled(tmp_path):
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = new_model()
    x = axial.sample(model, 3, seed=0)
    expected = axial.bits_per_dim(model, x)
    quantize_(model, Int8WeightOnlyConfig())
    assert axial.sample(model, 3, seed=0).shape == x.shape
    torch.testing.assert_close(axial.bits_per_dim(model, x), expected, rtol=0.1, atol=0)
    with pytest.raises(ValueError, match="quantised"):
        model.save_pretrained(tmp_path / "model")


def shards_are_refused(folder):
    torch.distributed.init_process_group("gloo")
    model = new_model()
    x = axial.sample(model, 2, seed=0)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    calls = (
        partial(axial.sample, model, 2, seed=0),
        partial(axial.bits_per_dim, model, x),
        partial(axial.random_slice_loss, model, x),
        partial(model.save_pretrained, folder / "model"),
    )
    for call in calls:
        with pytest.raises(ValueError, match="full_tensor"):
            call()
    other = axial.AxialTransformer(model.config)
    other.load_state_dict({name: each.full_tensor() for name, each in model.state_dict().items()})
    assert torch.equal(axial.sample(other, 2, seed=0), x)
    torch.distributed.destroy_process_group()
    return 0


def test_shards_are_refused_in_one_line_and_what_it_says_helps(tmp_path):
    assert [status for status, _, _ in fork(1, partial(shards_are_refused, tmp_path), tmp_path)] == [0]
