"""Data sets: the same examples as from memory, in any order and by any number of processes, without a network."""

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.hugging_face import Rows, pinned
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import batch_at, batches, step_positions
from axial_transformers.training.processes import Processes
from tests.conftest import TINY, Axial
from tests.shard_writer import array, deep_png, picture, pictures, tar_of, write

datasets = pytest.importorskip("datasets")
pytestmark = [pytest.mark.usefixtures("no_hub"), pytest.mark.filterwarnings("ignore:.*copied once")]

VALUES = np.random.default_rng(0).integers(0, 256, (23, 4, 5, 3), dtype=np.uint8)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMED = datasets.ClassLabel(names=["cat", "dog", "eel"])


def rows(values: np.ndarray = VALUES, of: Any = None) -> Any:
    """A data set of images with classes."""
    images = [{"bytes": picture(each), "path": f"{i}.png"} for i, each in enumerate(values)]
    features = datasets.Features({"image": datasets.Image(), "label": NAMED} | (of or {}))
    given = {"image": images, "label": np.arange(len(values)) % 3} | dict.fromkeys(of or {}, images)
    return datasets.Dataset.from_dict(given, features)


def saved(folder: Path) -> Path:
    rows().save_to_disk(folder / "saved")
    return folder / "saved"


def parquet(folder: Path) -> Path:
    rows().to_parquet(folder / "[1] a*.parquet")
    return folder / "[1] a*.parquet"


def tars(folder: Path) -> Path:
    """Three files, of 10, 10 and 3 rows."""
    for number, start in enumerate(range(0, len(VALUES), 10)):
        write(folder / "tars" / f"train-{number:03d}.tar", pictures(VALUES[start : start + 10], start))
    return folder / "tars"


@pytest.mark.parametrize("write_to", [saved, parquet, tars])
def test_values_classes_and_names_are_those_that_were_put_in(tmp_path, recwarn, write_to):
    examples = data.load(write_to(tmp_path), split="all")
    np.testing.assert_array_equal(examples.values[:], VALUES)
    np.testing.assert_array_equal(examples.labels, np.arange(23) % 3)
    assert examples.class_names == (("0", "1", "2") if write_to is tars else ("cat", "dog", "eel"))
    assert examples.names[12] == ("train-001.tar#0012" if write_to is tars else "12")
    said = " ".join(str(each.message) for each in recwarn)
    assert write_to is saved or re.search(r"\(.* kB, a minute for each gigabyte\) is copied once to ", said)


def test_selections_are_those_of_an_array(tmp_path):
    examples = data.load(saved(tmp_path), split="all")
    for chosen in (slice(3, 14), slice(None, None, -2), np.array([22, 0, -1, 9, 10]), VALUES[:, 0, 0, 0] > 99, [4]):
        np.testing.assert_array_equal(examples.values[chosen], VALUES[chosen])
    assert examples.values[[]].shape == (0, 4, 5, 3)
    with pytest.raises(IndexError):
        examples.values[[23]]
    some = examples[[3, 20]]
    assert (type(some.values), some.names, some.labels.tolist()) == (np.ndarray, ["3", "20"], [0, 2])


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("options", [{}, {"size": 3, "cut": "crop"}, {"size": 2, "mode": "gray", "cut": "stretch"}])
def test_images_are_those_of_a_folder(tmp_path, options, alpha):
    """Also where the last of many is the only one in colour, or transparent."""
    (tmp_path / "files").mkdir()
    for i, each in enumerate([*[VALUES[0, ..., 0]] * 70, np.dstack([VALUES[1], VALUES[2, ..., 0]][: 1 + alpha])]):
        Image.fromarray(each).save(tmp_path / "files" / f"{i:02d}.png")
    write(tmp_path / "a.tar", [(file.name, file.read_bytes()) for file in sorted((tmp_path / "files").iterdir())])
    config = DataConfig(**options, background="black" if "mode" in options else None)
    found, folder = (data.load(tmp_path / source, config, "all") for source in ("a.tar", "files"))
    np.testing.assert_array_equal(found.values[:], folder.values)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((7,), np.int16), ((4, 3), np.uint8), ((4, 3, 2), np.int32), ((2, 5, 4, 3), np.uint16), ((7,), np.float64)],
)
def test_arrays_are_those_of_a_file(tmp_path, shape, dtype):
    values = np.random.default_rng(1).integers(0, 100, (70, *shape)).astype(dtype)
    if dtype is np.float64:
        values = 20_000 + values / 1000  # float32 cannot hold these
    np.savez(tmp_path / "file.npz", images=values)
    write(tmp_path / "a.tar", [(f"{i}.npy", array(each)) for i, each in enumerate(values)])
    datasets.Dataset.from_dict({"x": list(values)}).save_to_disk(tmp_path / "saved")
    file = data.load(tmp_path / "file.npz", split="all")
    for source in ("a.tar", "saved"):
        found = data.load(tmp_path / source, split="all")
        np.testing.assert_array_equal(found.values[:], file.values)
        assert found.range == file.range


