"""axial compress and axial decompress."""

import json
import re
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.cli import main
from axial_transformers.compression import archive, open_archive
from axial_transformers.data.video import frames_of, lossless_movie
from tests.conftest import Axial
from tests.scan_writer import make_scan
from tests.small_models import CHUNKS_OF_64, archiving_model, random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def model(tmp_path) -> str:
    archiving_model().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def images(tmp_path) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (70, 3, 5), np.uint8)
    np.savez(tmp_path / "images.npz", images=values, labels=np.zeros(70, int))
    return values


def test_an_array_goes_into_an_archive_and_comes_back(tmp_path, capsys, model, images):
    archive, back = str(tmp_path / "a.axl"), str(tmp_path / "back.npz")
    assert main(["compress", model, str(tmp_path / "images.npz"), archive, "--force", "--json"]) == 0
    said = capsys.readouterr()
    metrics = json.loads(said.out)
    assert "labels" in said.err
    assert metrics["images"] == 70
    assert metrics["bytes"] == (tmp_path / "a.axl").stat().st_size
    assert metrics["bits_per_dim"] == metrics["bytes"] * 8 / images.size
    assert main(["decompress", model, archive, back]) == 0
    assert capsys.readouterr().out.strip() == back
    assert np.array_equal(np.load(back)["images"], images)


def test_an_archive_that_holds_its_model_needs_no_other(axial: Axial, refused, model, images):
    done = axial("compress", model, "images.npz", "a.axl", "--force", "--embed", "--json")
    metrics = json.loads(done.out)
    assert 0 < metrics["model_bytes"] < metrics["bytes"]
    assert axial("decompress", "a.axl", "back.npz").out == "back.npz\n"
    assert np.array_equal(np.load("back.npz")["images"], images)
    open_archive("a.axl").model.save_pretrained("rounded")
    assert axial("decompress", "rounded", "a.axl", "again.npz").status == 0
    assert np.array_equal(np.load("again.npz")["images"], images)
    assert "the archive holds its model, so leave this one out" in refused("decompress", model, "a.axl", "more.npz")


def test_an_archive_without_its_model_says_how_to_name_it(axial: Axial, refused, model, images):
    assert axial("compress", model, "images.npz", "a.axl", "--force").status == 0
    says = "does not carry its model, .*, as in axial decompress MODEL a.axl back.npz$"
    assert re.search(says, refused("decompress", "a.axl", "back.npz"))
    assert "model a.axl restored/" in refused("decompress", "model", "a.axl")


@pytest.mark.parametrize("embed", [True, False])
def test_an_archive_is_compared_with_its_weights(axial: Axial, model, images, embed):
    words = ["images.npz", "a.axl", "--compare", "--no-verify", "--force", *["--embed"] * embed]
    found = json.loads(axial("compress", model, *words, "--json").out)["compared"]
    weights = 0 if embed else Path("model/model.safetensors").stat().st_size
    assert found["archive, weights counted"] == Path("a.axl").stat().st_size + weights
    assert {name.split(",")[0] for name in found} >= {"PNG", "WebP", "xz"}
    rows = axial("compress", model, *words).out.splitlines()[-len(found) :]
    sizes = [int(re.search(r"([\d,]+) bytes", row)[1].replace(",", "")) for row in rows]
    assert sizes == sorted(found.values())
    assert rows[-1].split()[-2] == f"{8 * sizes[-1] / images.size:.4f}"


def test_what_salvage_loses_is_said(tmp_path, capsys, model, images):
    archive = tmp_path / "a.axl"
    np.savez(tmp_path / "more.npz", images=np.concatenate([images, images]))
    with CHUNKS_OF_64:
        assert main(["compress", model, str(tmp_path / "more.npz"), str(archive), "--force"]) == 0
    archive.write_bytes(archive.read_bytes()[:-1])
    assert main(["decompress", model, str(archive), str(tmp_path / "back.npz"), "--salvage"]) == 0
    assert "lost, 70" in capsys.readouterr().err
    assert np.array_equal(np.load(tmp_path / "back.npz")["images"], images)


def gradient(height: int, width: int, colours: int = 1) -> np.ndarray:
    values = np.arange(height * width * colours) % 251
    return values.reshape((height, width, colours) if colours > 1 else (height, width)).astype(np.uint8)


def test_files_that_are_no_pictures_are_kept_and_said_in_one_line(axial: Axial):
    random_model(small_config((3, 4), num_values=256)).float().save_pretrained("model")
    Path("photos").mkdir()
    Image.fromarray(gradient(3, 4)).save("photos/a.png")
    Path("photos/Thumbs.db").write_bytes(bytes(5000))
    Path("photos/notes.txt").write_text("of the holidays")
    Path("photos/link").symlink_to("nowhere")
    done = axial("compress", "model", "photos", "a.axl", "--force", "--json")
    assert done.err.splitlines()[:2] == [  # before the time is spent
        "warning: not in the archive, 1: link",
        "stored as the files that they are, not by the model, 2, 5,015 bytes: Thumbs.db, notes.txt",
    ]
    metrics = json.loads(done.out)
    assert metrics["bits_per_dim"] == (metrics["bytes"] - 5015) * 8 / 12
    assert axial("decompress", "model", "a.axl", "back").status == 0
    assert Path("back/notes.txt").read_text() == "of the holidays"


