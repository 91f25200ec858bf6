"""The exact network: when it is taken, and that its numbers depend on nothing but model and data."""

import copy
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from axial_transformers.engine import GROUP, Known
from axial_transformers.exact.network import ExactNetwork, exact_network, obstacle
from axial_transformers.layers.initialisation import Dense
from axial_transformers.layers.lines import AttentionOptions, LineAttention
from axial_transformers.likelihood import bits_map, bits_per_dim, summarise
from tests.small_models import PAIRWISE, random_given, random_model, random_values, small_config


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def replace_attention(model: nn.Module, heads: int = 2, causal: bool = True, **options) -> None:
    model.inner_decoder.blocks[0].attention.attention = LineAttention(12, heads, -2, causal, **options)


def double_the_head(model: nn.Module) -> None:
    head = Doubled(model.head[1].in_features, model.head[1].out_features)
    head.load_state_dict(model.head[1].state_dict())
    model.head[1] = head


def replace_forward(model: nn.Module) -> None:
    block = model.inner_decoder.blocks[0]
    block.forward = lambda x, forward=block.forward: forward(x).roll(1, -1)


CHANGES = {
    "hook": lambda model: model.head[0].register_forward_hook(lambda module, args, y: 2 * y),
    "hook before": lambda model: model.inner_decoder.register_forward_pre_hook(lambda module, args: (2 * args[0],)),
    "pruned": lambda model: prune.l1_unstructured(model.head[1], "weight", amount=0.5),
    "spectral norm": lambda model: parametrizations.spectral_norm(model.head[1]),
    "another forward": replace_forward,
    "subclass": double_the_head,
    "options": lambda model: replace_attention(model, options=AttentionOptions(gate=True)),
    "eps": lambda model: setattr(model.head[0], "eps", 1.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_module_changes_the_likelihood(change):
    model = random_model(small_config((3, 5), 2, dim=12), torch.float32)
    x, changed = random_values(model, 3), copy.deepcopy(model)
    CHANGES[change](changed)
    changed.eval()
    assert isinstance(exact_network(model), ExactNetwork)
    assert re.search("hooks or a forward|not as the model's configuration", exact_network(changed))
    assert obstacle(changed) == exact_network(changed)
    expected = bits_map(changed.double(), x)
    torch.testing.assert_close(bits_map(changed.float(), x).double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(bits_map(model, x).double(), expected, atol=1e-2)


def test_other_dtypes_devices_and_precisions_and_torch_compile_take_the_forward_pass(monkeypatch):
    model = random_model(small_config((3, 5)), torch.float32)
    assert isinstance(exact_network(model), ExactNetwork)
    with torch.autocast("cpu", torch.bfloat16):
        assert "under autocast" in exact_network(model)
    others = [copy.deepcopy(model).double(), copy.deepcopy(model).bfloat16()]
    with torch.device("meta"):
        others.append(type(model)(model.config))
    for other in others:
        assert exact_network(other) == "the exact network computes float32 models on a CPU"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert exact_network(model) == "torch.compile does not trace the exact network"


@pytest.mark.parametrize("name", ["volume", "columns"])
def test_likelihoods_depend_on_neither_batch_nor_threads_nor_mode(name):
    model = random_model(PAIRWISE[name], torch.float32)
    x, given = random_values(model, GROUP + 2), random_given(model, GROUP + 2)
    whole = bits_per_dim(model, x, **given)
    for i in (0, GROUP - 1, GROUP, GROUP + 1):
        one = slice(i, i + 1)
        assert torch.equal(whole[one], bits_per_dim(model, x[one], **{k: v[one] for k, v in given.items()}))
    torch.set_num_threads(2)
    try:
        assert torch.equal(whole, bits_per_dim(model.train(), x, **given))
    finally:
        torch.set_num_threads(1)
    assert model.training


def test_the_mean_over_examples_is_added_in_order():
    bits = torch.rand(10_001, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e6
    total = 0.0
    for number in bits.tolist():
        total += number
    assert summarise(bits).bits_per_dim == total / len(bits)
    assert summarise(bits).standard_error == pytest.approx(bits.std().item() / len(bits) ** 0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.inner_decoder.blocks[0].feedforward, "contract", Dense(4000, 12)),
        lambda model: setattr(model.inner_decoder.blocks[0].attention, "norm", nn.LayerNorm(4)),
        lambda model: replace_attention(model, key_dim=4),
        lambda model: replace_attention(model, value_dim=400),
        lambda model: replace_attention(model, heads=4),
        lambda model: replace_attention(model, causal=False),
    ],
)
def test_layers_that_the_configuration_does_not_have_are_refused_before_c_reads_them(change):
    model = random_model(small_config((3, 5), 2, dim=12), torch.float32)
    change(model)
    assert obstacle(model).endswith("is not as the model's configuration has it")


def test_values_that_the_table_does_not_have_are_refused():
    network = ExactNetwork(random_model(small_config((3, 5), 2, dim=12), torch.float32))
    context, values = np.zeros((1, 5, 12), np.float32), np.full((1, 5, 1), 10**9)
    known = Known(values, np.zeros((1, 5, 1), np.float32))
    with pytest.raises(ValueError, match=r"0\.\.4"):
        network.rows.take_known(context, known)
