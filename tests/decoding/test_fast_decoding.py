"""Compiled decoding chooses what eager decoding chooses."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from axial_transformers.decoding import (
    NoiseChoice,
    Sampler,
    backend_choice,
    decode,
    gumbel,
    sampling,
)
from axial_transformers.exact import network as exact_network
from axial_transformers.layers.lines import LineAttention
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.stacks import InnerAttention
from tests.small_models import PAIRWISE, VARIANTS, random_given, random_model, random_values, small_config

COMPILED, EAGER = (partial(backend_choice.choose_backend, compile=compile) for compile in (True, False))
pairwise = pytest.mark.parametrize("config", PAIRWISE.values(), ids=PAIRWISE)
UNEVEN = AxialTransformerConfig(
    shape=(3, 21), num_values=41, dim=42, heads=3, mlp_ratio=1.7, outer_layers=4, inner_layers=3
)
"""Neither rows, widths, heads nor values are multiples of what the kernels take at once."""


def assert_equal_samples(model, batch, **options):
    x, given = random_values(model, batch), random_given(model, batch)
    noise = sampling.noise_for(model.config, len(x), seed=1)
    choose = NoiseChoice(noise=noise, sampler=Sampler(**options))
    compiled, eager = (decode(model, choose, x, Conditioning(**given), backend=each) for each in (COMPILED, EAGER))
    assert torch.equal(compiled, eager), options


@pytest.mark.parametrize("inner", ["attention", "lstm"])
def test_samples_equal_the_eager_ones_at_uneven_sizes(inner):
    config = UNEVEN if inner == "attention" else replace(UNEVEN, inner="lstm", inner_layers=1)
    for batch in (1, 2, 7, 21):
        assert_equal_samples(random_model(config, torch.float32), batch)


@pytest.mark.parametrize("values", ["categorical", "ordinal"])
@pytest.mark.parametrize("num_values", [41, 300])
def test_restricted_samples_equal_the_eager_ones(values, num_values):
    model = random_model(replace(UNEVEN, num_values=num_values, values=values), torch.float32)
    assert_equal_samples(model, 5, temperature=0.0)
    assert_equal_samples(model, 5, temperature=1.7)
    if values == "categorical":
        for options in ({"top_k": 1}, {"top_k": 100}, {"top_p": 0.5}, {"top_p": 1e-6}, {"top_p": 1.0}):
            assert_equal_samples(model, 5, **options)
        assert_equal_samples(model, 5, top_k=6, top_p=0.8, temperature=0.6)


@pytest.mark.parametrize("logits", [[0.0] * 5, [-1e-9, 0.0, -200.0, -200.0, -200.0], [3.0, 3.0, 1.0, 3.0, 3.0]])
def test_samples_restricted_at_ties_equal_the_eager_ones(logits):
    model = random_model(small_config((3, 4)), torch.float32)
    with torch.no_grad():
        model.head[1].weight.zero_()
        model.head[1].bias.copy_(torch.tensor(logits))
    for options in ({"top_p": 0.5}, {"top_p": 0.2}, {"top_k": 1}, {"top_k": 2, "top_p": 0.9}):
        assert_equal_samples(model, 6, **options)


@pairwise
def test_completions_of_any_mask_equal_the_eager_ones(config):
    model = random_model(config, torch.float32)
    known, given = random_values(model, 2), random_given(model, 2)
    mask = torch.rand(known.shape[1:], generator=torch.Generator().manual_seed(3)) < 0.5
    noise = sampling.noise_for(config, len(known), seed=1)
    top_k = 3 if config.values == "categorical" else None
    some = {"mask": mask, "approximate": True, "noise": noise, "top_k": top_k, **given}
    filled = [sampling.complete(model, known, compile=compile, **some) for compile in (True, False)]
    assert torch.equal(*filled)
    assert torch.equal(filled[0][:, mask].long(), known[:, mask])


@pytest.mark.parametrize("config", [UNEVEN, replace(UNEVEN, channels=2, num_classes=4, encoder_layers=2)])
def test_examples_split_over_threads_do_not_depend_on_each_other(config):
    model = random_model(config, torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert_equal_samples(model, 13)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("dtype", "choose", "what"),
    [
        (torch.float64, lambda noise: NoiseChoice(noise=noise), "float32"),
        (torch.float32, lambda noise: lambda logits, position: logits.argmax(-1), "Python function"),
    ],
    ids=["dtype", "function"],
)
def test_what_cannot_be_compiled_is_refused_where_it_is_asked_for_and_eager_elsewhere(dtype, choose, what):
    model = random_model(small_config((3, 2)), dtype)
    x = random_values(model, 2)
    choose = choose(gumbel((*x.shape, model.config.num_values)))
    with pytest.raises(ValueError, match=what):
        decode(model, choose, x, backend=COMPILED)
    found = decode(model, choose, x, backend=backend_choice.choose_backend)
    assert torch.equal(found, decode(model, choose, x, backend=EAGER))


class OtherAttention(LineAttention):
    """Attention of another pattern."""


class OtherModel(AxialTransformer):
    """A model that neither the exact network nor CUDA graphs know."""

    @staticmethod
    def build_inner(config: AxialTransformerConfig) -> InnerAttention:
        """Return a decoder of one layer."""
        return InnerAttention(config, [OtherAttention(config.dim, config.heads, -2, causal=True)])


def test_attention_that_has_no_kernel_is_eager_and_all_is_without_the_library(monkeypatch):
    other = OtherModel(small_config((2, 3))).eval()
    sampling.sample(other, 2)
    with pytest.raises(ValueError, match="OtherModel"):
        sampling.sample(other, 2, compile=True)
    assert backend_choice._obstacle_of_graphs(other) == "no CUDA graph is recorded of OtherAttention"
    assert backend_choice._obstacle_of_graphs(random_model(small_config((2, 3)), torch.float32)) is None
    monkeypatch.setattr(exact_network, "library", lambda: None)
    model = random_model(small_config((3, 2)), torch.float32)
    sampling.sample(model, 2)
    with pytest.raises(ValueError, match="not compiled"):
        sampling.sample(model, 2, compile=True)


def test_the_exact_network_is_the_default_and_checks_known_values():
    model, noise = random_model(small_config((3, 2)), torch.float32), gumbel((2, 3, 2, 1, 5))
    backend = backend_choice.choose_backend(model, NoiseChoice(noise=noise), 2)
    assert isinstance(backend.embed_value(torch.zeros(2, 2, 1).long()), np.ndarray)
    x = random_values(model, 2)
    with pytest.raises(ValueError, match="known"):
        decode(model, NoiseChoice(noise=noise, known=x + 5), x, backend=COMPILED)
    assert sampling.sample(model, 0, compile=True).shape == (0, 3, 2, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_graphs_replay_what_eager_decoding_computes(config, dtype):
    device = torch.device("cuda")
    model = random_model(config, dtype).to(device)
    x = random_values(model, 3).to(device)
    given = {name: tensor.to(device) for name, tensor in random_given(model, 3).items()}
    noise = sampling.noise_for(config, len(x), seed=1).to(device)
    choose = NoiseChoice(noise=noise, sampler=Sampler(top_k=4, top_p=0.9))
    assert torch.equal(
        decode(model, choose, x, Conditioning(**given), backend=COMPILED),
        decode(model, choose, x, Conditioning(**given), backend=EAGER),
    )
