"""Data sets are built from their public sources, here from local files, or refused in one line."""

import gzip
import hashlib
import re
import struct

import numpy as np
import pytest

from axial_transformers import data
from tests import benchmark_commands  # noqa: F401  the path of the scripts
from tests.paths import ROOT

import public_datasets as datasets  # isort: skip
import varied_photos  # isort: skip
from dataset_sources import QUOTED, Quoted  # isort: skip

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (11, 3, 5), dtype=np.uint8), RNG.integers(0, 3, 11, dtype=np.uint8)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder with files of MNIST, from which they are downloaded in place of the real source."""
    folder, sums = tmp_path / "source", {}
    folder.mkdir()
    for part in ("train", "t10k"):
        for kind, values in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
            path = folder / f"{part}-{kind}-ubyte.gz"
            header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            path.write_bytes(gzip.compress(header + values.tobytes()))
            sums[path.as_uri()] = hashlib.md5(path.read_bytes()).hexdigest()
    for name in ("fashion_mnist", "mnist"):
        monkeypatch.setitem(datasets.SOURCES, name, sums)
    unknown = [Quoted(source=part.source, options=part.options, split=part.split) for part in QUOTED["fashion_mnist"]]
    monkeypatch.setitem(datasets.QUOTED, "fashion_mnist", unknown)
    return folder


def refused(capsys, *arguments):
    """The one line that ends a command."""
    with pytest.raises(SystemExit) as caught:
        datasets.main(*arguments)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error:"))
    assert caught.value.code == 2
    return line


@pytest.mark.usefixtures("source")
def test_fashion_mnist_is_sorted_by_class_then_shuffled_with_seed_0(tmp_path):
    datasets.main("fashion_mnist", tmp_path / "data")
    of_class = [i for label in range(3) for i in range(11) if LABELS[i] == label]
    np.random.RandomState(0).shuffle(of_class)
    for part in ("train", "test"):
        found = data.load(tmp_path / "data" / f"fashion_mnist_{part}.npz", split="all")
        assert (found.values[..., 0] == IMAGES[of_class]).all()
        assert (found.labels == LABELS[of_class]).all()


def test_another_source_or_result_than_the_quoted_one_is_refused(source, tmp_path, capsys):
    assert QUOTED["mnist"][0].fingerprint in refused(capsys, "mnist", tmp_path / "built")
    (source / "t10k-labels-idx1-ubyte.gz").write_bytes(b"other")
    assert "checksum" in refused(capsys, "mnist", tmp_path / "data")
    assert "is none of" in refused(capsys, "imagenet", tmp_path, (source / "train-labels-idx1-ubyte.gz",))
    assert not list((tmp_path / "data").rglob("*.npz"))


def test_the_documentation_quotes_the_fingerprints_that_are_checked():
    checked = [part.fingerprint for parts in QUOTED.values() for part in parts if part.fingerprint]
    results = (ROOT / "docs" / "results.md").read_text()
    assert all(fingerprint[:16] in results for fingerprint in checked)
    checked += varied_photos.FINGERPRINTS.values()
    for page in [ROOT / "docs" / "results.md", *ROOT.glob("src/axial_transformers/pretrained/*/README.md")]:
        quoted = re.findall(r"`([0-9a-f]{16,64})(?:\.\.\.)?`", page.read_text())
        assert [each for each in quoted if not any(known.startswith(each) for known in checked)] == []
