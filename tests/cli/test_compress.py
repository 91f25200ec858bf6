"""axial compress and axial decompress."""

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.cli.compress import Compress
from axial_transformers.compression import ArchiveError, archive, open_archive
from tests.conftest import Axial
from tests.scan_writer import make_scan
from tests.small_models import CHUNKS_OF_64, archiving_model, random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def model() -> str:
    archiving_model().save_pretrained("model")
    return "model"


@pytest.fixture
def images() -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (70, 3, 5), np.uint8)
    np.savez("images.npz", images=values, labels=np.zeros(70, int))
    return values


@pytest.mark.parametrize("embed", [True, False])
def test_an_array_goes_into_an_archive_and_comes_back(axial: Axial, refused, model, images, embed):
    words = [model, "images.npz", "a.axl", "--force", "--json", *["--no-embed"] * (not embed)]
    metrics = json.loads(axial("compress", *words).out)
    assert (metrics["images"], metrics["bytes"]) == (70, Path("a.axl").stat().st_size)
    assert metrics["bits_per_dim"] == (metrics["bytes"] - metrics["stored_bytes"]) * 8 / images.size
    assert (metrics["model_bytes"] > 0) == embed
    if not embed:
        assert "does not hold its model, " in refused("decompress", "a.axl", "b.npz")
    for given in [[], [model]] if embed else [[model]]:
        target = f"back{len(given)}.npz"
        assert axial("decompress", *given, "a.axl", target).out == f"{target}\n"
        assert np.array_equal(np.load(target)["images"], images)
    assert "model a.axl restored/" in refused("decompress", "model", "a.axl")


def test_digits_are_the_bundled_ones_and_a_path_stays_a_path():
    assert Compress("digits", "a.axl").words == (None, "digits", Path("a.axl"))
    assert Compress("digits", "digits", "a.axl").words == ("digits", "digits", Path("a.axl"))
    assert Compress("./digits", "a.axl").words == (None, "./digits", Path("a.axl"))


@pytest.mark.parametrize("embed", [True, False])
def test_an_archive_is_compared_with_its_weights(axial: Axial, model, images, embed):
    words = ["images.npz", "a.axl", "--compare", "--no-verify", "--force", *["--no-embed"] * (not embed)]
    metrics = json.loads(axial("compress", model, *words, "--json").out)
    found, weights = metrics["compared"], 0 if embed else Path("model/model.safetensors").stat().st_size
    own = Path("a.axl").stat().st_size - metrics["stored_bytes"]
    assert found["archive, weights counted"]["bytes"] == own + weights
    assert all(coded["seconds"] > 0 for coded in found.values())
    assert {name.split(",")[0] for name in found} >= {"PNG", "WebP", "xz"}
    *rows, last = axial("compress", model, *words).out.splitlines()[-len(found) - 1 :]
    sizes = [int(re.search(r"([\d,]+) bytes", row)[1].replace(",", "")) for row in rows]
    assert sizes == sorted(coded["bytes"] for coded in found.values())
    assert f" {8 * sizes[-1] / images.size:.4f} bits/dim " in rows[-1]
    assert all(re.search(r" [\d,.]+ s +[\d.]+ MB/s$", row) for row in rows)
    assert re.fullmatch(
        r"[\d.]+ % (above|below) .*, [\d.]+ % (above|below) .*, for \d+ s and the training of model", last
    )


def test_what_salvage_loses_is_said_and_the_status_is_1(axial: Axial, model, images):
    np.save("more.npy", np.concatenate([images, images]))
    with CHUNKS_OF_64:
        assert axial("compress", model, "more.npy", "a.axl", "--force").status == 0
    content = Path("a.axl").read_bytes()
    Path("a.axl").write_bytes(content[:-1])
    done = axial("decompress", "a.axl", "back.npy", "--salvage")
    assert (done.status, done.out) == (1, "back.npy\n")
    assert "lost, 70: 70, 71, " in done.err
    assert np.array_equal(np.load("back.npy"), np.concatenate([images, images * 0]))


