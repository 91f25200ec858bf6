"""What a checkpoint says when it cannot be written."""

from errno import ENOSPC
from pathlib import Path

import pytest
from torch import Tensor

from axial_transformers.training import checkpoints
from tests.training.test_loop import run


@pytest.mark.parametrize(("step", "before"), [(6, None), (12, "step-00000010"), (24, "step-00000020")])
def test_a_checkpoint_that_cannot_be_written_names_the_one_before(tmp_path, monkeypatch, step, before):
    def full(path: Path, tensors: dict[str, Tensor]) -> None:
        if f"step-{step:08d}" in str(path):
            raise OSError(ENOSPC, "No space left on device", str(path))
        write(path, tensors)

    write = checkpoints.write_tensors
    monkeypatch.setattr(checkpoints, "write_tensors", full)
    with pytest.raises(OSError, match=rf"step-{step:08d} could not be written .*No space left") as error:
        run(tmp_path / "run")
    newest = max((tmp_path / "run/checkpoints").iterdir(), default=None)
    assert newest == (before and tmp_path / "run/checkpoints" / before)
    assert (f"{newest} is there: make room" in str(error.value)) == bool(before)
    assert not list((tmp_path / "run").rglob("*.part*"))
