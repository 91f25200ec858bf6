"""Blocks of arrays, tiles of images and clips of videos: in order, or at places that seed and position determine."""

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig, blocks
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import Purpose, batch_at, example_indices, uniforms
from tests.data.test_video import encode, moving


def numbered(*shape):
    """An array in which each position has a value of its own."""
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "size"),
    [((7, 5, 9), (2, 3, 4)), ((1, 9), (1, 2)), ((5, 3, 2), (5, 3, 2)), ((3, 4, 5, 6, 2), (2, 2, 2, 3, 1))],
)
def test_blocks_in_order_are_the_array_without_what_is_left_over(shape, size, tmp_path):
    np.save(tmp_path / "x.npy", numbered(*shape))
    examples = data.load(tmp_path / "x.npy", DataConfig(size=size), "all")
    grid = [length // each for length, each in zip(shape, size, strict=True)]
    assert examples.values.shape == (np.prod(grid), *size, 1)
    for i, place in enumerate(np.ndindex(*grid)):
        box = tuple(slice(p * each, (p + 1) * each) for p, each in zip(place, size, strict=True))
        assert np.array_equal(examples.values[[i]][0, ..., 0], numbered(*shape)[box])
    assert examples.names[-1] == f"x.npy#{','.join(str(each - 1) for each in grid)}"


@pytest.mark.parametrize("shape", [(11, 5, 9), (3, 7, 13), (2, 4, 19)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_parts_share_no_position_wherever_blocks_are_cut_and_reach_all_of_theirs(shape, share, tmp_path):
    np.save(tmp_path / "x.npy", numbered(*shape))
    seen = {}
    for split in ("train", "validation"):
        options = DataConfig(size=(2, 4, 3), validation_fraction=share, offsets="random")
        blocks = data.load(tmp_path / "x.npy", options, split).values
        places = np.linspace(0, 1, 400, endpoint=False)
        seen[split] = {*np.concatenate([blocks.cut(np.full(400, i), places) for i in range(len(blocks))]).flat}
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


def test_an_array_of_too_few_slabs_for_a_part_is_one_clear_line(tmp_path):
    np.save(tmp_path / "x.npy", numbered(5, 4, 4))
    options = DataConfig(size=(4, 4, 4))
    with pytest.raises(ValueError, match="validation"):
        data.load(tmp_path / "x.npy", options, "validation")
    assert len(data.load(tmp_path / "x.npy", options)) == 1


RANDOM = DataConfig(frames=3, stride=2, offsets="random", validation_fraction=0.0)
LENGTHS = {"a/x.mkv": 7, "b/y.mkv": 5, "b/z.mkv": 12}


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """A folder of videos of uneven lengths, in two classes, and their frames."""
    folder = tmp_path_factory.mktemp("videos")
    frames = {name: moving(count, seed=i) for i, (name, count) in enumerate(LENGTHS.items())}
    for name, pixels in frames.items():
        (folder / name).parent.mkdir(exist_ok=True)
        encode(folder / name, pixels)
    return folder, list(frames.values())


def test_a_batch_is_the_windows_at_the_offsets_sampled_for_its_positions(videos):
    folder, frames = videos
    examples = data.load(folder, RANDOM)
    names = ["a/x.mkv#0000", "b/y.mkv#0000", "b/z.mkv#0000", "b/z.mkv#0001"]
    assert (examples.names, examples.values.shape, examples.labels.tolist()) == (names, (4, 3, 8, 8, 3), [0, 1, 1, 1])
    config, positions = TrainConfig(seed=5, batch_size=60), np.arange(7, 67)
    batch = batch_at(examples, range(1), None, config, positions)
    seen = {0: set(), 1: set(), 2: set()}
    fractions = uniforms(5, Purpose.OFFSET, positions)
    for clip, number, fraction in zip(batch.values.numpy(), example_indices(5, 4, positions), fractions, strict=True):
        video = min(number, 2)
        offset = int(fraction * (len(frames[video][::2]) - 2))
        assert np.array_equal(clip, frames[video][::2][offset : offset + 3])
        seen[int(video)].add(offset)
    assert seen == {0: {0, 1}, 1: {0}, 2: {0, 1, 2, 3}}  # every offset that there is


def test_evaluation_takes_the_fixed_clips_as_if_nothing_had_been_said(videos):
    folder, frames = videos
    fixed = data.load(folder, DataConfig(frames=3, stride=2), "all")
    assert fixed.fingerprint == data.load(folder, RANDOM, "all").fingerprint
    assert np.array_equal(data.load(folder, RANDOM).values[[3, 0]], [frames[2][6:11:2], frames[0][:5:2]])
    assert np.array_equal(fixed.values[[2, 3]], [frames[2][:5:2], frames[2][6:11:2]])


def test_tiles_of_a_video_are_videos(tmp_path):
    (tmp_path / "train").mkdir()
    pixels = moving(4, height=8, width=16)
    encode(tmp_path / "train" / "a.mkv", pixels)
    options = DataConfig(frames=2, offsets="random", size=8, cut="tiles", validation_fraction=0.0)
    examples = data.load(tmp_path, options)
    assert examples.names[:3] == ["train/a.mkv#0000#0,0", "train/a.mkv#0000#0,1", "train/a.mkv#0001#0,0"]
    clips = examples.values.cut(np.array([1, 0]), np.array([0.999, 0.4]))  # of 3 offsets in time and 9 across
    assert np.array_equal(clips, [pixels[2:4, :, 8:], pixels[1:3, :, 1:9]])


def test_the_fingerprint_of_random_blocks_depends_on_all_that_they_reach_and_is_read_in_parts(tmp_path, monkeypatch):
    def fingerprint(values):
        np.save(tmp_path / "x.npy", values)
        options = DataConfig(size=(2, 3, 4), offsets="random", validation_fraction=0.0)
        return data.load(tmp_path / "x.npy", options).fingerprint

    values, found = numbered(7, 7, 9), set()
    for at_a_time in (1, 150, 1 << 24):
        monkeypatch.setattr(blocks, "_AT_A_TIME", at_a_time)
        found.add(fingerprint(values))
    assert len(found) == 1
    changed = values.copy()
    changed[0, -1, -1] -= 1  # which no block in order has
    assert fingerprint(changed) not in found


TILES = DataConfig(size=4, cut="tiles", offsets="random", validation_fraction=0.0, test_fraction=0.0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of pictures of uneven sizes, in two classes, and their pixels."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 256, (*size, 3), dtype=np.uint8) for name, size in SIZES.items()}
    for name, picture in pixels.items():
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(folder / name)
    return folder, list(pixels.values())


SIZES = {"a/wide#1,1.png": (6, 13), "b/one.png": (4, 4), "b/tall.png": (9, 7)}


def test_a_batch_is_the_tiles_sampled_for_its_positions(pictures):
    folder, pixels = pictures
    examples = data.load(folder, TILES)
    fixed = data.load(folder, DataConfig(size=4, cut="tiles", validation_fraction=0.0, test_fraction=0.0))
    assert (examples.names, examples.shape, examples.labels.tolist()) == (fixed.names, (4, 4), [0, 0, 0, 1, 1, 1])
    assert np.array_equal(examples.values, fixed.values)
    assert examples.fingerprint != fixed.fingerprint
    assert data.load(folder, TILES, "all").fingerprint == fixed.fingerprint  # evaluation
    positions = np.arange(7, 607)
    batch = batch_at(examples, range(1), None, TrainConfig(seed=5, batch_size=600), positions)
    fractions = uniforms(5, Purpose.OFFSET, positions)
    seen = {0: set(), 1: set(), 2: set()}
    for tile, i, fraction in zip(batch.values.numpy(), example_indices(5, 6, positions), fractions, strict=True):
        picture = [0, 0, 0, 1, 2, 2][i]
        columns = [9, 1, 1][picture]  # of 12, 4 and 4 pixels that whole tiles cover
        y, x = divmod(int(fraction * [9, 1, 5][picture]), columns)
        assert np.array_equal(tile, pixels[picture][y : y + 4, x : x + 4])
        seen[picture].add((y, x))
    assert [len(corners) for corners in seen.values()] == [9, 1, 5]  # every offset that there is
