"""Examples, their fingerprint, splits and the bundled digits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image
from torch.utils.data import TensorDataset

from axial_transformers import data
from axial_transformers.data import examples_from, save_arrays
from axial_transformers.data.grid import Grid
from axial_transformers.data.splits import consecutive_part, hashed_parts, part_of_file, part_of_folder
from axial_transformers.data.value_range import ValueRange

_VALUES = npst.arrays(np.uint8, npst.array_shapes(min_dims=3, max_dims=5, max_side=4))


def _examples(values: np.ndarray) -> data.Examples:
    count = len(values)
    return data.Examples(
        values=values,
        names=[f"name {i}" for i in range(count)],
        labels=np.arange(count, dtype=np.int64) % 3,
        class_names=("a", "b", "c"),
    )


@given(_VALUES, st.data())
def test_fingerprint_changes_with_every_part(values, draw):
    examples = _examples(values)
    position = tuple(draw.draw(st.integers(0, length - 1)) for length in values.shape)
    index = position[0]
    other = values.copy()
    other[position] ^= draw.draw(st.integers(1, 255))
    names, labels = list(examples.names), examples.labels.copy()
    names[index] += "x"
    labels[index] += 1
    variants = [
        examples,
        replace(examples, values=other),
        replace(examples, values=values[..., None]),
        replace(examples, names=names),
        replace(examples, labels=labels),
        replace(examples, labels=None),
        replace(examples, range=ValueRange(0, 16)),
        replace(examples, range=ValueRange(-1, 254)),
        replace(examples, range=ValueRange(0, 255, Grid(0.5, 0))),
        replace(examples, values=values.astype(np.int16)),
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants)


@given(_VALUES)
def test_fingerprint_is_of_the_values_not_of_their_memory(values):
    fortran = _examples(np.asfortranarray(values))
    assert fortran.fingerprint == _examples(values).fingerprint


def test_fingerprint_covers_all_blocks():
    positions = [-1, 0, 1023, 1024, 2499]
    values = np.arange(2500) == np.array(positions)[:, None]
    assert len({_examples(each[:, None, None].astype(np.uint8)).fingerprint for each in values}) == 5


@given(_VALUES, st.data())
def test_selection_keeps_parts_together(values, draw):
    examples = _examples(values)
    indices = draw.draw(st.lists(st.integers(0, len(examples) - 1)))
    assert examples[1::2].fingerprint == examples[np.arange(len(examples)) % 2 == 1].fingerprint
    chosen = examples[indices]
    assert len(chosen) == len(indices)
    assert chosen.names == [f"name {i}" for i in indices]
    np.testing.assert_array_equal(chosen.values, values[indices])
    assert chosen.labels.tolist() == [i % 3 for i in indices]
    assert chosen.num_classes == 3


def test_parts_that_do_not_fit_are_refused():
    values = np.zeros((2, 3, 3, 1), np.uint8)
    with pytest.raises(ValueError, match="uint8"):
        data.Examples(values=values.astype(np.int64), names=["a", "b"])
    with pytest.raises(ValueError, match="names"):
        data.Examples(values=values, names=["a"])
    with pytest.raises(ValueError, match="labels"):
        data.Examples(values=values, names=["a", "b"], labels=np.zeros(3, np.int64))


def test_digits_have_the_split_used_everywhere():
    parts = [data.load("digits", split=split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [1350, 150, 297]
    assert parts[2].values.shape == (297, 8, 8, 1)
    assert {part.range for part in parts} == {(0, 16, None)}
    assert {part.num_classes for part in parts} == {10}
    whole = data.load("digits", split="all")
    np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), whole.values)
    assert [name for part in parts for name in part.names] == whole.names
    assert parts[2].fingerprint.startswith("f9c81691026fe470")  # of which every published number on the digits is


@given(st.integers(1, 500), st.floats(0, 0.5), st.floats(0, 0.4))
def test_tail_splits_partition_in_order(count, validation, test):
    items = list(range(count))
    parts = [items[consecutive_part(count, split, validation, test)] for split in ("train", "validation", "test")]
    assert [item for part in parts for item in part] == items
    at_least_one = validation > 0 and len(parts[0]) + len(parts[1]) > 1
    assert abs(len(parts[1]) - count * validation) <= 0.5 or (at_least_one and len(parts[1]) == 1)
    assert abs(len(parts[2]) - count * test) <= 0.5


def test_hashed_splits_depend_on_name_and_seed_alone():
    names = [f"folder/{i}.png" for i in range(4000)]
    parts = hashed_parts(names, 0, 0.1, 0.2)
    for part, share in [("train", 0.7), ("validation", 0.1), ("test", 0.2)]:
        assert abs(parts.count(part) / len(names) - share) < 0.03
    assert parts != hashed_parts(names, 1, 0.1, 0.2)
    # The test part stays as it is when the validation share changes.
    wider = hashed_parts(names, 0, 0.3, 0.2)
    assert [part == "test" for part in parts] == [part == "test" for part in wider]


def test_of_few_examples_one_validates():
    for seed in range(20):
        names = [f"{i}.png" for i in range(4)]
        parts = hashed_parts(names, seed, 0.1, 0.1)
        assert "validation" in parts or parts.count("train") <= 1
        assert hashed_parts(names, seed, 0.0, 0.1).count("validation") == 0
        assert hashed_parts(names[:1], seed, 0.01, 0.0) == ["train"]


def test_names_state_their_split():
    folders = ["train", "val", "valid_32x32", "Test", "bullet_train", "cats"]
    assert [part_of_folder(name) for name in folders] == ["train", "validation", "validation", "test", None, None]
    stems = ["train_data_batch_10", "val_data", "fashion_mnist_test", "latest", "train_test", "digits"]
    assert [part_of_file(stem) for stem in stems] == ["train", "validation", "test", None, None, None]


def test_options_out_of_range_are_refused():
    for options in [
        {"size": 0},
        {"cut": "crop"},
        {"offsets": "random"},
        {"num_values": 1},
        {"num_values": 65_537},
        {"validation_fraction": -0.1},
        {"validation_fraction": float("nan")},
        {"validation_fraction": 0.6, "test_fraction": 0.4},
        *({"axes": axes} for axes in ("", "N", "NC", "NHH", "NXY")),
    ]:
        with pytest.raises(ValueError):
            data.DataConfig(**options)


def test_unknown_sources_and_splits_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.*digits"):
        data.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="'tset'"):
        data.load("digits", split="tset")


class Squares(torch.utils.data.Dataset):
    classes = ("dark", 7)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.full((2, 3, 1), i, dtype=torch.int64), i % 2


def test_a_data_set_of_tensors_becomes_examples_with_labels_or_without():
    values = torch.arange(96).reshape(6, 4, 4, 1) % 5
    for labels in (None, torch.arange(6) % 3):
        tensors = [values] if labels is None else [values, labels]
        examples = examples_from(TensorDataset(*tensors), num_values=5)
        assert np.array_equal(examples.values, values)
        assert (examples.labels is None) == (labels is None)
    with pytest.raises(ValueError, match="3 parts"):
        examples_from(TensorDataset(values, labels, labels), num_values=5)


def test_labels_of_another_number_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="3 labels for 6"):
        save_arrays(tmp_path / "a.npz", np.zeros((6, 4, 4, 1), np.uint8), np.arange(3))
    assert not [*tmp_path.iterdir()]


def test_any_data_set_with_a_length_becomes_examples():
    examples = examples_from(Squares(), num_values=6)
    assert examples.values.shape == (6, 2, 3, 1)
    assert examples.values[:, 0, 0, 0].tolist() == examples.values[:, 1, 2, 0].tolist() == [*range(6)]
    assert examples.labels.tolist() == [0, 1] * 3
    assert (examples.class_names, examples.range) == (("dark", "7"), (0, 5, None))
    values = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    plain = examples_from(values)
    np.testing.assert_array_equal(plain.values, values)
    assert plain.labels is None
    pictures = examples_from([Image.new("L", (3, 2)), Image.new("L", (3, 2), 9)])
    assert pictures.values.shape == (2, 2, 3, 1)
    assert plain.fingerprint == examples_from(torch.from_numpy(values)).fingerprint != pictures.fingerprint


@pytest.mark.parametrize(
    ("dataset", "error", "says"),
    [
        ((x for x in ()), TypeError, "has no len"),
        ([], ValueError, "no items"),
        (np.zeros((2, 3, 3, 1), np.float32), TypeError, r"dataset\[0\] holds float32 values, not integers"),
        (np.full((2, 3, 1), 256), ValueError, r"dataset\[0\] has values 256..256, not 0..255"),
        (np.full((2, 3, 1), -1), ValueError, "values -1..-1"),
        ([np.zeros((3, 1), int), np.zeros((4, 1), int)], ValueError, r"dataset\[1\] has shape \[4, 1\], not \[3, 1\]"),
        ([np.zeros(3, int)], ValueError, r"\[\*A, C\], channels last"),
        ([(np.zeros((3, 1), int), 0), np.zeros((3, 1), int)], ValueError, "dataset has labels object"),
        ([(np.zeros((3, 1), int), 0.5)], ValueError, "1 integers 0..65535 are needed"),
    ],
)
def test_a_data_set_that_cannot_be_trained_on_is_refused(dataset, error, says):
    with pytest.raises(error, match=says):
        examples_from(dataset)
