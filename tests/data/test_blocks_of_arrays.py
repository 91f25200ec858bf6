"""Arrays are cut into blocks of any number of axes; the parts of a split share no position."""

import numpy as np
import pytest

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.blocks_of_arrays import Blocks, cut


def numbered(*shape):
    """An array in which each position has a value of its own."""
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


def volume(*shape):
    return numbered(*shape)[..., None]


@pytest.mark.parametrize(
    ("shape", "size"),
    [((7, 5, 9), (2, 3, 4)), ((1, 9), (1, 2)), ((5, 3, 2), (5, 3, 2)), ((3, 4, 5, 6, 2), (2, 2, 2, 3, 1))],
)
def test_blocks_in_order_are_the_array_without_what_is_left_over(shape, size):
    blocks = cut({"x": volume(*shape)}, DataConfig(size=size))
    grid = [length // each for length, each in zip(shape, size, strict=True)]
    assert blocks.shape == (np.prod(grid), *size, 1)
    for i, place in enumerate(np.ndindex(*grid)):
        box = tuple(slice(p * each, (p + 1) * each) for p, each in zip(place, size, strict=True))
        assert np.array_equal(blocks[[i]][0], volume(*shape)[box])
    assert blocks.examples(DataConfig(size=size)).names[-1] == f"x#{','.join(str(each - 1) for each in grid)}"


@pytest.mark.parametrize("shape", [(11, 5, 9), (3, 7, 13), (2, 4, 19)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_parts_share_no_position_wherever_blocks_are_cut_and_reach_all_of_theirs(shape, share, tmp_path):
    np.save(tmp_path / "x.npy", numbered(*shape))
    seen = {}
    for split in ("train", "validation"):
        options = DataConfig(size=(2, 4, 3), validation_fraction=share, offsets="random")
        blocks = data.load(tmp_path / "x.npy", options, split).values
        if not isinstance(blocks, Blocks):
            blocks = blocks.values
        indices, places = (
            np.repeat(np.arange(len(blocks)), 400),
            np.tile(np.linspace(0, 1, 400, endpoint=False), len(blocks)),
        )
        seen[split] = {*blocks.cut(indices, places).flat}
        assert {*blocks[:].flat} <= seen[split]
    assert not seen["train"] & seen["validation"]
    assert seen["train"] | seen["validation"] == {*range(np.prod(shape))}


def test_axes_before_those_of_the_size_are_arrays_of_their_own(tmp_path):
    np.save(tmp_path / "x.npy", series := numbered(3, 4, 6))
    examples = data.load(tmp_path / "x.npy", DataConfig(size=(4, 3)), "all")
    assert examples.names[:3] == ["x.npy#0#0,0", "x.npy#0#0,1", "x.npy#1#0,0"]
    assert np.array_equal(examples.values[[2]][0, ..., 0], series[1, :, :3])


def test_channels_stay_together(tmp_path):
    np.save(tmp_path / "x.npy", colours := numbered(4, 6, 3))
    assert np.array_equal(data.load(tmp_path / "x.npy", DataConfig(size=(4, 6)), "all").values[:][0], colours)
    first = DataConfig(size=(6, 3), axes="CHW")
    assert data.load(tmp_path / "x.npy", first, "all").values.shape == (1, 6, 3, 4)


def test_all_parts_have_the_range_of_the_whole_array(tmp_path):
    np.save(tmp_path / "x.npy", numbered(8, 4, 4) - 50)
    options = DataConfig(size=(2, 2, 2))
    found = {
        (each.lowest, each.num_values) for each in (data.load(tmp_path / "x.npy", options, s) for s in ("train", "all"))
    }
    assert found == {(-50, 128)}


def test_a_mapped_array_is_read_where_it_is_cut(tmp_path):
    np.save(tmp_path / "x.npy", numbered(6, 5, 4).astype(">i2"))
    examples = data.load(tmp_path / "x.npy", DataConfig(size=(3, 5, 2)), "all")
    assert isinstance(examples.values, Blocks)
    assert examples.values[:].dtype == np.uint8
    assert np.array_equal(examples.values[:][0, ..., 0], numbered(6, 5, 4)[:3, :, :2])


def test_an_array_of_too_few_slabs_for_a_part_is_one_clear_line(tmp_path):
    np.save(tmp_path / "x.npy", numbered(5, 4, 4))
    options = DataConfig(size=(4, 4, 4))
    with pytest.raises(ValueError, match=r"1 slabs of blocks \[4, 4, 4\], too few for .*data.size=\(2, 2, 2\)"):
        data.load(tmp_path / "x.npy", options, "validation")
    assert len(data.load(tmp_path / "x.npy", options)) == 1


@pytest.mark.parametrize(
    ("array", "size", "fault"),
    [
        (numbered(3, 4, 5), (4, 4, 4), "3x4x5 positions, less than one block of data.size=(4, 4, 4)"),
        (numbered(3, 4), (2, 2, 2), "3x4 positions, less than one block"),
        (np.geomspace(1, 9, 60).reshape(3, 4, 5), (2, 2, 2), "not at equal steps"),
        (np.array([[0, 70_000]] * 2), (1, 1), "at most 65,536 values"),
    ],
)
def test_what_cannot_be_cut_is_one_clear_line(array, size, fault, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=r"x\.npy") as error:
        data.load(tmp_path / "x.npy", DataConfig(size=size), "all")
    assert fault in str(error.value)
    assert "\n" not in str(error.value)
