"""Shards: the same examples as from memory, in the same order, whoever reads them; what is damaged is named."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.shards import expand, shard_files
from axial_transformers.data.shards.index import ROW
from axial_transformers.data.shards.tar import records
from axial_transformers.data.workers import ahead
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import batch_at, batches, step_positions
from axial_transformers.training.processes import Processes
from tests.conftest import TINY, Axial
from tests.paths import ROOT
from tests.shard_writer import array, picture, pictures, write

VALUES = np.random.default_rng(0).integers(0, 256, (23, 4, 5, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """VALUES in three shards of 10, 10 and 3."""
    for number, start in enumerate(range(0, len(VALUES), 10)):
        write(tmp_path / "shards" / f"train-{number:03d}.tar", pictures(VALUES[start : start + 10], start))
    return str(tmp_path / "shards" / "train-{000..002}.tar")


def test_shards_hold_what_was_put_in(shards):
    examples = data.load(shards, split="all")
    assert (len(examples), examples.shape, examples.channels, examples.num_classes) == (23, (4, 5), 3, 3)
    np.testing.assert_array_equal(examples.values[:], VALUES)
    np.testing.assert_array_equal(examples.labels, np.arange(23) % 3)
    assert examples.names[12] == "train-001.tar/0012.png"
    assert list(examples.names) == examples[:].names


def test_selections_are_those_of_an_array(shards):
    values = data.load(shards, split="all").values
    for chosen in (slice(3, 14), slice(None, None, -2), np.array([22, 0, -1, 9, 10]), VALUES[:, 0, 0, 0] > 99, [4], []):
        np.testing.assert_array_equal(values[chosen], VALUES[chosen])
    assert values.shape == VALUES.shape
    for beyond in (23, -24):
        with pytest.raises(IndexError):
            values[[beyond]]


def test_selected_examples_are_those_of_memory(shards):
    chosen = data.load(shards, split="all")[[3, 20]]
    assert type(chosen) is data.Examples
    assert type(chosen.values) is np.ndarray
    assert (chosen.names, chosen.labels.tolist()) == (["train-000.tar/0003.png", "train-002.tar/0020.png"], [0, 2])


@pytest.mark.parametrize("suffix", [".png", ".webp", ".jpg"])
@pytest.mark.parametrize("options", [{}, {"size": 3, "fit": "crop"}, {"size": 2, "fit": "stretch", "mode": "gray"}])
def test_pictures_in_a_shard_and_in_a_folder_are_the_same(tmp_path, suffix, options):
    files = {f"{i}{suffix}": picture(VALUES[i], suffix) for i in range(5)}
    (tmp_path / "folder").mkdir()
    for name, content in files.items():
        (tmp_path / "folder" / name).write_bytes(content)
    write(tmp_path / "a.tar", files.items())
    config = DataConfig(**options)
    shard, folder = (data.load(tmp_path / where, config, "all") for where in ("a.tar", "folder"))
    np.testing.assert_array_equal(shard.values[:], folder.values)
    assert (shard.num_values, shard.lowest) == (folder.num_values, folder.lowest)


@pytest.mark.parametrize("shape", [(7,), (4, 3), (4, 3, 2), (2, 5, 4, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, ">i4", np.bool_])
def test_arrays_in_a_shard_and_in_a_file_are_the_same(tmp_path, shape, dtype):
    values = np.random.default_rng(1).integers(0, 1 << 16, (6, *shape)).astype(dtype)
    np.savez(tmp_path / "file.npz", images=values)
    write(tmp_path / "a.tar", [(f"{i}.npy", array(each)) for i, each in enumerate(values)])
    shard, file = (data.load(tmp_path / where, split="all") for where in ("a.tar", "file.npz"))
    np.testing.assert_array_equal(shard.values[:], file.values)
    assert (shard.num_values, shard.lowest) == (file.num_values, file.lowest)
    assert shard.values.dtype == file.values.dtype


def test_gray_pictures_among_those_in_colour_are_read_in_colour(tmp_path):
    write(tmp_path / "a.tar", [("a.png", picture(VALUES[0, ..., 0])), ("b.png", picture(VALUES[1]))])
    examples = data.load(tmp_path / "a.tar", split="all")
    np.testing.assert_array_equal(examples.values[:], [np.repeat(VALUES[0, ..., :1], 3, -1), VALUES[1]])


def test_records_are_those_of_webdataset(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    path = str(tmp_path / "a.tar")
    long = "folder/" * 30
    with webdataset.TarWriter(path) as writer:
        for i, key in enumerate(["plain", "in/a/folder", "in.dots/name", f"{long}deep", "ümläut", "plain2"]):
            writer.write({"__key__": key, "png": VALUES[i], "cls": i, "seg.png": VALUES[i, ::-1], "txt": "words"})
    theirs = list(webdataset.WebDataset(path, shardshuffle=False).decode("rgb8"))
    ours = data.load(path, split="all")
    assert list(ours.names) == [f"a.tar/{each['__key__']}.png" for each in theirs]
    np.testing.assert_array_equal(ours.values[:], [each["png"] for each in theirs])
    assert ours.labels.tolist() == [each["cls"] for each in theirs]


def test_the_last_tenth_validates(shards):
    train, validation = (data.load(shards, split=split) for split in ("train", "validation"))
    np.testing.assert_array_equal(train.values[:], VALUES[:21])
    np.testing.assert_array_equal(validation.values[:], VALUES[21:])
    assert validation.labels.tolist() == [0, 1]
    assert validation.num_classes == 3
    with pytest.raises(ValueError, match="no test examples"):
        data.load(shards, split="test")


def test_names_of_shards_and_of_their_folders_state_splits(tmp_path):
    for name, i in {"train-0": 0, "train-1": 1, "val-0": 2, "test/0": 3}.items():
        write(tmp_path / "of_all" / f"{name}.tar", pictures(VALUES[i : i + 1], i))
    patterns = tmp_path / "of_all", tmp_path / "of_all" / "{train-0,train-1,val-0,test/0}.tar"
    for source in map(str, patterns):
        for split, chosen in {"train": [0, 1], "validation": [2], "test": [3]}.items():
            np.testing.assert_array_equal(data.load(source, split=split).values[:], VALUES[chosen])
        assert len(data.load(source, split="all")) == 4


def rewritten(path: Path, change) -> Path:
    """A copy of a shard with its members changed."""
    with tarfile.open(path) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]
    return write(path.with_name("copy.tar"), change(members))


@pytest.mark.parametrize(
    "change",
    [
        lambda members: [("x" + members[0][0][1:], members[0][1]), ("x000.cls", members[1][1]), *members[3:]],
        lambda members: [members[0], ("0000.cls", b"2"), *members[2:]],
        lambda members: [("0000.png", picture(255 - VALUES[0])), *members[1:]],
        lambda members: members[3:],
        lambda members: [*members[3:], *members[:3]],
    ],
    ids=["name", "class", "pixels", "fewer", "order"],
)
def test_the_fingerprint_is_of_names_classes_bytes_and_order(shards, change):
    path = shard_files(shards)[0]
    same = rewritten(path, list)
    fingerprint = data.load(path, split="all").fingerprint
    assert data.load(same, split="all").fingerprint == fingerprint
    same.unlink()
    assert data.load(rewritten(path, change), split="all").fingerprint != fingerprint


def test_the_fingerprint_is_of_the_part_and_of_how_it_is_read(shards):
    configs = [DataConfig(), DataConfig(mode="gray"), DataConfig(size=4, fit="crop"), DataConfig(size=4, fit="stretch")]
    parts = [data.load(shards, config, split) for config in configs for split in ("train", "validation", "all")]
    assert len({part.fingerprint for part in parts}) == len(parts)


def place(rank: int, count: int) -> Processes:
    processes = Processes(torch.device("cpu"))
    processes.rank, processes.count = rank, count
    return processes


STEPS = 5


def drawn(examples, config: TrainConfig, count: int, first: int = 0, steps: int = STEPS) -> list[list[torch.Tensor]]:
    """Values, labels, slices and operations of each step, those of all processes joined."""
    shares = []
    for rank in range(count):
        running = batches(examples, range(1, 3), 3, config, place(rank, count), first)
        shares.append(list(itertools.islice(running, steps * config.accumulate)))
        running.close()
    parts = [[torch.cat(each) for each in zip(*share)] for share in zip(*shares)]
    return [
        [torch.cat(each) for each in zip(*parts[start : start + config.accumulate])]
        for start in range(0, len(parts), config.accumulate)
    ]


@pytest.mark.parametrize(
    ("workers", "count"),
    [(0, 1), (0, 4), (1, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(2, 4), (2, 1)])],
)
def test_the_sequence_is_the_same_for_any_processes_workers_and_resumes(shards, workers, count):
    """Asserted on values, labels, slices and operations, over a border of epochs, against examples in memory."""
    examples = data.load(shards, split="all")
    config = TrainConfig(
        batch_size=8,
        seed=7,
        horizontal_flip=True,
        label_dropout=0.3,
        distribution_augmentation=0.5,
        shift_augmentation=0.3,
        workers=workers,
    )
    expected = [batch_at(examples[:], range(1, 3), 3, config, step_positions(step, 8)) for step in range(STEPS)]
    at_once = drawn(examples, config, count)
    resumed = drawn(examples, config, count, steps=2) + drawn(examples, config, 4 // count, first=2, steps=3)
    for sequence in (at_once, resumed):
        assert len(sequence) == STEPS
        for step, batch in zip(sequence, expected, strict=True):
            assert all(map(torch.equal, step, batch))


def test_parts_of_a_step_come_in_their_order(shards):
    config = TrainConfig(batch_size=8, accumulate=2, distribution_augmentation=0.5, workers=1)
    (values, *_), *_ = drawn(data.load(shards, split="all"), config, 1)
    whole = batch_at(data.load(shards, split="all"), range(1, 3), 3, config, step_positions(0, 8))
    assert torch.equal(values, whole.values)


def test_drawing_ahead_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    assert list(ahead(abs, [-1, -2], workers=1)) == [1, 2]
    assert torch.equal(torch.get_rng_state(), state)


def _fail(key: int) -> int:
    if key == 2:
        raise ValueError("two is damaged")
    return key


def _die(key: int) -> int:
    if key == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@pytest.mark.parametrize(("work", "error"), [(_fail, ValueError), (_die, ChildProcessError)])
def test_what_goes_wrong_in_a_worker_is_one_line_here(work, error):
    with pytest.raises(error, match=r"^(two is damaged|a process that prepares examples died: .* take fewer workers)$"):
        list(ahead(work, itertools.count(), workers=2))


def test_the_number_of_workers_is_bounded():
    with pytest.raises(ValueError, match=r"training\.workers must be at least 0 and at most 256, not 100000"):
        TrainConfig(workers=100_000)


def _wait(key: int) -> int:
    signal.raise_signal(signal.SIGINT)
    return key


def test_workers_leave_ctrl_c_to_their_parent():
    assert list(itertools.islice(ahead(_wait, itertools.count(), workers=1), 3)) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("records", [4_000, 200_000])
def test_memory_does_not_grow_with_the_records(tmp_path, records):
    """For ten million: docs/project/robustness.md. Its benchmark also checks that each comes once, in order."""
    script = ROOT / "benchmarks" / "shards.py"
    command = [sys.executable, script, "--records", str(records), "--folder", tmp_path, "--workers", "0"]
    returned = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # arrays that are freed do not count as held
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, env=returned)
    assert ran.returncode == 0, ran.stderr[-3000:]
    metrics = json.loads(ran.stdout.splitlines()[-1])
    assert metrics["records"] == records
    assert metrics["index_held_MB"] < 4
    assert metrics["epoch_held_MB"] < 6 + 16 * records / 1e6  # the orders of two epochs, eight bytes an example


# --- damaged records ---


def damaged(tmp_path: Path, count: int = 2) -> Path:
    """Of ten records, the first ones are cut off."""
    members = [(f"{i}.png", picture(VALUES[i])) for i in range(10)]
    torn = [(name, content[:60]) for name, content in members[:count]]
    return write(tmp_path / "damaged.tar", torn + members[count:])


def test_a_damaged_record_stops_unless_it_may_be_skipped(tmp_path):
    path = damaged(tmp_path)
    for allowed in (0, 1):
        with pytest.raises(ValueError, match=r"damaged.tar: 0.png is not a whole image \(.*data.skip_bad"):
            data.load(path, DataConfig(skip_bad=allowed))
    with pytest.warns(UserWarning, match="skipped") as caught:
        examples = data.load(path, DataConfig(skip_bad=2), "all")
    assert [str(each.message)[:9] for each in caught] == ["skipped: "] * 2
    assert [re.search(r"damaged.tar: (\d).png", line)[1] for line in examples.skipped] == ["0", "1"]
    np.testing.assert_array_equal(examples.values[:], VALUES[2:10])
    with pytest.raises(ValueError, match="skip_bad=2 would leave out 2"):  # known already, and still too many
        data.load(path, DataConfig(skip_bad=1))


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("a.cls", b"1")], "comes with no picture and no array"),
        ([("a.png", picture(VALUES[0])), ("a.jpg", b"")], "comes with another picture or array"),
        ([("a.png", picture(VALUES[0])), ("a.png", b"")], "two members of one kind"),
        ([("a.png", b"text")], "not a whole image"),
        ([("a.png", picture(VALUES[0])), ("a.cls", b"cat")], "its class is b'cat'"),
        ([("a.png", picture(VALUES[0])), ("a.cls", b"9" * 30)], "its class is"),
        ([("a.npy", array(VALUES[0])[:-1])], "claims shape"),
        ([("a.npy", array(np.array([None])))], "never unpickled"),
        ([("a.npy", array(np.geomspace(1, 2, 6).reshape(2, 3)))], "not at equal steps"),
    ],
)
@pytest.mark.filterwarnings("ignore:skipped")
def test_what_is_no_example_is_named_with_its_reason(tmp_path, members, says):
    path = write(tmp_path / "a.tar", [*members, ("good.png", picture(VALUES[0]))])
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        data.load(path, split="all")
    assert str(caught.value).startswith(f"{path}: a.")
    assert "\n" not in str(caught.value)
    if says != "its class is b'cat'":
        assert len(data.load(path, DataConfig(skip_bad=1), "all")) == 1


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([("b.png", picture(VALUES[0, :3]))], "b.png is 3x5 where .* is 4x5: give data.size"),
        ([("b.png", picture(VALUES[0])), ("b.cls", b"1")], "b.png has a class and .*a.png has none"),
        ([("b.npy", array(VALUES[0]))], "do not fit together"),
        ([("b.png", picture(VALUES[0, ..., 0].astype(np.uint16)))], "do not fit together"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_records_that_do_not_fit_together_are_named(tmp_path, others, says, apart):
    first = [("a.png", picture(VALUES[0]))]
    write(tmp_path / "0.tar", first if apart else [*first, *others])
    write(tmp_path / "1.tar", others if apart else first)
    with pytest.raises(ValueError, match=says):
        data.load(str(tmp_path / "{0..1}.tar"), DataConfig(skip_bad=100), "all")


def test_a_record_that_changes_later_is_an_error(tmp_path):
    path = write(tmp_path / "a.tar", [("a.png", picture(VALUES[0])), ("b.png", picture(VALUES[1]))])
    examples = data.load(path, split="all")
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(ValueError, match=r"a.tar: record 0 ends after .* copy the shard again"):
        examples.values[:1]


def test_a_shard_that_was_written_anew_is_indexed_anew(tmp_path):
    for i in (0, 1):
        path = write(tmp_path / "a.tar", [("a.png", picture(VALUES[i]))])
        os.utime(path, ns=(0, i))
        np.testing.assert_array_equal(data.load(path, split="all").values[:], VALUES[i : i + 1])


def test_a_shard_that_changes_while_it_is_used_is_named(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i}.npy", array(VALUES[i])) for i in range(3)])
    examples = data.load(path, split="all")
    os.utime(path, ns=(0, 0))
    for read in (examples.values.__getitem__, examples.names.__getitem__):
        with pytest.raises(ValueError, match=rf"^{path} has changed since it was indexed"):
            read(slice(0, 1))
    assert data.load(path, split="all").names[:] == ["a.tar/0.npy", "a.tar/1.npy", "a.tar/2.npy"]


# --- the index in the cache ---


def test_fingerprints_stay_what_they_are(tmp_path):
    members = [("a.npy", array(VALUES[0])), ("a.cls", b"1"), ("b/b.npy", array(VALUES[1])), ("b/b.cls", b"0")]
    path = write(tmp_path / "a.tar", members)
    expected = "9a6c297cd73026ad5b06130a0a33d74995bf5c40bfe11964d1dc97f6ff9c99d5"
    assert [data.load(path, split="all").fingerprint for _ in range(2)] == [expected] * 2  # made, and found


def of_rows(change):
    def damage(folder: Path) -> None:
        rows = np.fromfile(folder / "rows.bin", ROW)
        change(rows)
        rows.tofile(folder / "rows.bin")

    return damage


def of_about(**values):
    def damage(folder: Path) -> None:
        stored = json.loads((folder / "about.json").read_text())
        stored["about"] |= values
        (folder / "about.json").write_text(json.dumps(stored))

    return damage


def cut(name: str, count: int):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-count])


DAMAGE = {
    "a label": of_rows(lambda rows: rows["label"].__setitem__(1, 0)),
    "a row less": cut("rows.bin", ROW.itemsize),
    "half a row less": cut("rows.bin", ROW.itemsize // 2),
    "the file of rows is missing": lambda folder: (folder / "rows.bin").unlink(),
    "half a description": cut("about.json", 20),
    "no description": lambda folder: (folder / "about.json").unlink(),
    "deep": lambda folder: (folder / "about.json").write_text("[" * 100_000),
    "forms of other types": of_about(forms=[["gray", "256", {}, 1, None]]),
    "another digest": of_about(digest="0" * 64),
    "no checksum": lambda folder: (folder / "about.json").write_text("{}"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_index_is_made_again(shards, cache, name):
    path = shard_files(shards)[0]
    fingerprint = data.load(path, split="all").fingerprint
    (folder,) = (file.parent for file in cache.rglob("rows.bin"))
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    DAMAGE[name](folder)
    examples = data.load(path, split="all")
    np.testing.assert_array_equal(examples.values[:], VALUES[:10])
    assert (examples.labels.tolist(), examples.fingerprint) == ([i % 3 for i in range(10)], fingerprint)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole


def test_an_index_is_made_once(shards, monkeypatch):
    data.load(shards)
    monkeypatch.setattr("axial_transformers.data.shards.index.decode", lambda *_: 1 / 0)
    assert len(data.load(shards, split="all")) == 23


def test_what_a_killed_process_left_of_an_index_is_removed(shards, cache, monkeypatch):
    killed = os.fork()
    if not killed:
        with monkeypatch.context() as patch, suppress(Exception):
            patch.setattr(
                "axial_transformers.data.shards.index.common_form", lambda _: os.kill(os.getpid(), signal.SIGKILL)
            )
            data.load(shards)
        os._exit(1)
    assert os.waitpid(killed, 0)[1] == signal.SIGKILL
    assert list(cache.rglob(".*.part"))
    data.load(shards)
    assert not list(cache.rglob(".*.part"))


# --- hostile shards ---


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


GOOD = header("a.png", len(picture(VALUES[0]))) + picture(VALUES[0]).ljust(512, b"\0")
HOSTILE = {
    "empty": b"",
    "text": b"hello" * 1000,
    "gzip": b"\x1f\x8b\x08" + bytes(1000),
    "cut off in a member": GOOD[:600],
    "cut off in a header": GOOD + GOOD[:100],
    "without an end": GOOD,
    "junk after a member": GOOD + b"junk" * 1000,
    "terabytes": header("a.png", 1 << 40) + bytes(2048),
    "more than can be": header("a.png", 1 << 80) + bytes(2048),
    "negative size": header("a.png", 512)[:124] + b"\xff" * 12 + header("a.png", 512)[136:] + bytes(2048),
    "a name of terabytes": header("a.png", 1 << 40, tarfile.GNUTYPE_LONGNAME) + bytes(2048),
    "attributes of gigabytes": header("a.png", 1 << 33, tarfile.XHDTYPE) + bytes(2048),
    "names without end": header("a.png", 5, tarfile.GNUTYPE_LONGNAME) * 5000 + bytes(2048),
    "attributes of all members": header("a.png", 14, tarfile.XGLTYPE)
    + b"14 path=a.png\n".ljust(512, b"\0")
    + GOOD
    + bytes(1024),
    "a negative attribute": header("a.png", 11, tarfile.XHDTYPE)
    + b"11 size=-9\n".ljust(512, b"\0")
    + GOOD
    + bytes(1024),
    "sparse without end": header("a.png", 0, tarfile.GNUTYPE_SPARSE)[:-30] + b"\1" * 30 + b"\1" * 5120,
    "pickles": header("a.pyd", 3) + b"abc".ljust(512, b"\0") + bytes(1024),
    "no records": bytes(1024),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_shards_are_one_line(tmp_path, name):
    path = tmp_path / "hostile.tar"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ValueError, match=f"^{path}.*(tar file|pickled|no records)") as caught:
        data.load(path, DataConfig(skip_bad=10))
    assert "\n" not in str(caught.value)


SLOW_IN_TARFILE = {
    "digits": [b"1" * (1 << 20)],
    "values of two bytes": [b"2 " * (1 << 19)],
    "many values": [b"".join(b"13 k%07d=\n" % i for i in range(80_000))],
    "many lists": [b"11 k%04d=1\n" % i for i in range(1000)],
}


@pytest.mark.parametrize("name", SLOW_IN_TARFILE)
def test_a_megabyte_of_headers_is_read_in_a_second(tmp_path, name):
    path = tmp_path / "a.tar"
    lists = (header("l", len(each), tarfile.XHDTYPE) + each + bytes(-len(each) % 512) for each in SLOW_IN_TARFILE[name])
    path.write_bytes(b"".join(lists) + GOOD + bytes(1024))
    start = time.process_time()
    with suppress(ValueError):
        assert len(list(records(path))) == 1
    assert time.process_time() - start < 1.5


def test_members_whose_names_lead_elsewhere_are_read_and_written_nowhere(tmp_path):
    """Members that are no files, links and devices, are ignored."""
    content = picture(VALUES[0])
    names = ["../outside.png", "/outside2.png"]
    blob = b"".join(header(name, len(content)) + content.ljust(512, b"\0") for name in names)
    blob += header("link.png", 0, tarfile.SYMTYPE) + header("device.png", 0, tarfile.CHRTYPE)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.tar").write_bytes(blob + bytes(1024))
    examples = data.load(tmp_path / "inside" / "a.tar", split="all")
    assert len(examples[:]) == 2
    assert not list(tmp_path.rglob("outside*")) + list(Path("/").glob("outside2*"))


def test_a_picture_that_unpacks_to_gigabytes_is_refused(tmp_path):
    bomb = picture(np.zeros((1, 1), np.uint8))
    bomb = bomb[:16] + (60_000).to_bytes(4, "big") * 2 + bomb[24:]
    with pytest.raises(ValueError, match=r"a.png .*(pixels|not a whole image)"):
        data.load(write(tmp_path / "a.tar", [("a.png", bomb)]), split="all")


# --- sources ---


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("{0..1}/{a,b}", ["0/a", "0/b", "1/a", "1/b"]),
        ("{a,}.tar", ["a.tar", ".tar"]),
    ],
)
def test_braces_stand_for_what_they_do_in_a_shell(pattern, words):
    assert expand(pattern) == words


@pytest.mark.parametrize(
    "pattern",
    [
        "{0..",
        "a}",
        "{a,{b,c}}",
        "{a}",
        "{}",
        "{3..1}",
        "{a..c}",
        "{0..99999999}",
        "{0..999}" * 5,
        "{" * 2000,
        "{a,b}" * 2000,
    ],
)
def test_patterns_that_stand_for_nothing_are_refused(pattern):
    with pytest.raises(ValueError, match=re.escape(pattern[:2])) as caught:
        expand(pattern)
    assert "\n" not in str(caught.value)


def test_a_shard_that_is_missing_is_named(shards):
    with pytest.raises(FileNotFoundError, match=r"train-003.tar: no such file, of 4 that"):
        data.load(shards.replace("002", "003"))
    with pytest.raises(FileNotFoundError, match=r"a-0.tar.gz"):
        data.load(shards.replace("train-{000..002}.tar", "a-{0..1}.tar.gz"))


def test_a_hub_data_set_is_all_its_shards_or_those_of_a_pattern(shards, monkeypatch):
    """Without the hub: its client is replaced by one that returns local files."""
    folder, asked = Path(shards).parent, []

    def bring(repository, name, *, repo_type, revision):
        asked.append((repository, name, repo_type, revision))
        return str(folder / Path(name).name)

    listed = ["README.md", "data/train-002.tar", "data/train-000.tar", "data/train-001.tar", "other/x.tar"]
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda *_, **__: listed)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", bring)
    np.testing.assert_array_equal(data.load("hf://datasets/me/mine@v1/data", split="all").values[:], VALUES)
    assert asked == [("me/mine", f"data/train-00{i}.tar", "dataset", "v1") for i in range(3)]
    asked.clear()
    assert len(data.load("hf://datasets/me/mine/data/train-{000..001}.tar", split="all")) == 20
    assert asked == [("me/mine", f"data/train-00{i}.tar", "dataset", None) for i in range(2)]
    with pytest.raises(ValueError, match=r"holds no \.tar files"):
        data.load("hf://datasets/me/mine/nowhere")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: 1 / 0)
    with pytest.raises(FileNotFoundError, match="not available from the hub"):
        data.load("hf://datasets/me/mine/data")


# --- from the command line ---


def test_a_run_on_shards_and_its_evaluation(axial: Axial, shards, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = ["--model.encoder-layers", "2", "--model.inner-layers", "1", "--training.sample-every", "9"]
    steps = ["--training.steps", 3, "--training.batch-size", "4", "--training.evaluate-every", 3]
    assert axial("train", shards, *TINY, *encoder, *steps).status == 0
    run = tmp_path / "runs" / "train"
    metrics = json.loads(axial("evaluate", run, "--json").out)
    validation = data.load(shards, split="validation")
    assert (metrics["images"], metrics["fingerprint"]) == (2, validation.fingerprint)
    np.savez(tmp_path / "same.npz", images=VALUES[21:])
    alike = json.loads(axial("evaluate", run, "same.npz", "--json").out)
    assert metrics["bits_per_dim"] == pytest.approx(alike["bits_per_dim"], abs=1e-9)


def test_damage_is_one_line_and_status_2_or_counted(axial: Axial, refused, tmp_path):
    path, run = damaged(tmp_path, 1), tmp_path / "run"
    short = ["--training.steps", 1, "--training.batch-size", 2, "--model.encoder-layers", 2, "--out", run]
    assert refused("train", path, *TINY, *short).startswith(f"axial train: {path}: 0.png is not a whole image")
    status, _, err = axial("train", path, *TINY, *short, "--data.skip-bad", 1)
    assert status == 0
    assert err.count(f"warning: skipped: {path}: 0.png") == 1
    about = json.loads((run / "train.json").read_text())["facts"]
    assert [line.partition(" is not")[0] for line in about["skipped"]] == [f"{path}: 0.png"]
    assert json.loads(axial("evaluate", run, path, "--json").out)["skipped"] == 1
    assert axial("evaluate", run, path, "--data.skip-bad", 0).status == 2
