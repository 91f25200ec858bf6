"""Clips and tiles at random offsets: seed and position determine what is cut; evaluation sees fixed positions."""

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.windows import Windows
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import Purpose, batch_at, example_indices, uniforms
from tests.data.test_video import encode, moving
from tests.tfrecord_writer import video_record, write_records

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
    assert (examples.names, examples.shape, examples.values.shape) == (list(LENGTHS), (3, 8, 8), (3, 3, 8, 8, 3))
    assert examples.labels.tolist() == [0, 1, 1]
    config, positions = TrainConfig(seed=5, batch_size=60), np.arange(7, 67)
    batch = batch_at(examples, range(1), None, config, positions)
    seen = {0: set(), 1: set(), 2: set()}
    fractions = uniforms(5, Purpose.OFFSET, positions)
    for clip, video, fraction in zip(batch.values.numpy(), example_indices(5, 3, positions), fractions, strict=True):
        offset = int(fraction * (len(frames[video]) - 4))
        assert np.array_equal(clip, frames[video][offset : offset + 5 : 2])
        seen[int(video)].add(offset)
    assert seen == {0: {0, 1, 2}, 1: {0}, 2: set(range(8))}  # every offset that there is


def test_evaluation_takes_the_fixed_clips_as_if_nothing_had_been_said(videos):
    folder, frames = videos
    fixed = data.load(folder, DataConfig(frames=3, stride=2), "all")
    assert fixed.fingerprint == data.load(folder, RANDOM, "all").fingerprint
    assert np.array_equal(data.load(folder, RANDOM).values[[2, 0]], [frames[2][:5:2], frames[0][:5:2]])


def test_the_fingerprint_depends_on_every_frame_and_on_the_length_of_a_clip(tmp_path):
    def fingerprint(pixels, length=2):
        write_records(tmp_path / "train" / "a.tfrecords", map(video_record, pixels))
        options = DataConfig(frames=length, offsets="random", size=4, fit="stretch", validation_fraction=0.0)
        examples = data.load(tmp_path, options)
        assert examples.names == ["train/a.tfrecords#0000", "train/a.tfrecords#0001"]
        return examples.fingerprint

    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 64, 64, 3), dtype=np.uint8)
    changed = pixels.copy()
    changed[1, 3] = 255 - changed[1, 3]
    found = {fingerprint(pixels), fingerprint(changed), fingerprint(pixels, 3)}
    assert len(found) == 3
    assert fingerprint(pixels) in found


def test_tiles_of_a_video_are_videos(tmp_path):
    (tmp_path / "train").mkdir()
    pixels = moving(4, height=8, width=16)
    encode(tmp_path / "train" / "a.mkv", pixels)
    options = DataConfig(frames=2, offsets="random", size=8, fit="tiles", validation_fraction=0.0)
    examples = data.load(tmp_path, options)
    assert examples.names == ["train/a.mkv#0,0", "train/a.mkv#0,1"]
    clips = examples.values.cut(np.array([1, 0]), np.array([0.99, 0.4]))
    assert np.array_equal(clips, [pixels[2:4, :, 8:], pixels[1:3, :, :8]])


@pytest.mark.parametrize("inside", ["b/y.mkv", "."])
def test_what_has_no_random_offsets_is_refused(videos, inside, tmp_path):
    np.savez(tmp_path / "train.npz", images=np.zeros((3, 6, 8, 8, 3), np.uint8))
    source = tmp_path if inside == "." else videos[0] / inside
    with pytest.raises(ValueError, match="offsets=random"):
        data.load(source, RANDOM)


def test_a_video_shorter_than_a_clip_is_named(tmp_path):
    for name, count in {"a": 3, "b": 9}.items():
        encode(tmp_path / f"{name}.mkv", moving(count))
    options = DataConfig(frames=3, stride=2, offsets="random", validation_fraction=0.0, test_fraction=0.0, skip_bad=0)
    with pytest.raises(ValueError, match=r"a\.mkv has 3 frames, too few for a clip of 5"):
        data.load(tmp_path, options)
    with pytest.raises(ValueError, match="needs the frames of a clip"):
        DataConfig(offsets="random")


TILES = DataConfig(size=4, fit="tiles", offsets="random", validation_fraction=0.0, test_fraction=0.0)


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
    fixed = data.load(folder, DataConfig(size=4, fit="tiles", validation_fraction=0.0, test_fraction=0.0))
    assert (examples.names, examples.shape, examples.labels.tolist()) == (fixed.names, (4, 4), [0, 0, 0, 1, 1, 1])
    assert np.array_equal(examples.values[:], fixed.values)
    assert examples.fingerprint != fixed.fingerprint
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


def test_validation_takes_the_tiles_side_by_side(pictures):
    assert isinstance(data.load(pictures[0], TILES).values, Windows)
    assert isinstance(data.load(pictures[0], TILES, "all").values, np.ndarray)


def test_the_fingerprint_of_tiles_depends_on_every_pixel_and_on_the_pictures_widths(tmp_path):
    def fingerprint(picture):
        Image.fromarray(picture).save(tmp_path / "a.png")
        return data.load(tmp_path, TILES).fingerprint

    picture = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    changed = picture.copy()
    changed[7, 7] ^= 1
    wide = np.concatenate([picture[:4], picture[4:]], axis=1)
    found = {fingerprint(picture), fingerprint(changed), fingerprint(wide)}
    assert len(found) == 3
    assert fingerprint(picture) in found
