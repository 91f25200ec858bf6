"""A source: listed once, and each of its files read once for all parts; values and names are made when asked for."""

import tracemalloc
import warnings
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig, arrays, images, scans, source as module
from axial_transformers.data.blocks import Blocks
from axial_transformers.data.names import Names, joined_names
from axial_transformers.data.source import open_source, source_name
from axial_transformers.data.value_range import ValueRange
from tests.scan_writer import make_scan

HALVES = DataConfig(validation_fraction=0.3, test_fraction=0.3)


def pictures(folder):
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (12, 5, 6, 3), np.uint8)):
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder, HALVES, images, "decoded"


def array(folder):
    np.savez(folder / "a.npz", images=np.zeros((20, 4, 5), np.uint8))
    return folder / "a.npz", HALVES, arrays, "read_array"


def scan(folder):
    make_scan(folder / "a.nii.gz", np.arange(9 * 4 * 5, dtype=np.int16).reshape(9, 4, 5))
    return (
        folder / "a.nii.gz",
        DataConfig(size=(2, 2, 2), validation_fraction=0.3, test_fraction=0.3),
        scans,
        "read_stored",
    )


@pytest.mark.parametrize("write", [pictures, array, scan])
def test_all_parts_and_sizes_list_the_files_once_and_read_each_once(tmp_path, monkeypatch, write):
    path, config, home, name = write(tmp_path)
    seen, listed = Counter[str](), Counter[str]()
    read, list_files = getattr(home, name), module.list_files
    monkeypatch.setattr(home, name, lambda file, *given: seen.update([str(file)]) or read(file, *given))
    monkeypatch.setattr(module, "list_files", lambda *given: listed.update(["once"]) or list_files(*given))
    source = data.open_source(path, config)
    assert source.example_axes[1]
    parts = [source.part(split) for split in ("train", "validation", "test")]
    assert all(map(len, parts))
    assert set(seen.values()) == {1}
    assert listed == {"once": 1}


@pytest.mark.parametrize("write", [pictures, array, scan])
def test_a_part_is_what_load_returns(tmp_path, write):
    path, config, *_ = write(tmp_path)
    source = data.open_source(path, config)
    for split in ("test", "all", "train", "validation"):
        assert source.part(split).fingerprint == data.load(path, config, split).fingerprint


def test_names_of_many_rows_take_no_memory(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((1 << 20, 2), np.uint8))
    tracemalloc.start()
    examples = data.load(tmp_path / "rows.npy")
    rows = examples[: 1 << 19]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (rows.names[-1], examples.names[[5, -1]]) == (str((1 << 19) - 1), ["5", str(len(examples) - 1)])
    assert peak < 24 << 20  # strings would take 60 MB, and lists of them 8 MB each


def test_names_are_selected_as_arrays_are():
    names = joined_names([("a", Names(range(3))), ("", []), ("b#", ["x", "y"])])
    listed = ["a0", "a1", "a2", "b#x", "b#y"]
    assert names == listed
    assert listed == names
    for chosen in (slice(1, 4), slice(None, None, -2), [4, -5, 0], np.array([True, False, True, False, True])):
        assert names[chosen] == np.array(listed)[chosen].tolist()
    assert names[[]] == []
    assert (names[-1], names == listed[:-1], names == [*listed[:-1], "z"]) == ("b#y", False, False)
    with pytest.raises(IndexError):
        names[[5]]


SHAPES = [(7, 5, 9), (2, 3, 4), (4, 3, 5)]


@pytest.mark.parametrize("repeats_edges", [False, True])
def test_blocks_are_those_of_arrays_that_are_cut_or_filled_up(repeats_edges):
    rng, block = np.random.default_rng(0), (2, 3, 4)
    volumes = [rng.integers(0, 1000, (*shape, 2)).astype(np.int32) for shape in SHAPES]
    blocks = Blocks(volumes, block, ValueRange(0, 999), repeats_edges=repeats_edges)
    expected = []
    for volume in volumes:
        lengths = volume.shape[:-1]
        grid = [-(-n // side) if repeats_edges else n // side for n, side in zip(lengths, block, strict=True)]
        filled = np.pad(volume, [*((0, side) for side in block), (0, 0)], mode="edge")
        for place in product(*map(range, grid)):
            box = tuple(slice(p * side, (p + 1) * side) for p, side in zip(place, block, strict=True))
            expected.append(filled[box])
    expected = np.array(expected)
    assert (blocks.shape, blocks.ndim, len(blocks)) == (expected.shape, 5, len(expected))
    mask = rng.random(len(blocks)) < 0.5
    for chosen in (slice(None), slice(-3, None), [0, -1, 2], mask, 3, np.int64(-2), (..., 1), (slice(1, 3), 0), (4, 1)):
        assert np.array_equal(blocks[chosen], expected[chosen])
    assert np.array_equal(np.asarray(blocks), expected)
    with pytest.raises(IndexError):
        blocks[[len(blocks)]]


def test_a_path_called_digits_is_no_name_of_the_bundled_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    Image.fromarray(np.zeros((3, 4), np.uint8)).save("digits/a.png")
    assert data.open_source(Path("digits")).part("all").shape == (3, 4)
    assert data.open_source(source_name(Path("digits"))).part("all").shape == (3, 4)
    assert source_name("digits") == "digits"


def test_a_file_that_is_called_test_is_not_trained_on(tmp_path):
    """Or the test part, which is all of it, would hold the examples that train."""
    for name in ("x_test.npy", "val_x.npy", "x.npy", "x_train.npy"):
        np.save(tmp_path / name, np.arange(320).reshape(20, 4, 4).astype(np.uint8))
    parts = {"x_test.npy": ["test"], "val_x.npy": ["validation"]}
    for name in ("x_test.npy", "val_x.npy", "x.npy", "x_train.npy"):
        source = open_source(tmp_path / name)
        there = {}
        for split in ("train", "validation", "test"):
            with suppress(data.EmptySplitError):
                there[split] = len(source.part(split))
        assert [*there] == parts.get(name, ["train", "validation"])
        assert sum(there.values()) == 20


@pytest.mark.parametrize(
    ("name", "options", "unused"),
    [
        ("images", {"axes": "NHWC", "key": "x", "mode": "gray"}, {"axes", "key"}),
        ("a.npy", {"axes": "NHW", "decimal": ",", "label_column": "y"}, {"decimal", "label_column"}),
        ("a.npz", {"key": "images"}, set()),
        ("a.csv", {"decimal": ".", "label_column": "y", "column": "x"}, {"column"}),
    ],
)
def test_options_that_change_nothing_are_said(tmp_path, name, options, unused):
    values = np.zeros((12, 4, 4), np.uint8)
    (tmp_path / "images").mkdir()
    Image.fromarray(values[0]).save(tmp_path / "images" / "0.png")
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", images=values)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_source(tmp_path / name, DataConfig(**options)).say_unused_options()
    assert {str(warning.message).split()[0] for warning in caught} == {f"data.{option}" for option in unused}
