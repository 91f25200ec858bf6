"""A disk that is full while `axial train` writes: one line, status 2, the checkpoint before intact, nothing in part."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Axial

LONGER = ["--training.steps", "6", "--training.log-every", "1"]
CONTENTS = ("ema.safetensors", "model.safetensors", "optimizer.safetensors")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing more fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def newest(run: Path) -> list[bytes]:
    folder = max((run / "checkpoints").iterdir())
    return [(folder / name).read_bytes() for name in CONTENTS]


@pytest.fixture
def stopped(trained: Path, tmp_path: Path) -> Path:
    """A run that has more steps to make."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("full_at", ["moments", "metrics"])
def test_training_on_a_full_disk_keeps_the_checkpoint_before(axial: Axial, stopped: Path, full_at):
    size = {"moments": stopped / "model.safetensors", "metrics": stopped / "train.json"}[full_at].stat().st_size
    if full_at == "metrics":
        size += 1000  # train.json is written before, and gets the words of the resume
        (stopped / "metrics.jsonl").write_text('{"step": 1}\n' * (size // 12))
    before = newest(stopped)
    with files_of_at_most(size * 3 // 2 if full_at == "moments" else size + 20):
        status, _, err = axial("train", stopped, *LONGER)
    line = err.splitlines()[-1]
    assert status == 2
    assert line.startswith("axial train: ")
    assert str(stopped / ("metrics.jsonl" if full_at == "metrics" else "checkpoints/step-00000006")) in line
    assert "File too large" in line
    assert newest(stopped) == before
    assert not list(stopped.rglob("*.part*"))
    assert axial("train", stopped, *LONGER).status == 0
    assert newest(stopped) != before
