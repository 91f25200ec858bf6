"""A disk that is full while `axial train` writes: one line, status 2, the checkpoint before intact, nothing in part."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import TINY, Axial

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


@pytest.mark.parametrize("full_at", ["weights", "moments", "metrics"])
def test_training_on_a_full_disk_keeps_the_checkpoint_before(axial: Axial, stopped: Path, tmp_path, full_at):
    weights = (stopped / "model.safetensors").stat().st_size
    room = {"weights": weights // 2, "moments": weights * 3 // 2, "metrics": (stopped / "train.json").stat().st_size}
    if full_at == "metrics":
        (stopped / "metrics.jsonl").write_text('{"step": 1}\n' * (room["metrics"] // 12))
    before = newest(stopped)
    with files_of_at_most(room[full_at] + 20):
        status, _, err = axial("train", stopped, *LONGER)
    *others, line = err.splitlines()
    assert status == 2
    assert [other for other in others if "index.html" not in other] == ["resumed at step 4"]
    assert len(others) <= 3  # where the page is, and that it could not be written the next time
    assert line.startswith("axial train: ")
    assert str(stopped / ("metrics.jsonl" if full_at == "metrics" else "checkpoints/step-00000006")) in line
    assert "File too large" in line
    assert (full_at == "metrics") == ("step-00000004 is intact: make room, then resume" not in line)
    assert newest(stopped) == before
    assert not list(stopped.rglob("*.part*"))

    other = tmp_path / "other"
    shutil.copytree(stopped, other)
    for folder in (stopped, other):
        assert axial("train", folder, *LONGER).status == 0
    assert newest(stopped) == newest(other) != before


def test_a_first_start_on_a_full_disk_can_be_begun_again(axial: Axial, tmp_path):
    begin = ["train", "digits", *TINY, "--training.steps", "1", "--training.batch-size", "2", "--out", tmp_path / "run"]
    with files_of_at_most(100):
        status, _, err = axial(*begin)
    assert status == 2
    assert err.splitlines()[-1] == f"axial train: {tmp_path / 'run/train.json'}: File too large"
    assert not list(tmp_path.rglob("*.part*"))
    assert axial(*begin).status == 0
