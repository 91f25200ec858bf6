"""The name of an example leads back to it in its source: to a file, a row, a clip of frames, a tile or a block."""

import csv
import pickle
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import av
import h5py
import nibabel
import numpy as np
import pytest
import zarr
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig
from tests.data.test_video import encode, moving
from tests.shard_writer import pictures, write
from tests.tfrecord_writer import video_record, write_records

datasets = pytest.importorskip("datasets")
pytestmark = [pytest.mark.usefixtures("no_hub"), pytest.mark.filterwarnings("ignore:.*(copied once|left out)")]


class Kind(NamedTuple):
    """A source, and how somebody finds an example by its name without this package."""

    source: Path | str
    config: DataConfig
    find: Callable[[str], np.ndarray]


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, 256, shape, dtype=np.uint8)


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def images(folder: Path) -> Kind:
    for name, each in zip(("b/1.png", "b/x/10.png", "a/2.png", "a/1.png"), noise(4, 4, 5), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each).save(folder / name)
    return Kind(folder, DataConfig(), lambda name: pixels(folder / name))


def images_of_splits(folder: Path) -> Kind:
    images(folder / "train")
    images(folder / "test")
    return Kind(folder, DataConfig(validation_fraction=0.3), lambda name: pixels(folder / name))


def tiles(folder: Path) -> Kind:
    Image.fromarray(noise(9, 13)).save(folder / "a.png")
    Image.fromarray(noise(8, 8)).save(folder / "b.png")

    def find(name: str) -> np.ndarray:
        file, place = name.split("#")
        row, column = (4 * int(each) for each in place.split(","))
        return pixels(folder / file)[row : row + 4, column : column + 4]

    return Kind(folder, DataConfig(size=4, cut="tiles"), find)


def array(folder: Path) -> Kind:
    np.save(folder / "a.npy", noise(20, 3, 2))
    return Kind(folder / "a.npy", DataConfig(test_fraction=0.2), lambda name: np.load(folder / "a.npy")[int(name)])


def tiles_of_array(folder: Path) -> Kind:
    np.savez(folder / "a.npz", images=noise(5, 4, 6))

    def find(name: str) -> np.ndarray:
        number, place = name.split("#")
        row, column = (2 * int(each) for each in place.split(","))
        return np.load(folder / "a.npz")["images"][int(number), row : row + 2, column : column + 2]

    return Kind(folder / "a.npz", DataConfig(size=2, cut="tiles"), find)


def arrays(folder: Path) -> Kind:
    for i, name in enumerate(("train_2", "train_10", "val", "test")):
        np.save(folder / f"{name}.npy", noise(4 + i, 3, 2))

    def find(name: str) -> np.ndarray:
        file, number = name.split("#")
        return np.load(folder / file)[int(number)]

    return Kind(folder, DataConfig(), find)


def table(folder: Path) -> Kind:
    rows = [f"{a},word,{b}" for a, b in noise(12, 2)]
    rows[3] = "7,word,"
    rows.insert(6, "")
    (folder / "a.csv").write_text("\n".join(["x,y,z", *rows]))

    def find(name: str) -> np.ndarray:
        with (folder / "a.csv").open() as file:
            row = list(csv.DictReader(file))[int(name)]
        return np.array([int(row["x"]), int(row["z"])])

    return Kind(folder / "a.csv", DataConfig(num_values=256), find)


def videos(folder: Path) -> Kind:
    for name in ("walk/a.mkv", "run/b.mkv"):
        encode(folder / name, moving(13, seed=len(name)))

    def find(name: str) -> np.ndarray:
        file, clip = name.split("#")
        with av.open(folder / file) as container:
            frames = [each.to_ndarray(format="rgb24") for each in container.decode(video=0)]
        return np.stack(frames[::2][3 * int(clip) : 3 * int(clip) + 3])

    return Kind(folder, DataConfig(frames=3, stride=2), find)


def frames(folder: Path) -> Kind:
    for clip in ("b", "a"):
        (folder / clip).mkdir()
        for i, frame in enumerate(moving(11, seed=ord(clip))):
            Image.fromarray(frame).save(folder / clip / f"frame{i}.png")

    def find(name: str) -> np.ndarray:
        place, clip = name.split("#")
        return np.stack([pixels(folder / place / f"frame{3 * int(clip) + i}.png") for i in range(3)])

    return Kind(folder, DataConfig(frames=3), find)


