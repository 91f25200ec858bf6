"""Every command as one of several processes that torchrun starts."""

import importlib
import inspect
import os
import sys

import numpy as np
import pytest

from axial_transformers.cli import COMMANDS
from axial_transformers.recipes import prepare
from tests.conftest import TINY, Axial
from tests.launching import launch
from tests.small_models import archiving_model

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_command_divides_its_work_or_the_first_process_does_it_alone(axial: Axial, monkeypatch, command, rank):
    """A command that divides sees all processes; another one sees one, in the first process only."""
    seen = []
    words = {"compress": ["a", "b", "c"], "decompress": ["a", "b"], "push": ["a", "b"]}
    words |= {"import-official": ["a", "--out", "b"], "recipes": [], "doctor": [], "demo": []}
    module = importlib.import_module(f"axial_transformers.cli.{command.replace('-', '_')}")
    monkeypatch.setattr(module, "main", lambda options: seen.append(os.environ.get("WORLD_SIZE")))
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert axial(command, *words.get(command, ["a"])).status == 0
    divides = any(
        words in inspect.getsource(module)
        for words in ("processes_on(", 'prepared.train(Bar("training: steps"), command=words)')
    )
    assert seen == (["2"] if divides else [None] * (rank == 0))


@pytest.mark.parametrize("words", [["evaluate", "--halp"], ["train", "digits", "--halp"]], ids=" ".join)
def test_a_mistake_is_said_by_the_first_process_alone(axial: Axial, monkeypatch, words):
    for rank in (0, 1):
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
            monkeypatch.setenv(name, str(value))
        status, _, err = axial(*words)
        assert (status, "--halp" in err) == (2, rank == 0)


def test_each_process_says_that_it_has_lost_another(axial: Axial, monkeypatch):
    def lose(*given: object, **options: object) -> None:
        raise ConnectionError("process 1 of 2 has lost another")

    monkeypatch.setattr(prepare.Prepared, "train", lose)
    monkeypatch.setenv("LOCAL_RANK", "1")
    status, _, err = axial("train", "digits", *TINY)
    assert (status, err.splitlines()[-1]) == (2, "axial train: process 1 of 2 has lost another")


@pytest.mark.parametrize("torchrun", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_processes_write_one_archive_and_end_well(tmp_path, torchrun):
    """Started by torchrun, or as it starts them."""
    archiving_model().save_pretrained(tmp_path / "model")
    np.save(tmp_path / "images.npy", np.zeros((2, 3, 5), np.uint8))
    words = ["compress", tmp_path / "model", tmp_path / "images.npy", tmp_path / "a.axl", "--force"]
    agent = ["torch.distributed.run", "--nproc-per-node", "2", "-m"] * torchrun
    workers = launch([sys.executable, "-m", *agent, "axial_transformers", *map(str, words)], 1 if torchrun else 2)
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert {worker.returncode for worker in workers} == {0}, errors
    assert (tmp_path / "a.axl").is_file()
