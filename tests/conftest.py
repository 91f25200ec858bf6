"""Fixtures that many tests share, and one thread for each of them."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from axial_transformers import cli, machine
from axial_transformers.compression import rounding
from tests.small_models import random_model, small_config

gc.set_threshold(10_000)  # collections of all generations took a twentieth of the time
settings.register_profile("for busy machines", deadline=None)  # by default an example may take 0.2 seconds
settings.load_profile("for busy machines")
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background processes with it ignored

collect_ignore = [
    "cli/test_full_disk.py",
    "cli/test_processes.py",
    "likelihood/test_evaluation_processes.py",
    "fuzz",
    "gpu/test_training.py",
    "recipes/test_recipes.py",
    "ops/test_memory.py",
    "storage/test_locks.py",
    "storage/test_model_folders.py",
    "training/test_processes.py",
] * (sys.platform == "win32")
"""Tests that limit memory, fork or kill processes, which Windows can not."""

GIGABYTE = 1 << 30


def pytest_collection_finish() -> None:
    """What is imported by then stays: the garbage collector need not look at it again and again."""
    gc.freeze()


TINY = ["--model.dim", "8", "--model.heads", "2", "--model.outer-layers", "2", "--model.inner-layers", "1"]
"""Overrides that make any recipe of images small."""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Axial = Callable[..., Outcome]
Refused = Callable[..., str]


@pytest.fixture(scope="session", autouse=True)
def float32() -> Iterator[None]:
    """Precision auto is float32 on every processor, so that the tests compute the same; those of the choice choose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "multiplies_bfloat16", lambda device: False)
        yield


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test gets the same numbers of torch, whichever were run before."""
    torch.manual_seed(0)


@pytest.fixture
def axial(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Axial:
    """The command line, within this process; its archives try two steps of the weights only, by few examples."""
    monkeypatch.setattr(rounding, "MULTIPLIERS", (1.0, 0.5))
    monkeypatch.setattr(rounding, "MULTIPLIERS_OF_CHANGES", (1.0, 0.5))
    monkeypatch.setattr(rounding, "SAMPLE", 48)

    def run(*argv: object) -> Outcome:
        capsys.readouterr()
        try:
            status = cli.main([str(word) for word in argv])
        except SystemExit as left:
            status = int(left.code or 0)
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def refused(axial: Axial) -> Refused:
    """The one line that a command leaves that ends with status 2."""

    def run(*argv: object) -> str:
        status, out, err = axial(*argv)
        assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
        assert err.startswith(f"axial {argv[0]}: ")
        return err

    return run


@pytest.fixture
def at_most_a_gigabyte_more() -> Iterator[None]:
    """Address space is limited to what the process has plus 1 GB."""
    import resource  # of Linux and macOS

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIGABYTE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    schedule = ["--training.steps", "4", "--training.evaluate-every", "2", "--training.sample-every", "4"]
    assert cli.main(["train", "digits", *TINY, *schedule, "--samples", "4", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for `datasets`, which shows no bars and finds no network; what tries to connect fails."""
    import datasets
    import huggingface_hub.constants

    def connect(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"a connection to {address}")

    datasets.disable_progress_bars()
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "datasets" / "downloads")
    for package in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(package, "HF_HUB_OFFLINE", True)
    return tmp_path / "datasets"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, the working folder, and a terminal of 80 columns."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gray(home: Path) -> str:
    """A pretrained model of 4x4 gray pictures, without data of its own, and pictures of another size."""
    random_model(small_config((4, 4), num_values=256)).float().save_pretrained("model")
    Path("large photos").mkdir()
    for i, width in enumerate((8, 12)):
        pixels = np.random.default_rng(i).integers(0, 256, (8, width), dtype=np.uint8)
        Image.fromarray(pixels).save(f"large photos/{i}.png")
    return "model"