def test_splits_and_names_of_files_and_folders_state_parts_or_else_the_last_tenth_validates(tmp_path):
    chosen = {"train": [0, 1], "validation": [2], "test": [3]}
    splits = {"train": rows(VALUES[:2]), "val": rows(VALUES[2:3]), "test": rows(VALUES[3:4]), "extra": rows(VALUES[9:])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "parts")
    for name, i in {"train-10": 1, "train-2": 0, "val-0": 2, "test/0": 3}.items():
        write(tmp_path / "named" / f"{name}.tar", pictures(VALUES[i : i + 1], i))
    for source in ("parts", "named"):
        for split, numbers in chosen.items():
            np.testing.assert_array_equal(data.load(tmp_path / source, split=split).values[:], VALUES[numbers])
        assert len(data.load(tmp_path / source, split="all")) == 4
    train, validation = (data.load(saved(tmp_path), split=split) for split in ("train", "validation"))
    np.testing.assert_array_equal(train.values[:], VALUES[:21])
    np.testing.assert_array_equal(validation.values[:], VALUES[21:])
    assert (validation.labels.tolist(), validation.names, validation.num_classes) == ([0, 1], ["21", "22"], 3)
    with pytest.raises(data.EmptySplitError, match="test"):
        data.load(tmp_path / "saved", split="test")


def test_classes_that_are_kept_secret_are_none(tmp_path):
    rows().map(lambda row: row | {"label": -1}).save_to_disk(tmp_path / "secret")
    found = data.load(tmp_path / "secret", split="all")
    assert (found.labels, found.class_names) == (None, None)


def test_a_column_is_asked_for_where_several_can_be_it(tmp_path):
    rows(VALUES, {"mask": datasets.Image()}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"data\.column.* image, mask$"):
        data.load(tmp_path / "a.parquet")
    assert len(data.load(tmp_path / "a.parquet", DataConfig(column="mask"), "all")) == 23
    coarse = datasets.Dataset.from_dict({"x": VALUES.tolist(), "fine": [3] * 23, "coarse": [1] * 23})
    coarse.save_to_disk(tmp_path / "saved")
    assert data.load(tmp_path / "saved", split="all").labels is None
    assert data.load(tmp_path / "saved", DataConfig(label_column="fine"), "all").labels.tolist() == [3] * 23


def test_the_fingerprint_is_of_what_is_read_not_of_where_it_lies(tmp_path):
    source, elsewhere = tars(tmp_path), tars(tmp_path / "elsewhere")
    configs = [DataConfig(), DataConfig(mode="gray"), DataConfig(size=4, cut="crop"), DataConfig(size=4, cut="stretch")]
    parts = [data.load(source, config, split) for config in configs for split in ("train", "validation", "all")]
    assert data.load(elsewhere).fingerprint == parts[0].fingerprint
    write(source / "train-002.tar", pictures(VALUES[[20, 21, 21]], 20))
    parts.append(data.load(source, split="all"))
    assert len({part.fingerprint for part in parts}) == len(parts)


