"""Shifts and shifted copies equal their slow definitions."""

import pytest
import torch
import torch.nn.functional as F

from axial_transformers.ops import reference
from axial_transformers.ops.elementwise import shift, shifted_copies


@pytest.mark.parametrize("axis", [1, 2, 3, -2, -3])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 1, 7, 2), (2, 7, 1, 3)])
def test_shift_moves_one_place(shape, axis):
    x = torch.randn(shape)
    assert torch.equal(shift(x, axis), reference.shift(x, axis))


@pytest.mark.parametrize(("shape", "convolve"), [((5,), F.conv1d), ((3, 5), F.conv2d), ((2, 1, 4), F.conv3d)])
def test_a_linear_layer_of_shifted_copies_is_a_convolution(shape, convolve):
    """A kernel [3, .., 3, C, D], flattened, is the matrix of the linear layer."""
    x = torch.randn(2, *shape, 4, dtype=torch.float64)
    kernel = torch.randn(*[3] * len(shape), 4, 6, dtype=torch.float64)
    found = shifted_copies(x) @ kernel.flatten(0, -2)
    expected = convolve(x.movedim(-1, 1), kernel.movedim((-1, -2), (0, 1)), padding=1).movedim(1, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
