"""Threads prefetch in order, what goes wrong in one is raised here, and none of them stays."""

import itertools
import threading
from functools import partial

import numpy as np
import pytest
import torch

from axial_transformers.data import DataConfig, load
from axial_transformers.data.workers import ahead
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import batch_at, step_positions


def test_results_come_in_order_and_threads_end():
    later, before = threading.Event(), threading.active_count()

    def work(key: int) -> int:
        assert later.wait(10) if key == 0 else later.set() is None  # the second is ready before the first
        return -key

    running = ahead(work, itertools.count(), workers=3)
    assert list(itertools.islice(running, 9)) == [0, -1, -2, -3, -4, -5, -6, -7, -8]
    running.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_a_thread_is_raised_here_and_ends_the_others(error):
    def work(key: int) -> int:
        if key == 2:
            raise error("two is damaged")
        return key

    with pytest.raises(error, match=r"^two is damaged$"):
        list(ahead(work, itertools.count(), workers=2))


def test_blocks_of_a_file_are_those_of_one_thread(tmp_path):
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        values = np.random.default_rng(0).integers(0, 256, (9, 16, 16), np.uint8)
        file.create_dataset("x", data=values, chunks=(2, 8, 8), compression="gzip")
    examples = load(tmp_path / "a.h5", DataConfig(size=(2, 4, 4), offsets="random"), "all")
    work = partial(batch_at, examples, range(1), None, TrainConfig(batch_size=4))
    one, three = (list(ahead(work, [step_positions(i, 4) for i in range(40)], workers)) for workers in (0, 3))
    for expected, found in zip(one, three, strict=True):
        assert torch.equal(expected.values, found.values)
