"""What earlier releases wrote is still read, and gives the same numbers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import AxialTransformer, bits_per_dim, compress, decompress, sample
from axial_transformers.compression import compress_files, decompress_files, fingerprint
from axial_transformers.data import load
from conftest import Axial

FOLDER = Path(__file__).parent / "data" / "made_at_a8c2b9c"
FACTS = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def model() -> AxialTransformer:
    return AxialTransformer.from_pretrained(FOLDER / "model")


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    with np.load(FOLDER / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def test_an_exported_model_gives_the_same_logits_and_bits(model, expected):
    x, label = expected["x"], expected["label"]
    with torch.no_grad():
        torch.testing.assert_close(model(x, label), expected["logits"], rtol=0, atol=1e-6)
    torch.testing.assert_close(bits_per_dim(model, x, label), expected["bits_per_dim"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_exported_model_draws_the_same_samples(model, expected, compiled):
    drawn = sample(model, 2, generator=torch.Generator().manual_seed(5), compile=compiled)
    assert torch.equal(drawn, expected["samples"])


def test_fingerprints_are_the_same(model):
    assert fingerprint(model).hex() == FACTS["fingerprint_of_model"]
    assert {split: load("digits", split=split).fingerprint for split in FACTS["fingerprints_of_digits"]} == FACTS[
        "fingerprints_of_digits"
    ]


def test_an_archive_decodes_to_the_same_images_and_is_written_the_same(model, expected):
    images, label = expected["images"], torch.arange(len(expected["images"])) % 4
    archive = (FOLDER / "labelled.axl").read_bytes()
    assert torch.equal(decompress(model, archive, label), images)
    assert compress(model, images, label, verify=False) == archive


def test_an_archive_of_pictures_gives_the_same_files_and_is_written_the_same(model, tmp_path):
    decompress_files(model, FOLDER / "pictures.axl", tmp_path / "again")
    names = {path.name for path in (FOLDER / "pictures").iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names:
        old, new = Image.open(FOLDER / "pictures" / name), Image.open(tmp_path / "again" / name)
        assert (old.mode, old.size, old.tobytes()) == (new.mode, new.size, new.tobytes())
    compress_files(model, FOLDER / "pictures", tmp_path / "new.axl", other_sizes="tile", verify=False)
    assert (tmp_path / "new.axl").read_bytes() == (FOLDER / "pictures.axl").read_bytes()


def test_a_run_goes_on_with_the_same_losses(axial: Axial, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(FOLDER / "run", run)
    assert axial("train", run, "--training.steps", 8).status == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for figure in ("nats_per_dim", "validation_bits_per_dim"):
        found = {str(line["step"]): line[figure] for line in lines if figure in line}
        assert found == pytest.approx(FACTS[figure], abs=1e-5)
        assert list(found)[-1] == "8"