@pytest.mark.parametrize(("workers", "count", "first"), [(0, 4, 0), (3, 2, 3)])
def test_the_sequence_is_the_same_for_any_processes_workers_and_resumes(tmp_path, workers, count, first):
    """Over a border of epochs, with all that is random."""
    examples = data.load(saved(tmp_path), split="all")
    config = TrainConfig(
        batch_size=8, seed=7, horizontal_flip=True, label_dropout=0.3, distribution_augmentation=0.5,
        shift_augmentation=0.3, workers=workers,
    )  # fmt: skip
    shares = []
    for rank in range(count):
        place = Processes(torch.device("cpu"))
        place.rank, place.count = rank, count
        running = batches(examples, range(1, 3), 3, config, place, first)
        shares.append(list(itertools.islice(running, 5 - first)))
        running.close()
    for step, parts in enumerate(zip(*shares, strict=True), first):
        expected = batch_at(examples[:], range(1, 3), 3, config, step_positions(step, 8))
        assert all(map(torch.equal, map(torch.cat, zip(*parts, strict=True)), expected))


def text(path: Path) -> None:
    path.write_bytes(b"hello" * 1000)


def of_arrays(*values: Any) -> Any:
    return lambda path: datasets.Dataset.from_dict({"x": list(values)}).to_parquet(path)


