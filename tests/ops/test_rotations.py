"""Rotations by a stored table: those of `ops.positions.rotary`, composed and inside the engine."""

import pytest
import torch

from axial_transformers.ops import compiled_attention, composed_attention
from axial_transformers.ops.attention_call import packed_call
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.ops.backends import attend
from axial_transformers.ops.operators import has_engine
from axial_transformers.ops.positions import rotary, rotation_table
from tests.forced_backend import forced


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def by_definition(qkv, heads, width, axis, causal, base):
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in qkv.split(heads * width, dim=-1))
    q, k = (rotary(part, axis, base=base) for part in (q, k))
    return axial_attention(q, k, v, axis, causal)


@pytest.mark.parametrize("way", ["composed", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "width"), [(2, 6), (3, 32), (1, 50)])
def test_packed_attention_rotates_queries_and_keys_forward_and_backward(way, heads, width, dtype):
    if way == "compiled" and not has_engine():
        pytest.skip("the engine is not compiled")
    backend = compiled_attention if way == "compiled" else composed_attention
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    for shape, axis, causal in (
        ((2, 7), 1, True),
        ((3, 5, 2), 2, False),
        ((1, 70, 3), 1, False),
        ((2, 3, 17), 1, True),
    ):
        x = (random(*shape, 3 * heads * width) / 2).to(dtype).requires_grad_()
        table, widths = rotation_table(shape[axis] + 2, width, 50.0), (heads * width,) * 3
        with forced(backend):
            found = attend(packed_call(x, (heads, *widths), axis, causal, rotations=table))
        expected = by_definition(x.double(), heads, width, axis, causal, 50.0)
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
        above = random(*found.shape, seed=1)
        got, wanted = (torch.autograd.grad((y * above).sum(), x)[0] for y in (found, expected))
        torch.testing.assert_close(got.double(), wanted.double(), rtol=tolerance, atol=2 * tolerance)