def one_folder_of_frames(folder: Path) -> Kind:
    return frames(folder)._replace(source=folder / "a")


def records(folder: Path) -> Kind:
    clips = noise(2, 5, 64, 64, 3)
    write_records(folder / "a.tfrecords", map(video_record, clips))

    def find(name: str) -> np.ndarray:
        file, record, clip = name.split("#")
        assert file == "a.tfrecords"
        return clips[int(record)][2 * int(clip) : 2 * int(clip) + 2]

    return Kind(folder, DataConfig(frames=2), find)


def block(volume: np.ndarray, name: str) -> np.ndarray:
    places = (slice(2 * int(each), 2 * int(each) + 2) for each in name.split("#")[-1].split(","))
    return volume[tuple(places)]


def nifti(folder: Path) -> Kind:
    for file in ("a.nii", "b.nii"):
        nibabel.Nifti1Image(noise(5, 6, 7), np.eye(4)).to_filename(folder / file)

    def find(name: str) -> np.ndarray:
        volume = np.asarray(nibabel.load(folder / name.split("#")[0]).dataobj)
        return block(volume.T, name)  # the slowest axis first

    return Kind(folder, DataConfig(size=(2, 2, 2)), find)


def hdf5(folder: Path) -> Kind:
    with h5py.File(folder / "a.h5", "w") as file:
        file["x/y"], file["z"] = noise(4, 5, 6), noise(2, 2, 2)

    def find(name: str) -> np.ndarray:
        file, member = name.split("#")[0].split("::")
        with h5py.File(folder / file) as opened:
            return block(opened[member][...], name)

    return Kind(f"{folder}/a.h5::x/y", DataConfig(size=(2, 2, 2)), find)


def of_zarr(folder: Path) -> Kind:
    zarr.save(folder / "a.zarr", noise(4, 5, 6))
    return Kind(
        folder / "a.zarr",
        DataConfig(size=(2, 2, 2)),
        lambda name: block(zarr.open(folder / name.split("#")[0], mode="r")[...], name),
    )


def slices_of_array(folder: Path) -> Kind:
    np.save(folder / "a.npy", noise(3, 5, 6))

    def find(name: str) -> np.ndarray:
        file, first, _ = name.split("#")
        return block(np.load(folder / file)[int(first)], name)

    return Kind(folder / "a.npy", DataConfig(size=(2, 2)), find)


def rows(values: np.ndarray) -> "datasets.Dataset":
    features = datasets.Features({"image": datasets.Array3D(values.shape[1:], "uint8")})
    return datasets.Dataset.from_dict({"image": list(values)}, features)


def row(dataset: "datasets.Dataset", number: str) -> np.ndarray:
    return np.array(dataset[int(number)]["image"], np.uint8)


def one_parquet(folder: Path) -> Kind:
    rows(noise(11, 2, 3, 3)).to_parquet(folder / "a.parquet")
    read = datasets.Dataset.from_parquet(str(folder / "a.parquet"))
    return Kind(folder / "a.parquet", DataConfig(), lambda name: row(read, name))


def parquets(folder: Path) -> Kind:
    for i, name in enumerate(("train-2", "train-10", "test", "val/0")):
        (folder / name).parent.mkdir(exist_ok=True)
        rows(noise(5 + i, 2, 3, 3)).to_parquet(folder / f"{name}.parquet")

    def find(name: str) -> np.ndarray:
        file, number = name.split("#")
        return row(datasets.Dataset.from_parquet(str(folder / file)), number)

    return Kind(folder, DataConfig(), find)


def saved(folder: Path) -> Kind:
    parts = {"train": rows(noise(9, 2, 3, 3)), "test": rows(noise(4, 2, 3, 3)[::-1])}
    datasets.DatasetDict(parts).save_to_disk(folder)

    def find(name: str) -> np.ndarray:
        part, number = name.split("#")
        return row(datasets.load_from_disk(folder)[part], number)

    return Kind(folder, DataConfig(), find)


def one_tar(folder: Path) -> Kind:
    write(folder / "a.tar", pictures(noise(12, 4, 5, 3)))
    return Kind(folder / "a.tar", DataConfig(), lambda name: member(folder / "a.tar", name))


def tars(folder: Path) -> Kind:
    """The keys of each begin anew."""
    for i, name in enumerate(("train/0", "train/1", "val/0")):
        write(folder / f"{name}.tar", pictures(noise(6 + i, 4, 5, 3)))

    def find(name: str) -> np.ndarray:
        file, key = name.split("#")
        return member(folder / file, key)

    return Kind(folder, DataConfig(), find)


