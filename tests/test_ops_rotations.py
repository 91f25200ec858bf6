"""Rotations by a stored table: those of `ops.positions.rotary`, compiled and composed, with their derivatives."""

import pytest
import torch

from axial_transformers.layers.attention import AxisAttention
from axial_transformers.ops import rotations
from axial_transformers.ops.positions import rotary
from axial_transformers.ops.rotations import rotate_packed, rotation_table

SHAPES = [(2, 7), (3, 5, 2), (1, 3), (2, 3, 2, 4)]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["composed", "compiled"])
def way(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(rotations, "pays", lambda x: request.param == "compiled")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "width"), [(2, 6), (3, 32), (1, 50)])
def test_packed_heads_are_rotated_as_by_rotary_and_the_rest_stays(way, heads, width, dtype):
    tolerance = 1e-6 if dtype == torch.float32 else 2**-7
    for shape in SHAPES:
        for axis in (*range(1, len(shape)), -2):
            x = random(*shape, heads * width + 5).to(dtype).requires_grad_()
            length = x.shape[axis]
            found = rotate_packed(x, rotation_table(length + 2, width, 50.0), heads, axis)
            q = x[..., :-5].unflatten(-1, (heads, width))
            expected = rotary(q, axis if axis > 0 else axis - 1, base=50.0).flatten(-2)
            torch.testing.assert_close(found[..., :-5], expected, rtol=tolerance, atol=tolerance)
            assert torch.equal(found[..., -5:], x[..., -5:])
            above = random(*found.shape, seed=1).to(dtype)
            got, wanted = (torch.autograd.grad(y, x, above) for y in (found, torch.cat([expected, x[..., -5:]], -1)))
            torch.testing.assert_close(got, wanted, rtol=tolerance, atol=2 * tolerance)


def test_scores_depend_on_the_distance_of_places_alone():
    table = rotation_table(40, 8, 100.0).double()
    q, k = (random(1, 40, 1, 8, seed=seed)[:, :1].double().expand(1, 40, 1, 8) for seed in (0, 1))
    scores = (rotations.rotate(q, table, 1) @ rotations.rotate(k, table, 1).transpose(-1, -2)).flatten()
    assert torch.allclose(scores, scores[0])
    scores = rotations.rotate(q, table, 1)[0, :, 0] @ rotations.rotate(k, table, 1)[0, :, 0].T
    for distance in (-7, 0, 3):
        along = scores.diagonal(distance)
        assert torch.allclose(along, along[0].expand_as(along), atol=1e-6)
    assert not torch.allclose(scores[0, 0], scores[0, 3], atol=1e-3)


@pytest.mark.parametrize("axis", [1, -2])
def test_a_rotated_layer_has_the_same_outputs_step_by_step(axis):
    layer = AxisAttention(8, 2, axis=-3, masked=True, rotations=rotation_table(5, 4, 9.0)).double()
    layer.rotations = rotation_table(5, 4, 9.0).double()
    x = random(2, 5, 3, 8).double()
    cache = layer.start(2, (3,), 5)
    slabs = [layer.step(x[:, i], i, cache) for i in range(5)]
    torch.testing.assert_close(torch.stack(slabs, dim=1), layer(x))
    assert "rotations" in layer.state_dict()


def test_weights_and_outputs_of_a_rotated_layer_agree():
    layer = AxisAttention(8, 2, axis=2, residual=False, rotations=rotation_table(4, 4, 9.0))
    plain = AxisAttention(8, 2, axis=2, residual=False)
    plain.load_state_dict({name: tensor for name, tensor in layer.state_dict().items() if name != "rotations"})
    x = random(2, 3, 4, 8)
    values = layer.qkv(x)[..., 16:].unflatten(-1, (2, 4))
    expected = layer.out(torch.einsum("bhwnl,bhlnk->bhwnk", layer.weights(x), values).flatten(-2))
    torch.testing.assert_close(layer(x), expected)
    assert not torch.allclose(layer(x), plain(x), atol=1e-3)