REFUSED = {
    "text.tar": (text, {}, "is not read by datasets"),
    "cut.tar": (lambda path: path.write_bytes(tar_of(pictures(VALUES))[:9000]), {}, "is not read by datasets"),
    "text.parquet": (text, {}, "is not read by datasets"),
    "damaged.tar": (lambda path: write(path, [("a.png", picture(VALUES[0])[:60])]), {}, "a.png is not a whole image"),
    "sizes.tar": (lambda path: write(path, [(f"{i}.png", picture(VALUES[i, i:])) for i in (0, 1)]), {},
                  r"1.png is \[3, 5, 3\] where the first row is \[4, 5, 3\]: give data.size and data.cut"),
    "deep.tar": (lambda path: write(path, [("a.png", deep_png(0, 1))]), {}, "16 bits: save their values as arrays"),
    "names.parquet": (lambda path: rows().to_parquet(path), {"column": "x"}, "no column x.* one of image$"),
    "kinds.parquet": (lambda path: rows().to_parquet(path), {"label_column": "image"}, "no column image that can"),
    "tiles.parquet": (lambda path: rows().to_parquet(path), {"size": 4, "cut": "tiles"}, "is not cut into tiles"),
    "numbers.parquet": (of_arrays(1, 2), {}, "has no column that can be it.* there are "),
    "ragged.parquet": (of_arrays([1, 2], [1]), {}, "arrays of different shapes"),
    "nothing.parquet": (of_arrays([1, 2], None), {}, "a row holds none"),
    "words.parquet": (of_arrays(["a"], ["b"]), {}, "numbers are modelled"),
    "classes.parquet": (lambda path: datasets.Dataset.from_dict({"x": [[1], [2]], "label": [1, None]}).to_parquet(path),
                        {}, "label has labels float64"),
    "dev": (lambda path: datasets.DatasetDict({"dev": rows()}).save_to_disk(path), {}, "no split .*there are dev"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_line(tmp_path, name):
    put, options, says = REFUSED[name]
    put(tmp_path / name)
    with pytest.raises(ValueError, match=says) as caught:
        _ = data.load(tmp_path / name, DataConfig(**options), "all").values[:]
    assert "\n" not in str(caught.value)


def test_an_image_outside_of_the_data_set_is_read_from_the_cache_only(no_hub, tmp_path):
    """A data set of others may name any file of this machine; `datasets` names those that it has downloaded."""
    for folder, says in ((tmp_path / "home", "no file of the data set"), (no_hub / "downloads", None)):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "a.png"
        path.write_bytes(picture(VALUES[0]))
        features = datasets.Features({"image": datasets.Image()})
        named = datasets.Dataset.from_dict({"image": [{"bytes": None, "path": str(path)}]}, features)
        column = named.with_format("arrow")
        if says:
            with pytest.raises(ValueError, match=says):
                Rows(column, "photos", DataConfig())
        else:
            np.testing.assert_array_equal(Rows(column, "photos", DataConfig())[:], VALUES[:1])


def of_hub(cache: Path, tmp_path: Path) -> str:
    """A data set as `datasets` keeps it after a download."""
    rows(np.repeat(VALUES, 2, axis=0)).to_parquet(tmp_path / "a.parquet")
    builder = datasets.load_dataset_builder("parquet", data_files={"train": str(tmp_path / "a.parquet")})
    builder.download_and_prepare()
    found = shutil.copytree(builder.cache_dir, cache / "alice___photos" / "default" / "0.0.0" / COMMIT)
    about = json.loads((found / "dataset_info.json").read_text())
    (found / "dataset_info.json").write_text(json.dumps(about | {"config_name": "default", "dataset_name": "photos"}))
    for file in found.glob("parquet-*"):
        file.rename(found / file.name.replace("parquet-", "photos-"))
    return "hf:alice/photos"


def test_another_commit_than_the_one_asked_for_is_refused(no_hub, tmp_path):
    """Without a connection `datasets` takes the newest one that it has."""
    source = of_hub(no_hub, tmp_path)
    assert len(data.load(f"{source}@{COMMIT}", split="all"))
    other = f"{source}@{COMMIT[::-1]}"
    with pytest.raises(ValueError, match=COMMIT):
        data.load(other, split="all")
    with pytest.raises(ValueError, match=COMMIT):
        pinned(other)


def test_a_run_names_the_commit_and_goes_on_with_it(axial: Axial, refused, no_hub, tmp_path, monkeypatch):
    """Bitwise, with a thread that reads ahead. Nothing connects: the data set is in the cache."""
    monkeypatch.chdir(tmp_path)
    source = of_hub(no_hub, tmp_path)
    few = ["--training.batch-size", 4, "--training.evaluate-every", 3, "--training.save-every", 3, "--samples", 1]
    few += ["--training.schedule", "constant", "--training.warmup-steps", 1, "--training.workers", 1]
    more = [*TINY, *few, "--data.size", "4", "--data.cut", "crop"]
    assert axial("train", source, *more, "--training.steps", 6).status == 0
    assert axial("train", source, *more, "--training.steps", 3, "--out", "runs/again").status == 0
    record = json.loads(Path("runs/photos/train.json").read_text())
    assert record["run"]["source"] == f"hf:alice/photos@{COMMIT}"
    assert record["facts"]["class_names"] == ["cat", "dog", "eel"]
    said = f"runs/again is of hf:alice/photos@{COMMIT}, which is fetched only if it is named"
    assert said in refused("train", "runs/again", "--training.steps", 6)
    assert axial("train", "runs/again", source, "--training.steps", 6).status == 0
    whole, again = (Path("runs", name, "model.safetensors").read_bytes() for name in ("photos", "again"))
    assert whole == again
    metrics = json.loads(axial("evaluate", "runs/photos", source, "--split", "validation", "--json").out)
    assert metrics["fingerprint"] == data.load(source, DataConfig(size=4, cut="crop"), "validation").fingerprint


def test_without_the_hub_no_other_revision_is_read_than_the_one_that_is_named(no_hub, tmp_path):
    source = of_hub(no_hub, tmp_path)
    assert len(data.load(source, DataConfig(size=4, cut="crop"), "all")) > 0
    assert len(data.load(f"{source}@{COMMIT}", DataConfig(size=4, cut="crop"), "all")) > 0
    for revision in ("main", "b" * 40):
        with pytest.raises(ValueError, match=rf"the latest copy is {source}@{COMMIT}: name that"):
            data.load(f"{source}@{revision}", DataConfig(size=4, cut="crop"), "all")


def test_a_record_is_read_without_datasets_or_a_network(axial: Axial, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("axial_transformers.data.hugging_face.import_extra", lambda *_: pytest.fail("opened"))
    run = shutil.copytree(trained, tmp_path / "run")
    record = json.loads((run / "train.json").read_text())
    record["run"]["source"] = "hf:alice/photos@main"
    (run / "train.json").write_text(json.dumps(record))
    assert axial("inspect", run).status == 0
    assert axial("sample", run, "--count", 1, "--out", tmp_path / "a.png").status == 0
    status, _, err = axial("evaluate", run)
    assert (status, re.search("which is fetched only if it is named", err) is None) == (2, False)