def test_files_that_are_no_data_are_stored_or_left_out_which_is_said_first(axial: Axial, model):
    Path("photos").mkdir()
    Image.fromarray(np.arange(15, dtype=np.uint8).reshape(3, 5)).save("photos/a.jpg")
    Path("photos/Thumbs.db").write_bytes(bytes(5000))
    Path("photos/link").symlink_to("nowhere")
    done = axial("compress", model, "photos", "a.axl", "--force")
    assert done.err.splitlines()[:3] == [
        "warning: left out: 1 broken link in photos",
        "1 image will come back with the same pixels, 1 of them re-encoded as PNG",
        "stored, not coded by the model: 1 file, Thumbs.db",
    ]
    assert re.search(r"\nstored, not coded by the model: 1 file, \d\d bytes\n", done.out)
    assert axial("decompress", "a.axl", "back").status == 0
    assert sorted(path.name for path in Path("back").iterdir()) == ["Thumbs.db", "a.png"]
    assert axial("compress", model, "photos", "b.axl", "--force", "--only-data").status == 0
    assert axial("decompress", "b.axl", "again").status == 0
    assert [path.name for path in Path("again").iterdir()] == ["a.png"]


def test_a_scan_says_how_it_comes_back(axial: Axial):
    random_model(small_config((2, 4, 4), num_values=250)).float().save_pretrained("model")
    make_scan(Path("a.nii.gz"), np.random.default_rng(0).integers(0, 250, (3, 5, 7)).astype(np.uint8))
    done = axial("compress", "model", "a.nii.gz", "a.axl", "--force")
    assert "1 scan will come back in the format in which it came" in done.err
    assert "a.axl: 1 volume in 8 blocks, " in done.out
    assert axial("decompress", "a.axl", "b.nii.gz").status == 0
    assert axial("decompress", "a.axl", "b.nii.gz").status == 2


def test_what_is_no_image_is_called_by_its_name(axial: Axial):
    random_model(small_config((40,), num_values=4)).float().save_pretrained("model")
    np.save("dna.npy", np.random.default_rng(0).integers(0, 4, (3, 40)).astype(np.uint8))
    said = axial("compress", "model", "dna.npy", "a.axl", "--force").out
    assert said.startswith("a.axl: 3 sequences, ")
    assert "(standard error over sequences)" in axial("evaluate", "model", "dna.npy").out
    assert "image" not in said


@pytest.mark.parametrize("embed", [[], ["--no-embed"]])
def test_an_archive_larger_than_its_input_is_refused_with_both_sizes(axial: Axial, model, images, embed):
    np.save("images.npy", images)
    done = axial("compress", model, "images.npy", "a.axl", *embed)
    assert (done.status, done.out, Path("a.axl").exists()) == (1, "", False)
    *_, line = done.err.splitlines()
    size, limit = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}", line))
    assert limit == len(zlib.compress(images.tobytes(), 9)) < size
    assert "force" in line


def test_a_large_archive_is_refused_before_the_work(axial: Axial, model, monkeypatch):
    np.save("noise.npy", np.random.default_rng(0).integers(0, 256, (3000, 3, 5), np.uint8))
    coded, usual = [], archive.encode_chunk
    monkeypatch.setattr(archive, "encode_chunk", lambda *given: coded.append(len(given[1])) or usual(*given))
    assert axial("compress", model, "noise.npy", "a.axl").status == 1
    assert coded == []


def test_nothing_is_evaluated_after_the_archive_is_complete(axial: Axial, model, images, monkeypatch):
    monkeypatch.setattr("axial_transformers.models.AxialTransformer.forward", None)
    assert axial("compress", model, "images.npz", "a.axl", "--force", "--no-embed").status == 0


def test_an_unclear_table_is_compressed_as_data_decimal_says(axial: Axial, refused):
    Path("t.csv").write_text("a;b\n" + "\n".join(f"{i},{i % 3:03d};{i % 5}" for i in range(1, 40)))
    random_model(small_config((2,), num_values=4000)).float().save_pretrained("model")
    assert "--data.decimal" in refused("compress", "model", "t.csv", "a.axl", "--force")
    done = axial("compress", "model", "t.csv", "a.axl", "--data.decimal", ".", "--force")
    assert "left out" in done.err


def test_an_archive_that_is_none_is_named_and_missing_words_are_asked_for(axial: Axial, refused):
    Path("b.axl").write_bytes(b"no archive")
    for command in ("inspect b.axl", "decompress b.axl out"):
        assert " b.axl: " in refused(*command.split())
    with pytest.raises(ArchiveError, match=r"^b\.axl: "):
        open_archive("b.axl")
    for command in ("compress photos", "compress", "decompress b.axl"):
        assert "both needed" in refused(*command.split())