def test_what_is_stored_by_other_means_is_said_before_and_after(axial: Axial):
    random_model(small_config((8, 9), 3, num_values=256)).float().save_pretrained("model")
    Path("mixed").mkdir()
    for i in range(3):
        Image.fromarray(gradient(8, 9) % 7 > i).save(f"mixed/{i}.png")
    Image.new("RGB", (9, 8), (1, 2, 3)).save("mixed/flat.png")
    sizes = [path.stat().st_size for path in sorted(Path("mixed").iterdir())]
    done = axial("compress", "model", "mixed", "a.axl", "--force")
    assert done.err.splitlines()[0] == (
        f"stored as the files that they are, not by the model, 3, {sum(sizes[:3]):,} bytes: 0.png, 1.png, 2.png"
    )
    metrics = json.loads(axial("compress", "model", "mixed", "b.axl", "--force", "--json").out)
    archive = Path("a.axl").stat().st_size
    assert metrics["webp"]["images"] == 1
    assert metrics["files"]["number"] == 3
    assert done.out.splitlines()[-3:] == [
        f"stored as WebP, not by the model: 1 image, {metrics['webp']['bytes']:,} bytes",
        f"stored as files, not by the model: 3 files, {metrics['files']['bytes']:,} bytes",
        f"input {sum(sizes):,} bytes, archive {archive:,} bytes, ratio {sum(sizes) / archive:.2f}",
    ]
    assert (metrics["input_bytes"], metrics["bytes"]) == (sum(sizes), archive)


def test_videos_come_back_as_lossless_movies_which_is_said(axial: Axial):
    random_model(small_config((2, 3, 4), 3, num_values=256)).float().save_pretrained("model")
    Path("films").mkdir()
    frames = np.stack([gradient(3, 4, 3) + i for i in range(3)])
    Path("films/a.webm").write_bytes(lossless_movie(frames, Fraction(24)))
    done = axial("compress", "model", "films", "films.axl", "--force")
    assert done.status == 0, done.err
    assert "videos, 1: they come back as lossless .mkv files of the same frames, without sound" in done.err
    assert axial("decompress", "model", "films.axl", "back").status == 0
    found = [np.asarray(frame) for frame in frames_of(Path("back/a.webm.mkv"), "rgb")]
    assert np.array_equal(found, frames)


def test_a_scan_is_said_to_come_back_byte_for_byte(axial: Axial):
    random_model(small_config((2, 4, 4), num_values=250)).float().save_pretrained("model")
    make_scan(Path("a.nii.gz"), np.random.default_rng(0).integers(0, 250, (3, 5, 7)).astype(np.uint8))
    done = axial("compress", "model", "a.nii.gz", "a.axl", "--force")
    assert "a.nii.gz comes back byte for byte\n" in done.err
    assert "a.axl: 8 tiles of 1 volume, " in done.out
    assert "stored as headers, not by the model: 1 file, " in done.out
    assert axial("decompress", "model", "a.axl", "b.nii.gz").status == 0
    assert Path("b.nii.gz").read_bytes() == Path("a.nii.gz").read_bytes()
    assert axial("decompress", "model", "a.axl", "b.nii.gz").status == 2


def test_what_is_no_image_is_called_by_its_name(axial: Axial):
    random_model(small_config((40,), num_values=4)).float().save_pretrained("model")
    np.save("dna.npy", np.random.default_rng(0).integers(0, 4, (3, 40)).astype(np.uint8))
    said = axial("compress", "model", "dna.npy", "a.axl", "--force").out
    assert said.startswith("a.axl: 3 sequences, ")
    evaluated = axial("evaluate", "model", "dna.npy").out
    assert "(standard error over sequences)" in evaluated
    assert "image" not in said + evaluated


@pytest.mark.parametrize("embed", [[], ["--embed"]])
def test_an_archive_larger_than_its_input_is_refused_with_both_sizes(axial: Axial, model, images, embed):
    done = axial("compress", model, "images.npz", "a.axl", *embed)
    assert (done.status, done.out, Path("a.axl").exists()) == (1, "", False)
    *_, line = done.err.splitlines()
    size, limit = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}", line))
    assert limit == len(zlib.compress(images.tobytes(), 9)) < size
    assert "force" in line
    assert axial("compress", model, "images.npz", "a.axl", *embed, "--force").status == 0


def test_a_large_archive_is_refused_before_the_work(axial: Axial, model, monkeypatch):
    np.save("noise.npy", np.random.default_rng(0).integers(0, 256, (3000, 3, 5), np.uint8))
    monkeypatch.setattr("axial_transformers.compression.codec.smaller_files", lambda *_: {})
    coded, usual = [], archive.encode_chunk
    monkeypatch.setattr(
        archive, "encode_chunk", lambda *given, **how: coded.append(len(given[1])) or usual(*given, **how)
    )
    assert axial("compress", model, "noise.npy", "a.axl").status == 1
    assert sum(coded) < 100


def test_an_archive_of_files_of_which_none_is_modelled_is_refused(axial: Axial, model):
    Path("large").mkdir()
    Image.fromarray(gradient(40, 50)).save("large/a.png")
    done = axial("compress", model, "large", "a.axl")
    assert (done.status, Path("a.axl").exists()) == (1, False)
    size = f"{Path('large/a.png').stat().st_size:,}"
    assert f"not by the model, 1, {size} bytes: a.png" in done.err
    assert f"the input {size}: " in done.err


def test_nothing_is_evaluated_after_the_archive_is_complete(axial: Axial, model, images, monkeypatch):
    monkeypatch.setattr("axial_transformers.models.AxialTransformer.forward", None)
    assert axial("compress", model, "images.npz", "a.axl", "--force").status == 0
