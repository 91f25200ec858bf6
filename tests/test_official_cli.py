"""`axial import-official` makes an ordinary model folder, which the other verbs take."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.cli import evaluate, import_official, sample
from axial_transformers.importers.official import FormatError
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer

DATA = Path(__file__).parent / "data"
C, E = DATA / "official_c", DATA / "official_e"


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    import_official.main([str(C), "-o", str(tmp_path / "model"), "--raw", "--heads", "2", "--verify"])
    return tmp_path / "model"


@pytest.mark.parametrize(("flags", "suffix"), [([], "_ema"), (["--raw"], "")])
def test_a_published_kind_of_checkpoint_gives_its_logits(tmp_path: Path, flags: list[str], suffix: str) -> None:
    """From the TensorFlow files alone, and without a `checkpoint` file."""
    for file in E.glob("model.ckpt.*"):
        shutil.copy(file, tmp_path)
    import_official.main([str(tmp_path), "--output", str(tmp_path / "model"), "--heads", "4", *flags])
    with np.load(E / "case.npz", allow_pickle=False) as case, torch.no_grad():
        logits = AxialTransformer.from_pretrained(tmp_path / "model")(torch.from_numpy(case["x"]))
        assert np.abs(logits.numpy() - case[f"logits{suffix}"]).max() < 2e-5


def test_evaluation_counts_every_image(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(16, size=(53, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    evaluate.main([str(model_folder), str(tmp_path / "images.npz"), "--batch-size", "16", "--json"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    expected = bits_per_dim(AxialTransformer.from_pretrained(model_folder), torch.from_numpy(images).unsqueeze(-1))
    assert figures["images"] == 53
    assert figures["bits_per_dim"] == pytest.approx(expected.mean().item(), abs=1e-6)


def test_samples_are_drawn(model_folder: Path, tmp_path: Path) -> None:
    sample.main([str(model_folder), "--count", "3", "--output", str(tmp_path / "samples.npz")])
    with np.load(tmp_path / "samples.npz", allow_pickle=False) as arrays:
        assert arrays["images"].shape[:3] == (3, 12, 12)


def test_a_damaged_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    for file in C.glob("model.ckpt.*"):
        octets = bytearray(file.read_bytes())
        octets[1000] ^= 1
        (tmp_path / file.name).write_bytes(octets)
    with pytest.raises(FormatError, match=r"model\.ckpt\.index"):
        import_official.main([str(tmp_path), "-o", str(tmp_path / "model"), "--raw"])
    assert not (tmp_path / "model").exists()
