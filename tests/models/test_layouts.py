"""Layouts are bijections, and each has its order of generation."""

from itertools import product

import pytest
import torch

from axial_transformers.models.layouts import LAYOUTS
from tests.small_models import small_model

SHAPES = [(3, 5), (2, 3, 4), (7, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [*SHAPES, (5,), (2, 2, 3, 2)], ids=str)
def test_to_data_undoes_to_model(shape, layout):
    if layout == "frames" and len(shape) == 1:
        pytest.skip("a sequence has no frames")
    for channels, further in ((1, ()), (3, ()), (3, (2,))):
        bijection, x = LAYOUTS[layout](shape, channels), torch.randn(2, *shape, channels, *further)
        y = bijection.to_model(x)
        assert y.shape == (2, *bijection.shape, bijection.channels, bijection.depth, *further)
        assert torch.equal(bijection.to_data(y), x)


def positions(shape, channels, layout):
    """The generation order, by loops from the outermost."""
    axes = [range(size) for size in shape]
    if layout in ("channels", "rows"):
        return [(*position, c) for c, *position in product(range(channels), *axes)]
    if layout in ("columns", "axis", "raster", "pixels"):
        return list(product(*axes, range(channels)))
    return [(t, *position, c) for t, c, *position in product(axes[0], range(channels), *axes[1:])]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_positions_are_generated_in_the_order_of_the_layout(shape, layout):
    expected = torch.tensor(positions(shape, 2, layout))
    assert torch.equal(small_model(shape, 2, layout).order, expected)


def test_known_channels_are_not_generated():
    order = small_model((3, 2, 2), 2, "frames", known_channels=4).order
    assert torch.equal(order, torch.tensor(positions((3, 2, 2), 2, "frames"))[16:])


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "frames"])
def test_conditioning_moves_with_its_position(layout):
    """A cond equal to the coordinates of its position is found at those coordinates for every channel."""
    shape, channels = (2, 3), 2
    bijection = LAYOUTS[layout](shape, channels)
    cond = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij"), dim=-1).unsqueeze(0)
    of_each_channel = bijection.to_model(cond.unsqueeze(-2).expand(1, *shape, channels, 2))
    for channel, value in product(range(bijection.channels), range(bijection.depth)):
        assert torch.equal(bijection.expand_cond(cond), of_each_channel[..., channel, value, :])


def test_frames_take_no_conditioning():
    model = small_model((2, 2, 2), 1, "frames")
    with pytest.raises(ValueError, match="cond"):
        model(torch.zeros(1, 2, 2, 2, 1, dtype=torch.int64), cond=torch.zeros(1, 2, 2, 2, 8))
