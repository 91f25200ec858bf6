"""Worker processes that prefetch."""

import gc
import signal

import av
import numpy as np

from axial_transformers.data.workers import ahead


def collecting(key: int) -> int:
    """A worker's task during which garbage is collected."""
    gc.collect()
    return key


def garbage_with_threads() -> None:
    """A converted frame of a video in a circle of references: its converter has threads."""
    frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
    frame.reformat(width=32, height=32, format="yuv420p")
    circle: list[object] = [frame]
    circle.append(circle)


def test_workers_do_not_wait_for_the_threads_of_garbage():
    garbage_with_threads()
    signal.alarm(60)  # a worker that waits, waits for ever
    assert list(ahead(collecting, range(4), 2)) == [0, 1, 2, 3]
    signal.alarm(0)
