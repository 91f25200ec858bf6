"""Threads prefetch in order, what goes wrong in one is raised here, and none of them stays."""

import itertools
import threading

import pytest

from axial_transformers.data.workers import ahead


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
