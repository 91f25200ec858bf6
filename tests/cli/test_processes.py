"""`axial train` as two processes, one of which is killed, or all of which are told to end."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from axial_transformers.training.step import STEPS_BETWEEN_WAITS
from tests.conftest import TINY, Axial
from tests.launching import launch

TRAIN = ["-m", "axial_transformers", "train"]
ENDLESS = ["--training.steps", "1000000", "--training.batch-size", "2", "--training.save-every", "3"]
MINUTE = 60


def begin(folder: Path) -> list[str]:
    return [*TRAIN, "digits", *TINY, *ENDLESS, "--out", str(folder)]


@contextmanager
def running(workers: list[subprocess.Popen[str]], folder: Path) -> Iterator[None]:
    """Once a checkpoint is there; nothing outlives the block."""
    deadline = time.monotonic() + 2 * MINUTE
    try:
        while not list(folder.glob("checkpoints/step-*")):
            assert all(worker.poll() is None for worker in workers)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def newest_step(folder: Path) -> int:
    return max(int(path.name[-8:]) for path in folder.glob("checkpoints/step-*"))


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_when_a_process_is_killed_the_other_ends_and_the_run_goes_on_without_it(axial: Axial, tmp_path, killed):
    folder = tmp_path / "run"
    workers = launch([sys.executable, *begin(folder)], 2)
    with running(workers, folder):
        workers[killed].kill()
        _, errors = workers[1 - killed].communicate(timeout=MINUTE)
        assert workers[1 - killed].returncode == 2
        lost = f"axial train: process {1 - killed} of 2 has lost another, which says why if it could: "
        said = errors.splitlines()  # a thread of gloo may still write after the last line
        assert lost + "start all of them again" in said
    before = newest_step(folder)
    status, _, errors = axial("train", folder, "--training.steps", before + 2)
    assert status == 0
    assert f"resumed at step {before}" in errors.splitlines()
    assert newest_step(folder) == before + 2


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_torchrun_ends_when_a_process_is_killed_and_saves_when_it_is_told_to_end(tmp_path, how):
    folder = tmp_path / "run"
    (agent,) = launch([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *begin(folder)], 1)
    with running([agent], folder):
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        if how == signal.SIGKILL:
            subprocess.run(["kill", "-9", children[1]], check=True)
        else:
            agent.terminate()
        _, errors = agent.communicate(timeout=2 * MINUTE)
        assert agent.returncode != 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)
    if how == signal.SIGTERM:
        assert newest_step(folder) % STEPS_BETWEEN_WAITS == 0
    enough = str(newest_step(folder) + 2)
    for worker in launch([sys.executable, *TRAIN, str(folder), "--training.steps", enough], 2):
        _, errors = worker.communicate(timeout=2 * MINUTE)
        assert worker.returncode == 0, errors
    assert newest_step(folder) == int(enough)
