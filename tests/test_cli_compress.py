"""axial compress and axial decompress."""

import json

import numpy as np
import pytest
import torch

from axial_transformers.cli import main
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig


@pytest.fixture
def model(tmp_path) -> str:
    net = AxialTransformer(AxialTransformerConfig(shape=(3, 5), dim=8, heads=2, outer_layers=2, inner_layers=1))
    randomise(net, torch.Generator().manual_seed(0))
    net.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def images(tmp_path) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (70, 3, 5), np.uint8)
    np.savez(tmp_path / "images.npz", images=values, labels=np.zeros(70, int))
    return values


def test_an_array_goes_into_an_archive_and_comes_back(tmp_path, capsys, model, images):
    archive, back = str(tmp_path / "a.axl"), str(tmp_path / "back.npz")
    assert main(["compress", model, str(tmp_path / "images.npz"), archive, "--compare", "--json"]) == 0
    said = capsys.readouterr()
    figures = json.loads(said.out)
    assert "labels" in said.err
    assert figures["images"] == 70
    assert figures["bytes"] == (tmp_path / "a.axl").stat().st_size
    assert figures["bits_per_dim"]["archive"] == figures["bytes"] * 8 / images.size
    assert {"model", "PNG", "PNG, one sheet", "WebP", "WebP, one sheet"} < set(figures["bits_per_dim"])
    assert main(["decompress", model, archive, back]) == 0
    assert capsys.readouterr().out.strip() == back
    assert np.array_equal(np.load(back)["images"], images)


def test_the_table_names_what_it_compares(tmp_path, capsys, model, images):
    assert main(["compress", model, str(tmp_path / "images.npz"), str(tmp_path / "a [b].axl"), "--no-verify"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'a [b].axl'}: 70 images, ")
    assert "bits/dim" in out


def test_what_is_wrong_with_an_archive_is_one_line(tmp_path, capsys, model, images):
    (tmp_path / "a.axl").write_bytes(b"\x89AXL\r\n\x1a\n\x01")
    for archive, message in [
        ("a.axl", "the header of the archive ends early"),
        ("images.npz", "not an archive"),
        ("b.axl", "No such file"),
    ]:
        assert main(["decompress", model, str(tmp_path / archive), str(tmp_path / "back.npz")]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert said.err.count("\n") == 1


def test_what_salvage_loses_is_said(tmp_path, capsys, model, images):
    archive = tmp_path / "a.axl"
    np.savez(tmp_path / "more.npz", images=np.concatenate([images, images]))
    assert main(["compress", model, str(tmp_path / "more.npz"), str(archive), "--chunk-images", "64"]) == 0
    archive.write_bytes(archive.read_bytes()[:-1])
    assert main(["decompress", model, str(archive), str(tmp_path / "back.npz"), "--salvage"]) == 0
    assert "lost, 70" in capsys.readouterr().err
    assert np.array_equal(np.load(tmp_path / "back.npz")["images"], images)
