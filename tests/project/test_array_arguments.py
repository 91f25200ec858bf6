"""Public functions take arrays of NumPy and nested lists where tensors are meant."""

import warnings

import numpy as np
import pytest
import torch

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise


@pytest.fixture(scope="module")
def model() -> axial.AxialTransformer:
    config = axial.AxialTransformerConfig(
        shape=(3, 5), num_values=7, num_classes=3, dim=8, heads=2, outer_layers=2, inner_layers=1
    )
    model = axial.AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))
    return model


KINDS = {
    "array": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "reversed, of other bytes": lambda x: x.numpy()[::-1].astype(x.numpy().dtype.newbyteorder(">"))[::-1],
    "double or uint16": lambda x: x.numpy().astype(np.float64 if x.is_floating_point() else np.uint16),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_lists_give_what_tensors_give(model, kind):
    given, generator = KINDS[kind], torch.Generator().manual_seed(0)
    x, label = torch.randint(7, (2, 3, 5, 1), generator=generator), torch.tensor([0, 2])
    cond, noise = torch.randn(2, 3, 5, 8, generator=generator), torch.randn(2, 3, 5, 1, 7, generator=generator)
    mask = torch.arange(15).view(3, 5) < 7
    as_arrays, as_tensors = {"label": given(label), "cond": given(cond)}, {"label": label, "cond": cond}
    for function in (axial.bits_per_dim, axial.bits_map):
        assert torch.equal(function(model, given(x), **as_arrays), function(model, x, **as_tensors))
    loss = axial.random_slice_loss(model, given(x), **as_arrays, channel=given(torch.zeros(2, dtype=torch.int64)))
    assert torch.equal(loss, axial.random_slice_loss(model, x, **as_tensors))
    drawn = axial.sample(model, noise=given(noise), **as_arrays)
    assert torch.equal(drawn, axial.sample(model, noise=noise, **as_tensors))
    mask_given = mask.numpy() if kind == "array" else mask.tolist()
    filled = axial.complete(model, given(x), mask=mask_given, noise=given(noise), **as_arrays)
    assert torch.equal(filled, axial.complete(model, x, mask=mask, noise=noise, **as_tensors))


@pytest.mark.parametrize("x", [None, "x", 3, [[1], [1, 2]], np.zeros(3, object), np.zeros(3, complex)], ids=repr)
def test_what_is_no_array_of_numbers_is_named(model, x):
    with pytest.raises(ValueError, match="x must") as found:
        axial.bits_per_dim(model, x)
    assert "\n" not in str(found.value)


def test_read_only_arrays_are_not_changed(model):
    x = np.zeros((2, 3, 5, 1), np.uint8)
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axial.bits_per_dim(model, x, label=[0, 1])
    assert not x.any()
