"""TFRecord files of BAIR robot pushing."""

import numpy as np
import pytest

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.storage.tensorflow import FormatError
from tests.tfrecord_writer import bytes_feature, example, floats_feature, framed, video_record, write_records

FRAME = bytes(64 * 64 * 3)


def videos(count: int = 2, frames: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, frames, 64, 64, 3)).astype(np.uint8)


def test_clips_are_read_back_exactly_and_cut_and_resized(tmp_path):
    path = write_records(tmp_path / "train" / "traj_0.tfrecords", map(video_record, videos(2, 5)))
    examples = data.load(path, split="all")
    assert np.array_equal(examples.values, videos(2, 5))
    assert examples.names == ["traj_0.tfrecords#0000", "traj_0.tfrecords#0001"]
    cut = data.load(path, DataConfig(frames=2, size=16, cut="stretch"), "all")
    boxes = videos(2, 5)[:, :4].reshape(4, 2, 16, 4, 16, 4, 3).mean(axis=(3, 5))
    assert np.abs(cut.values - boxes).max() <= 1
    assert cut.names[1:3] == ["traj_0.tfrecords#0000#0001", "traj_0.tfrecords#0001#0000"]
    write_records(tmp_path / "test" / "traj_0.tfrecords", map(video_record, videos(1, 5, seed=2)))
    assert np.array_equal(data.load(tmp_path, DataConfig(validation_fraction=0.0)).values, videos(2, 5))
    assert np.array_equal(data.load(tmp_path, split="test").values, videos(1, 5, seed=2))


FIRST = framed(video_record(videos(1, 1)[0]))


def changed(offset: int) -> bytes:
    """Two records, a bit of the second flipped."""
    octets = bytearray(FIRST * 2)
    octets[len(FIRST) + offset] ^= 4
    return bytes(octets)


def of_features(features: dict[str, bytes]) -> bytes:
    return FIRST + framed(example(features))


BAD = [
    *[(FIRST + FIRST[:kept], "record 1 ends early") for kept in (1, 12, 500, -1)],
    *[(changed(offset), "record 1: the checksum of its length") for offset in (0, 9)],
    (changed(40), "record 1: the checksum of its bytes"),
    (framed(b"hello"), "record 0"),
    (of_features({}), "record 1 lacks the feature '0/image_aux1/encoded'"),
    (of_features({"1/image_aux1/encoded": bytes_feature(FRAME)}), "lacks the feature '0/image_aux1/encoded'"),
    (
        of_features({"0/image_aux1/encoded": bytes_feature(FRAME[1:])}),
        r"'0/image_aux1/encoded' has \[12287\] bytes, not",
    ),
    (of_features({"0/image_aux1/encoded": bytes_feature(FRAME, FRAME)}), r"has \[12288, 12288\] bytes"),
    (of_features({"0/image_aux1/encoded": floats_feature([1])}), r"'0/image_aux1/encoded' has \[\] bytes"),
]


@pytest.mark.parametrize(("content", "says"), BAD)
def test_damaged_records_and_features_of_other_data_are_named(tmp_path, content, says):
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(FormatError, match=rf"a\.tfrecord: .*{says}"):
        data.load(tmp_path, split="all")


def test_videos_of_different_lengths_need_frames(tmp_path):
    path = write_records(tmp_path / "a.tfrecord", [video_record(videos(1, 2)[0]), video_record(videos(1, 3)[0])])
    with pytest.raises(ValueError, match=r"data\.frames"):
        data.load(path, split="all")
    assert data.load(path, DataConfig(frames=2), "all").values.shape == (2, 2, 64, 64, 3)
