"""What is not finite where a key is masked reaches no other output and no gradient."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

import axial_transformers as axial
from axial_transformers.ops import sdpa, torch_attention
from axial_transformers.ops.axial_attention import (
    axial_attention,
    full_attention,
    position_sensitive_attention,
    tied_axial_attention,
)
from tests.forced_backend import forced
from tests.layers.test_wrappers import LAYERS, layer_and_inputs

MORE = {
    f"LineAttention {name} {n}": partial(axial.LineAttention, 8, 2, n, options=axial.AttentionOptions(**options))
    for n in (1, 2, 3)
    for name, options in {"window": {"window": 3}, "dilation": {"dilation": 2, "kv_heads": 1}}.items()
}


def equation_4(rows):
    """Attention in bands, or over the whole line."""
    tables = [torch.randn(rows, 1, 4) for _ in range(3)]
    return lambda q, k, v, axis, key_mask: position_sensitive_attention(q, k, v, *tables, axis=axis, key_mask=key_mask)


FUNCTIONS = {
    "axial": axial_attention,
    "causal": partial(axial_attention, causal=True),
    "window": partial(axial_attention, window=3, dilation=2),
    "bias": partial(axial_attention, attn_bias=torch.randn(1, 2, 7, 7)),
    "tied": partial(tied_axial_attention, tied=1),
    "full": lambda q, k, v, axis, key_mask: full_attention(q, k, v, key_mask),
    **{f"equation 4, {rows} rows": equation_4(rows) for rows in (3, 13)},
}
BACKENDS = {"own": None, "composed": torch_attention, "fused": sdpa}
EVERY_WAY = [(name, each) for name in FUNCTIONS for each in (["own"] if name.startswith("eq") else BACKENDS)]


def spoiled(x, present, large):
    """NaN, infinities and a number in place of what is absent; zeros; each with gradients."""
    strange = torch.tensor([torch.nan, torch.inf, -torch.inf, large]).repeat(x.shape[-1])[: x.shape[-1]]
    present = present.view(*present.shape, *[1] * (x.ndim - present.ndim))
    return torch.where(present, x, strange).requires_grad_(), torch.where(present, x, 0).requires_grad_()


def assert_no_influence(function, tensors, present, count, outputs, weights=(), large=1e30):
    """Compare outputs and gradients where the last `count` of the tensors are spoiled at absent positions."""
    found = []
    for which in (0, 1):
        given = [*tensors[:-count], *(spoiled(x, present, large)[which] for x in tensors[-count:])]
        out = function(*given, key_mask=present)[outputs]
        gradients = torch.autograd.grad(out.sin().sum(), [*given[-count:], *weights], allow_unused=True)
        of_inputs = [None if x is None else x[present] for x in gradients[:count]]
        found.append([out, *of_inputs, *gradients[count:]])
        assert all(x is None or x.isfinite().all() for x in (out, *gradients))
    for mine, right in zip(*found, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [*LAYERS, *MORE])
def test_what_is_not_finite_at_absent_positions_has_no_influence_in_any_layer(name, training):
    layer, inputs = layer_and_inputs(name) if name in LAYERS else (MORE[name](), (torch.randn(2, 3, 4, 5, 8),))
    layer.train(training)
    keys = inputs[-1].movedim(1, -1) if name == "ChannelsFirst" else inputs[-1]
    present = torch.rand(keys.shape[:-1], generator=torch.Generator().manual_seed(1)) > 0.3
    outputs = ... if name == "CrossAttention" else present

    def channels_first(x, key_mask):
        return layer(x.movedim(-1, 1), key_mask).movedim(1, -1)

    function = channels_first if name == "ChannelsFirst" else layer
    large = torch.nan if "batch" in name else 1e30  # statistics of a batch cover all positions
    assert_no_influence(function, (*inputs[:-1], keys), present, 1, outputs, [*layer.parameters()], large)


@pytest.mark.parametrize(("name", "backend"), EVERY_WAY)
def test_what_is_not_finite_at_absent_positions_has_no_influence_in_any_function(name, backend):
    torch.manual_seed(0)
    tensors, present = torch.randn(3, 2, 3, 7, 2, 4).unbind(), torch.rand(2, 3, 7) > 0.3
    count, outputs = (2, ...) if name.startswith("full") else (3, present)
    call = partial(FUNCTIONS[name], axis=2)
    with nullcontext() if backend == "own" else forced(BACKENDS[backend]):
        assert_no_influence(call, tensors, present, count, outputs)