def member(path: Path, key: str) -> np.ndarray:
    with tarfile.open(path) as tar:
        return np.asarray(Image.open(tar.extractfile(f"{key}.png")))


KINDS = [
    images, images_of_splits, tiles, array, tiles_of_array, arrays, table, videos, frames, one_folder_of_frames,
    records, nifti, hdf5, of_zarr, slices_of_array, one_parquet, parquets, saved, one_tar, tars,
]  # fmt: skip


@pytest.mark.parametrize("write_kind", KINDS)
def test_a_name_leads_back_to_the_example(tmp_path, write_kind):
    kind, seen = write_kind(tmp_path), 0
    for split in ("train", "validation", "test", "all"):
        try:
            with warnings.catch_warnings(action="ignore"):
                examples = data.load(kind.source, kind.config, split)
        except data.EmptySplitError:
            continue
        assert len({*examples.names}) == len(examples)
        for name, values in zip(examples.names, np.asarray(examples.values[:]), strict=True):
            expected = kind.find(name)
            assert np.array_equal(values, expected.reshape(values.shape)), (split, name)
        seen += 1
    assert seen > 1


@pytest.mark.parametrize("write_kind", KINDS)
def test_examples_go_to_other_processes(tmp_path, write_kind):
    """As workers of a DataLoader need that are spawned."""
    kind = write_kind(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        examples = data.load(kind.source, kind.config, "all")
    there = pickle.loads(pickle.dumps(examples))
    assert there.names == examples.names
    assert np.array_equal(there.values[:], examples.values[:])


def test_names_of_an_example_are_those_of_its_source_in_every_split(tmp_path):
    for write_kind in (arrays, parquets, saved, tars, table, array):
        (tmp_path / write_kind.__name__).mkdir()
        kind = write_kind(tmp_path / write_kind.__name__)
        found = list[str]()
        for split in ("train", "validation", "test"):
            try:
                with warnings.catch_warnings(action="ignore"):
                    found += data.load(kind.source, kind.config, split).names
            except data.EmptySplitError:
                continue
        assert sorted(found) == sorted(data.load(kind.source, kind.config, "all").names)


def test_a_word_that_names_rows_of_an_array_is_no_position_in_a_part_of_it(tmp_path):
    kind = array(tmp_path)
    part = data.load(kind.source, kind.config, "test")
    assert part.names == ["16", "17", "18", "19"]
    assert part.named(["18"]).names == ["18"]
    with pytest.raises(ValueError, match=r"16 .*19"):
        part.named(["1"])
    pictures_there = data.load(images(tmp_path / "images").source, split="all")
    assert pictures_there.named(["2", "a/1.png"]).names == [pictures_there.names[2], "a/1.png"]
    with pytest.raises(ValueError, match=r"0 .*3$"):
        pictures_there.named(["4"])


def test_frames_are_counted_from_0_in_what_is_said_of_a_video(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(6):
        Image.fromarray(noise(8 + (i > 3), 8)).save(tmp_path / "a" / f"{i}.png")
    with pytest.raises(ValueError, match="frame 4"):
        data.load(tmp_path, DataConfig(frames=2, stride=2), "all")


@pytest.mark.parametrize("wrong", [[True] * 3, [1.9], ["0"], np.zeros((2, 2), np.bool_)], ids=str)
@pytest.mark.parametrize("write_kind", [array, images])
def test_examples_are_selected_by_positions_or_one_boolean_each(tmp_path, write_kind, wrong):
    examples = data.load(write_kind(tmp_path).source, split="all")
    assert len(examples[np.arange(len(examples)) % 2 == 0]) == (len(examples) + 1) // 2
    assert len(examples[[-1, 0]]) == 2
    with pytest.raises(ValueError, match="at least one"):
        examples.named([])
    with pytest.raises(ValueError, match="none"):
        examples[:0].named(["0"])
    with pytest.raises((IndexError, TypeError)):
        examples[wrong]


def test_a_single_example_is_asked_for_by_its_values(tmp_path):
    examples = data.load(array(tmp_path).source, split="all")
    for wrong in (0, np.int64(0), True, None, ...):
        with pytest.raises(TypeError, match="values"):
            examples[wrong]
    with pytest.raises(TypeError, match="values"):
        next(iter(examples))
