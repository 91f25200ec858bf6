"""Checkpoints that a thread writes while training goes on: as on a GPU, though here the device is a CPU."""

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.storage.locks import holder
from axial_transformers.training import NonFiniteLoss, TrainResult, checkpoints, train
from axial_transformers.training.checkpoints import CheckpointRecord
from axial_transformers.training.parallelism import full_tensors
from tests.launching import fork
from tests.training.test_loop import CONFIG, assert_alike, assert_same, examples, lines, model, run, score, weights

CPU = torch.device("cpu")
PAUSE = 0.2
PATIENCE = 60.0
"""Seconds that a write takes longer; and after which a test gives up."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    run(folder)
    return folder


@pytest.fixture
def background(monkeypatch) -> None:
    monkeypatch.setattr(checkpoints, "in_background", lambda device: True)


@pytest.fixture
def writing(monkeypatch) -> Callable[[Callable[[Path], object]], None]:
    """Has a function called with the path of each file of tensors before it is written."""

    def first(call: Callable[[Path], object], then=checkpoints.write_tensors) -> None:
        monkeypatch.setattr(checkpoints, "write_tensors", lambda path, tensors: (call(path), then(path, tensors)))

    return first


def slowly(path: Path) -> None:
    if path.name == checkpoints.WEIGHTS:
        time.sleep(PAUSE)


def records(folder: Path) -> dict[str, Any]:
    found = {path.name: vars(CheckpointRecord.read(path).counters) for path in folder.glob("checkpoints/*")}
    return {name: {**counters, "seconds": 0, "clock": 0} for name, counters in found.items()}


def calling(step: int, call: Callable[[], Any]) -> Callable[..., Tensor]:
    """A loss that calls first in this step, which has two parts."""
    calls = iter(range(2, 1000))

    def loss(*inputs: Any, **more: Any) -> Tensor:
        if next(calls) == 2 * step:
            call()
        return random_slice_loss(*inputs, **more)

    return loss


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "mps"])
def test_a_thread_writes_unless_the_device_is_a_cpu(tmp_path, monkeypatch, writing, device):
    writers = []
    writing(lambda path: writers.append(threading.current_thread() is threading.main_thread()))
    real = checkpoints.in_background
    monkeypatch.setattr(checkpoints, "in_background", lambda found: real(torch.device(device)))
    run(tmp_path / "run", dataclasses.replace(CONFIG, steps=2))
    assert writers == [device == "cpu"] * 3


def test_training_goes_on_meanwhile_and_the_checkpoint_has_the_state_of_its_step(tmp_path, monkeypatch, writing):
    config = dataclasses.replace(CONFIG, schedule="constant", steps=10)
    run(tmp_path / "before", config)
    monkeypatch.setattr(checkpoints, "in_background", lambda device: True)
    went_on, evaluated = threading.Event(), threading.Event()
    writing(lambda path: (went_on if path.parent.name == "step-00000006" else evaluated).wait(PATIENCE))

    def evaluate(averaged, step):
        evaluated.set()
        return score(averaged, step)

    train(model(), examples(), config, tmp_path / "run", loss=calling(9, went_on.set), evaluate=evaluate)
    assert went_on.is_set()
    for step in (6, 10):
        assert_same(weights(tmp_path / "run", step), weights(tmp_path / "before", step))
    found = records(tmp_path / "run")
    assert found == records(tmp_path / "before")
    assert [found[f"step-{step:08d}"]["evaluated_step"] for step in (6, 10)] == [None, 10]


def test_a_run_is_that_of_one_that_waits_and_so_is_a_resume(uninterrupted, tmp_path, background, writing):
    writing(slowly)
    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", loss=calling(15, interrupt))
    run(tmp_path / "parts", resume=True)
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        assert_alike(folder, uninterrupted)
        assert records(folder) == records(uninterrupted)


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise RuntimeError("another error")


def thrice_while_it_waits(path: Path) -> None:
    if "step-00000024" in str(path) and path.name == checkpoints.WEIGHTS:
        for _ in range(3):
            time.sleep(PAUSE)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PAUSE)


def finished(folder: Path) -> TrainResult:
    return run(folder)


def terminated(folder: Path) -> TrainResult:
    return run(folder, loss=calling(13, lambda: signal.raise_signal(signal.SIGTERM)))


def diverged(folder: Path) -> None:
    def loss(*inputs: Any, **more: Any) -> Tensor:
        return random_slice_loss(*inputs, **more) * (torch.nan if next(calls) == 26 else 1)

    calls = iter(range(2, 1000))
    with pytest.raises(NonFiniteLoss, match=r"step 13 .* last good state is in .*step-00000012$"):
        run(folder, loss=loss)


def failed(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="another error"):
        run(folder, loss=calling(13, fail))


def interrupted(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder)


@pytest.mark.parametrize(
    ("end", "step", "hold"),
    [
        (finished, 24, slowly),
        (terminated, 13, slowly),
        (diverged, 12, slowly),
        (failed, 12, slowly),
        (interrupted, 24, thrice_while_it_waits),
    ],
)
def test_a_run_holds_its_folder_until_its_last_checkpoint_is_written(tmp_path, background, writing, end, step, hold):
    holders = []

    def held(path: Path) -> None:
        hold(path)
        holders.append(holder(tmp_path / "run"))

    writing(held)
    end(tmp_path / "run")
    assert all(holders)
    newest = max((tmp_path / "run/checkpoints").iterdir())
    assert newest.name == f"step-{step:08d}"
    assert len(weights(tmp_path / "run", step)) == 3
    assert not list((tmp_path / "run").rglob("*.part*"))


def full_at(step: int) -> Callable[[Path], None]:
    def full(path: Path) -> None:
        if path.parent.name == f"step-{step:08d}":
            time.sleep(PAUSE)  # the run goes on
            raise OSError(ENOSPC, "No space left on device", str(path))

    return full


@pytest.mark.parametrize(("step", "before"), [(6, None), (12, "step-00000010"), (24, "step-00000020")])
def test_an_error_of_the_thread_is_raised_in_the_words_of_a_run_that_waits(
    tmp_path, monkeypatch, writing, step, before
):
    writing(full_at(step))
    said = []
    for overlap in (False, True):
        monkeypatch.setattr(checkpoints, "in_background", lambda device, overlap=overlap: overlap)
        folder = tmp_path / str(overlap) / "run"
        with pytest.raises(OSError, match=rf"step-{step:08d} could not be written .*No space left") as error:
            run(folder)
        said.append(str(error.value).replace(str(tmp_path / str(overlap)), ""))
        newest = max((folder / "checkpoints").iterdir(), default=None)
        assert newest == (before and folder / "checkpoints" / before)
        assert (f"{newest} is intact: make room" in str(error.value)) == bool(before)
    assert said[0] == said[1]
    assert lines(tmp_path / "True/run")[-1]["step"] <= step + 6, "it is raised at the next save"


def test_an_error_of_the_thread_is_not_lost_where_another_ends_the_run(tmp_path, background, writing):
    writing(full_at(12))
    with pytest.raises(OSError, match=r"step-00000012 could not be written .*step-00000010 is intact") as error:
        run(tmp_path / "run", loss=calling(14, fail))
    assert str(error.value.__context__) == "another error"


@pytest.mark.parametrize("shard", [False, True])
def test_two_processes_end_once_all_is_written_and_their_checkpoints_are_those_of_a_run_that_waits(
    tmp_path, monkeypatch, writing, shard
):
    def one(folder: Path) -> int:
        run(folder, dataclasses.replace(CONFIG, steps=12, accumulate=1, shard=shard))
        return len(weights(folder, 12)) - 3

    for overlap in (False, True):
        monkeypatch.setattr(checkpoints, "in_background", lambda device, overlap=overlap: overlap)
        writing(slowly if overlap else str)
        ended = fork(2, lambda overlap=overlap: one(tmp_path / f"run{overlap}"), tmp_path)
        assert [status for status, _, _ in ended] == [0, 0], ended
    assert_same(weights(tmp_path / "runTrue", 12), weights(tmp_path / "runFalse", 12))
    assert records(tmp_path / "runTrue") == records(tmp_path / "runFalse")


@pytest.mark.parametrize("step", [12, 24])
def test_an_error_of_the_thread_ends_all_processes(tmp_path, background, writing, step):
    def one() -> int:
        run(tmp_path / "run", dataclasses.replace(CONFIG, accumulate=1))
        return 0

    writing(full_at(step))
    (first, _, said), (second, _, lost) = fork(2, one, tmp_path)
    assert (first, second) == (1, 1)
    assert f"step-{step:08d} could not be written" in said
    assert "process 1 of 2 has lost another" in lost


def test_copies_of_a_gpus_tensors_are_in_pinned_memory(monkeypatch):
    pinned, empty = [], torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda *given, **more: pinned.append(more["pin_memory"]) or empty(*given, **more)
    )
    with FakeTensorMode():
        for device, dtype in (("cuda", torch.bfloat16), ("cpu", torch.int64)):
            tensor = torch.empty(3, 2, device=device, dtype=dtype)
            (copy,) = full_tensors({"a": tensor}, keep=True, device=CPU, copy=True).values()
            assert (copy.device, copy.dtype, copy.shape) == (CPU, dtype, (3, 2))
            assert copy is not tensor
            assert not full_tensors({"a": tensor}, keep=False, device=CPU, copy=True)
    assert pinned == [True, False]


@settings(deadline=None)
@given(st.data())
def test_a_hash_of_weights_sees_every_bit_and_every_position(data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]))
    shapes = data.draw(st.lists(st.sampled_from([(), (0,), (1,), (7,), (3, 5), (4, 0)]), min_size=1, max_size=4))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    tensors = [torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "CHUNK", data.draw(st.sampled_from([2, 4, 1 << 18])))
        before = digest(tensors)
        assert before == digest([each.clone() for each in tensors])
        assert 0 <= before < 2**63
        places = [(i, j) for i, each in enumerate(tensors) for j in range(each.nbytes)]
        if not places:
            return
        i, j = data.draw(st.sampled_from(places))
        flipped = [each.clone() for each in tensors]
        flipped[i].view(-1).view(torch.uint8)[j] ^= 1 if dtype == torch.bool else 1 << data.draw(st.integers(0, 7))
        assert digest(flipped) != before
        swapped = [each.clone() for each in tensors]
        elements = [(i, j) for i, each in enumerate(tensors) for j in range(each.numel())]
        (i, j), (m, n) = (data.draw(st.sampled_from(elements)) for _ in range(2))
        one, other = tensors[i].view(-1)[j], tensors[m].view(-1)[n]
        swapped[i].view(-1)[j], swapped[m].view(-1)[n] = other, one
        assert (digest(swapped) == before) == bool(one == other)


def digest(tensors: list[Tensor]) -> int:
    return checkpoints._digest_of_copies(tensors, CPU)


def test_a_hash_of_weights_is_that_of_their_values_not_of_how_they_lie():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert digest([x]) == digest([x.t().contiguous().t()]) != digest([x.t()])
    assert digest([torch.tensor(0.0)]) != digest([torch.tensor(-0.0)])
