"""Worker processes prefetch in order, and what goes wrong in one is a line in their parent."""

import itertools
import os
import signal

import pytest
import torch

from axial_transformers.data.workers import ahead
from axial_transformers.training import TrainConfig


def test_drawing_ahead_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    assert list(ahead(abs, [-1, -2], workers=1)) == [1, 2]
    assert torch.equal(torch.get_rng_state(), state)


def _fail(key: int) -> int:
    if key == 2:
        raise ValueError("two is damaged")
    return key


def _die(key: int) -> int:
    if key == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return key


@pytest.mark.parametrize(("work", "error"), [(_fail, ValueError), (_die, ChildProcessError)])
def test_what_goes_wrong_in_a_worker_is_one_line_here(work, error):
    with pytest.raises(error, match=r"^(two is damaged|a process that prepares examples died: .* take fewer workers)$"):
        list(ahead(work, itertools.count(), workers=2))


def test_the_number_of_workers_is_bounded():
    with pytest.raises(ValueError, match=r"training\.workers must be at least 0 and at most 256, not 100000"):
        TrainConfig(workers=100_000)


def _wait(key: int) -> int:
    signal.raise_signal(signal.SIGINT)
    return key


def test_workers_leave_ctrl_c_to_their_parent():
    assert list(itertools.islice(ahead(_wait, itertools.count(), workers=1), 3)) == [0, 1, 2]
