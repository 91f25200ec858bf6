"""Arrays: shapes, types, splits, published ImageNet batches."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from axial_transformers import data
from axial_transformers.data import DataConfig


def _random(*shape: int, high: int = 256, dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        (None, (5, 7), (7, 1)),
        (None, (5, 3, 4), (3, 4, 1)),
        (None, (5, 3, 4, 3), (3, 4, 3)),
        (None, (5, 3, 4, 1), (3, 4, 1)),
        (None, (5, 3, 4, 6), (3, 4, 6, 1)),
        (None, (5, 2, 3, 4, 13), (2, 3, 4, 13)),
        (None, (5, 2, 2, 3, 4, 3), (2, 2, 3, 4, 3)),
        ("NCHW", (5, 3, 8, 8), (8, 8, 3)),
        ("NTHW", (5, 3, 8, 8), (3, 8, 8, 1)),
        ("NTHW", (5, 8, 8, 6), (8, 8, 6, 1)),
        ("NTCHW", (5, 2, 3, 8, 8), (2, 8, 8, 3)),
        ("NCTHW", (5, 3, 2, 8, 8), (2, 8, 8, 3)),
        ("NLC", (5, 7, 2), (7, 2)),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_axes_are_recognised_or_read_as_told(tmp_path, axes, shape, expected, suffix):
    values, path = _random(*shape), tmp_path / f"array{suffix}"
    np.save(path, values) if suffix == ".npy" else np.savez_compressed(path, values)
    found = data.load(path, DataConfig(axes=axes), "all").values
    assert found.shape == (5, *expected)
    moved = np.moveaxis(values, axes.index("C"), -1) if axes and "C" in axes else values
    np.testing.assert_array_equal(found, moved.reshape(found.shape))


@pytest.mark.parametrize(
    ("values", "dtype", "memory", "number", "lowest"),
    [
        ([-1024, 3071], "<i2", "int16", 4096, -1024),
        ([-1024, 3071], ">i4", "int16", 4096, -1024),
        ([0, 65535], ">u2", "uint16", 65536, 0),
        ([0, 4095], "int64", "int16", 4096, 0),
        ([-1, 65534], "int64", "int32", 65536, -1),
        ([1 << 20, (1 << 20) + 7], "uint64", "int32", 8, 1 << 20),
        ([0, 3], "uint8", "uint8", 4, 0),
        ([100, 255], "int32", "uint8", 256, 0),
        ([20, 100], "int8", "uint8", 101, 0),
        ([-7, -7], "int8", "int16", 2, -7),
        ([0, 0], "bool", "uint8", 2, 0),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_sequences_of_any_integers_keep_their_values(tmp_path, values, dtype, memory, number, lowest, suffix):
    array = np.asfortranarray(np.tile(np.array(values, dtype), (6, 4)))
    np.save(tmp_path / "a.npy", array) if suffix == ".npy" else np.savez(tmp_path / "a.npz", array)
    examples = data.load(tmp_path / f"a{suffix}", split="all")
    assert (examples.range, str(examples.values.dtype)) == ((lowest, lowest + number - 1, None), memory)
    np.testing.assert_array_equal(examples.values[..., 0], array)


@pytest.mark.parametrize("size", [None, (5, 1)])
def test_all_parts_have_the_range_of_the_file(tmp_path, size):
    np.save(tmp_path / "a.npy", np.arange(-50, 50, dtype=np.int16).reshape(20, 5))
    parts = [data.load(tmp_path / "a.npy", DataConfig(size=size), split) for split in ("train", "validation")]
    assert {part.range for part in parts} == {(-50, 49, None)}
    assert data.load(tmp_path / "a.npy", DataConfig(size=size, num_values=200)).range == (-50, 149, None)


def test_files_of_several_types_are_joined_in_one_that_holds_all(tmp_path):
    parts = [np.arange(6) - 3, np.arange(6) + 60_000, np.arange(6)]
    for i, (part, dtype) in enumerate(zip(parts, ["int8", "uint16", ">i8"], strict=True)):
        np.save(tmp_path / f"train_{i}.npy", np.tile(part.astype(dtype), (3, 1)))
    examples = data.load(tmp_path, split="all")
    assert (examples.range, str(examples.values.dtype)) == ((-3, 60_005, None), "int32")
    np.testing.assert_array_equal(examples.values[..., 0], np.repeat(parts, 3, axis=0))


_WORDS = np.array([["a", "b"]] * 3)


@pytest.mark.parametrize(
    ("array", "options", "says"),
    [
        (np.array([[0, 65536]] * 3), {}, r"a\.npy holds values 0\.\.65536: at most 65,536 values in a row"),
        (np.array([[1 << 40]] * 3).repeat(2, 1), {}, r"a\.npy holds values 1099511627776.* 32 bits"),
        (np.array([[0.5, np.nan]] * 3), {}, r"a\.npy holds float64 values with NaN or infinity: replace"),
        (
            np.array([[0.0, 0.7, 1.9e-5]] * 3, np.float32),
            {},
            r"float32 values 0\.\.0\.7 .*not at equal steps: data.grid",
        ),
        (_WORDS, {}, "holds <U1 values: numbers are modelled"),
        (np.full((6, 3, 5), 7, np.uint8), {"num_values": 7}, r"a\.npy holds values 7\.\.7, not 0\.\.6"),
        (_random(9, 6, 6, 3), {"size": 8, "cut": "crop"}, r"a\.npy holds \[6, 6\] positions, not data.size=8"),
        (_random(9, 6, 6, 3), {"mode": "gray"}, "3 channels"),
        (_random(9, 6, 6, 3), {"frames": 3}, "holds no videos, which data.frames and data.stride cut"),
        (
            _random(3, 4, 5),
            {"size": (4, 4, 4)},
            r"a\.npy is of \[3, 4, 5\] positions, less than one block of \[4, 4, 4\]",
        ),
        (_random(4, 0, 8), {"size": (2, 2)}, r"shape \[4, 0, 8\]: .* no length 0"),
        (_random(3, 4), {"size": (2, 2, 2)}, r"a\.npy is of \[3, 4\] positions, less than one block"),
        (_random(9, 6, 4), {"size": 5, "cut": "tiles"}, r"\[6, 4\] positions, less than one block of \[5, 5\]"),
        (_random(9, 6), {"size": 2, "cut": "tiles"}, r"\[6\] positions, less than one block of \[2, 2\]"),
        (_random(5, 8, 8), {"axes": "NCHW"}, r"shape \[5, 8, 8\], not the axes of data.axes=NCHW"),
        (_random(5, 3, 8, 8), {}, "data.axes=NCHW or data.axes=NTHW$"),
        (_random(5, 8, 8, 6), {}, "data.axes=NHWC or data.axes=NTHW$"),
        (_random(5, 2, 3, 8, 8), {}, "data.axes=NTCHW or data.axes=NTHWC$"),
        (_random(48, 32, 12), {}, r"data.axes=NHW or data.axes=HWC with data.size=\(32, 32\)$"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, array, options, says):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=says) as caught:
        data.load(tmp_path / "a.npy", DataConfig(**options), "all")
    assert "\n" not in str(caught.value)


@given(st.integers(3, 60))
def test_array_splits_are_disjoint_and_in_order(tmp_path_factory, count):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    np.savez(path, images=np.arange(count, dtype=np.uint8).reshape(count, 1, 1), labels=np.arange(count))
    config = DataConfig(validation_fraction=0.2, test_fraction=0.3)
    parts = [data.load(path, config, split) for split in ("train", "validation", "test")]
    joined = np.concatenate([part.values for part in parts]).ravel().tolist()
    assert joined == list(range(count))
    assert np.concatenate([part.labels for part in parts]).tolist() == joined
    assert [int(name) for part in parts for name in part.names] == joined
    assert {part.num_classes for part in parts} == {count}


def test_an_array_holds_train_and_validation_unless_its_name_states_the_split(tmp_path):
    np.save(tmp_path / "a.npy", _random(20, 3, 3))
    assert [len(data.load(tmp_path / "a.npy", split=split)) for split in ("train", "validation", "all")] == [18, 2, 20]
    with pytest.raises(ValueError, match="test_fraction"):
        data.load(tmp_path / "a.npy", split="test")
    np.save(tmp_path / "some_test.npy", _random(20, 3, 3))
    assert len(data.load(tmp_path / "some_test.npy", split="test")) == 20


def test_keys_are_found_or_listed(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, videos=_random(4, 2, 5, 6), other=_random(4, 2, 2))
    assert data.load(path).shape == (2, 5, 6)
    assert data.load(path, DataConfig(key="other")).shape == (2, 2)
    with pytest.raises(ValueError, match=r"absent.* videos, other"):
        data.load(path, DataConfig(key="absent"))
    np.savez(path, only=_random(4, 2, 2), labels=np.arange(4))
    assert data.load(path, split="all").labels.tolist() == [0, 1, 2, 3]
    np.savez(path, one=_random(4, 2, 2), two=_random(4, 2, 2))
    with pytest.raises(ValueError, match="one, two"):
        data.load(path)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((5, 9, 7), {}),
        ((5, 9, 7, 3), {}),
        ((5, 7, 6, 9, 7), {"axes": "NCDHW"}),
        ((5, 6, 9, 7), {"axes": "NDHW"}),
        ((5, 6, 9, 7, 3), {}),
    ],
)
def test_tiles_of_arrays_are_the_crops_of_their_names(tmp_path, shape, options):
    np.savez(tmp_path / "a.npz", images=_random(*shape, dtype="uint16"), labels=np.arange(5))
    path, whole = tmp_path / "a.npz", DataConfig(**options)
    before = data.load(path, whole, "all")
    after = data.load(path, DataConfig(**options, size=3, cut="tiles"), "all")
    assert (len(after), after.shape) == (3 * 2 * len(before), (*before.shape[:-2], 3, 3))
    assert after.range == before.range
    of = {name: i for i, name in enumerate(before.names)}
    for tile, name, label in zip(after.values[:], after.names, after.labels, strict=True):
        origin, place = name.split("#")
        row, column = (3 * int(word) for word in place.split(","))
        assert np.array_equal(tile, before.values[of[origin]][..., row : row + 3, column : column + 3, :])
        assert label == before.labels[of[origin]]
    assert len(set(after.names)) == len(after)
    whole = DataConfig(**options, size=3, cut="tiles", validation_fraction=0.4)
    parts = [{name.split("#")[0] for name in data.load(path, whole, split).names} for split in ("train", "validation")]
    assert parts == [{"0", "1", "2"}, {"3", "4"}]


def _save_batch(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    channel_major = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    np.savez(path, data=channel_major, labels=labels, mean=channel_major.mean(0))


def test_published_imagenet_batches_are_read(tmp_path):
    images = _random(53, 4, 4, 3)
    labels = np.arange(53) + 1
    for i in range(10):
        rows = slice(5 * i, 5 * i + 5)
        _save_batch(tmp_path / f"train_data_batch_{i + 1}.npz", images[rows], labels[rows].tolist())
    _save_batch(tmp_path / "val_data.npz", images[50:], labels[:3])
    train, validation = data.load(tmp_path), data.load(tmp_path, split="validation")
    np.testing.assert_array_equal(train.values, images[:50])  # batch 10 after batch 9
    assert train.labels.tolist() == list(range(50))
    np.testing.assert_array_equal(validation.values, images[50:])
    np.testing.assert_array_equal(data.load(tmp_path / "val_data.npz", split="validation").values, images[50:])
    with pytest.raises(ValueError, match="train, validation"):
        data.load(tmp_path, split="test")


def test_files_of_one_folder_must_agree(tmp_path):
    np.save(tmp_path / "train_1.npy", _random(4, 3, 3))
    np.save(tmp_path / "train_2.npy", _random(4, 3, 4))
    with pytest.raises(ValueError, match=r"train_2\.npy.*train_1\.npy"):
        data.load(tmp_path)
    np.save(tmp_path / "train_2.npy", _random(4, 3, 3))
    np.save(tmp_path / "extra.npy", _random(4, 3, 3))
    with pytest.raises(ValueError, match=r"extra\.npy"):
        data.load(tmp_path)


def test_one_image_of_many_channels_is_cut_along_the_axes_that_are_left(tmp_path):
    values = _random(48, 32, 12)
    np.save(tmp_path / "a.npy", values)
    for size in ((16, 16), 16):
        blocks = data.load(tmp_path / "a.npy", DataConfig(axes="HWC", size=size), "all")
        assert blocks.values.shape == (6, 16, 16, 12)
        np.testing.assert_array_equal(blocks.values[[1]][0], values[:16, 16:32])
    assert data.load(tmp_path / "a.npy", DataConfig(axes="NHW"), "all").shape == (32, 12)


@pytest.mark.parametrize(
    "shape", [(6, 3, 8, 12), (6, 1, 8, 8), (6, 4, 8, 12), (6, 5, 3, 8, 12), (6, 5, 1, 8, 12), (6, 1, 5, 8, 12)]
)
def test_axes_of_channels_before_rows_are_asked_about(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match=r"data\.axes=N.*C"):
        data.load(tmp_path / "a.npy", split="all")


def test_examples_stay_where_their_small_file_is_replaced(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)
    np.save(tmp_path / "a.npy", values)
    examples = data.load(tmp_path / "a.npy", split="all")
    np.save(tmp_path / "a.npy", examples.values[::2])
    np.testing.assert_array_equal(examples.values[..., 0], values)
