"""Data sets are built from their public sources, here from a server on this machine, or refused in one line."""

import gzip
import hashlib
import re
import struct
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data
from tests.paths import ROOT
from tests.shard_writer import pictures, write
from tests.tfrecord_writer import video_record, write_records

sys.path.insert(0, str(ROOT / "experiments"))

import public_datasets as datasets
import varied_photos
from dataset_sources import QUOTED, Quoted

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (11, 3, 5), dtype=np.uint8), RNG.integers(0, 3, 11, dtype=np.uint8)


class Web:
    """Files of a folder, served on this machine, in place of the real sources."""

    def __init__(self, folder: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.address, self.monkeypatch = folder, address, monkeypatch

    def publish(self, name: str) -> None:
        """Makes what lies in the folder the source of a data set, whose fingerprint has not been published."""
        kinds = {".gz": "md5"}
        sums = {
            f"{self.address}/{path.name}": checksum(path, kinds.get(path.suffix, "sha256"))
            for path in sorted(self.folder.iterdir())
        }
        self.monkeypatch.setitem(datasets.SOURCES, name, sums)
        parts = [Quoted(source=part.source, options=part.options, split=part.split) for part in QUOTED[name]]
        self.monkeypatch.setitem(datasets.QUOTED, name, parts)


def checksum(path: Path, kind: str) -> str:
    return hashlib.new(kind, path.read_bytes()).hexdigest()


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    (tmp_path / "web").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path / "web"))
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    yield Web(tmp_path / "web", f"http://127.0.0.1:{server.server_port}", monkeypatch)
    server.shutdown()
    server.server_close()


def idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def mnist_files(web: Web, *names: str) -> None:
    for name in names:
        idx(web.folder / f"{name}-images-idx3-ubyte.gz", IMAGES)
        idx(web.folder / f"{name}-labels-idx1-ubyte.gz", LABELS)


def build(name: str, folder: Path) -> None:
    datasets.main(name, folder)


def refused(capsys, *arguments) -> str:
    """The one line that ends a command."""
    with pytest.raises(SystemExit) as caught:
        datasets.main(*arguments)
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert len([line for line in error.splitlines() if line.startswith("error:")]) == 1
    return error.splitlines()[-1]


def test_fashion_mnist_is_sorted_by_class_then_shuffled_with_seed_0(web, tmp_path):
    mnist_files(web, "train", "t10k")
    web.publish("fashion_mnist")
    build("fashion_mnist", tmp_path / "data")
    of_class = [i for label in range(3) for i in range(11) if LABELS[i] == label]
    np.random.RandomState(0).shuffle(of_class)
    for part in ("train", "test"):
        found = data.load(tmp_path / "data" / f"fashion_mnist_{part}.npz", split="all")
        assert (found.values[..., 0] == IMAGES[of_class]).all()
        assert (found.labels == LABELS[of_class]).all()


def test_of_bairs_archive_only_the_videos_are_unpacked(web, tmp_path):
    frames = {part: RNG.integers(0, 256, (17, 64, 64, 3), dtype=np.uint8) for part in ("train", "test")}
    members = {"softmotion30_44k/README": b"text", "../test/escaped.txt": b"text"}
    for part, each in frames.items():
        file = write_records(tmp_path / "records", [video_record(each)])
        members[f"softmotion30_44k/{part}/traj_0_to_255.tfrecords"] = file.read_bytes()
    write(web.folder / "v0.tar", members.items())
    web.publish("bair")
    build("bair", tmp_path / "data")
    files = [str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data/bair").rglob("*") if path.is_file()]
    assert sorted(files) == [f"bair/{part}/traj_0_to_255.tfrecords" for part in ("test", "train")]
    found = data.load(tmp_path / "data" / "bair", data.DataConfig(frames=16), "test").values
    assert (found == frames["test"][None, :16]).all()


@pytest.mark.usefixtures("no_hub")
@pytest.mark.filterwarnings("ignore:.*copied once")
def test_imagenets_files_are_known_by_their_checksums(tmp_path, monkeypatch, capsys):
    values = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    mine, other = (write(tmp_path / name, pictures(values)) for name in ("renamed_valid.tar", "other.tar"))
    other.write_bytes(other.read_bytes() + bytes(512))
    monkeypatch.setitem(datasets.IMAGENET, "valid_32x32.tar", checksum(mine, "sha256"))
    datasets.main("imagenet", files=(mine,))
    assert "3 examples of 32 x 32 x 3" in capsys.readouterr().out
    assert "is none of" in refused(capsys, "imagenet", tmp_path, (other,))
    assert "--files" in refused(capsys, "imagenet")


def test_a_file_that_is_not_the_source_is_refused_and_nothing_is_built(web, tmp_path, capsys):
    mnist_files(web, "t10k")
    web.publish("mnist")
    idx(web.folder / "t10k-labels-idx1-ubyte.gz", LABELS[::-1])
    assert "checksum" in refused(capsys, "mnist", tmp_path / "data")
    (web.folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert "404" in refused(capsys, "mnist", tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.npz"))


def test_another_fingerprint_than_the_quoted_one_is_an_error(web, tmp_path, capsys, monkeypatch):
    mnist_files(web, "t10k")
    quoted = QUOTED["mnist"]
    web.publish("mnist")
    monkeypatch.setitem(datasets.QUOTED, "mnist", quoted)
    assert quoted[0].fingerprint in refused(capsys, "mnist", tmp_path)


def test_the_documentation_quotes_the_fingerprints_that_are_checked():
    checked = [part.fingerprint for parts in QUOTED.values() for part in parts if part.fingerprint]
    results = (ROOT / "docs" / "results.md").read_text()
    assert all(fingerprint[:16] in results for fingerprint in checked)
    checked.append(varied_photos.FINGERPRINT)
    for page in [ROOT / "docs" / "results.md", *ROOT.glob("src/axial_transformers/pretrained/*/README.md")]:
        quoted = re.findall(r"`([0-9a-f]{16,64})(?:\.\.\.)?`", page.read_text())
        assert [each for each in quoted if not any(known.startswith(each) for known in checked)] == []


def test_varied_copies_keep_the_photograph_itself_and_change_the_others(tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    photo = np.random.default_rng(0).integers(0, 256, (160, 144, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "photos" / "one.png")
    varied_photos.main(tmp_path / "photos", tmp_path / "varied", copies=6)
    copies = [np.asarray(Image.open(path)) for path in sorted((tmp_path / "varied").iterdir())]
    assert len(copies) == 6
    assert (copies[0] == photo).all()
    assert not any(copy.shape == photo.shape and (copy == photo).all() for copy in copies[1:])
    assert min(copy.shape[0] for copy in copies) >= 40
    assert "not the data of the shipped model" in capsys.readouterr().out
