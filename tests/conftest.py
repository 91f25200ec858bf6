"""What many tests share."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from axial_transformers import cli

torch.set_num_threads(1)

TINY = ["--model.dim", "8", "--model.heads", "2", "--model.outer-layers", "2", "--model.inner-layers", "1"]
"""Overrides that make any recipe of images small."""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Axial = Callable[..., Outcome]


@pytest.fixture
def axial(capsys: pytest.CaptureFixture[str]) -> Axial:
    """The command line, within this process."""

    def run(*argv: object) -> Outcome:
        capsys.readouterr()
        try:
            status = cli.main([str(word) for word in argv])
        except SystemExit as left:
            status = int(left.code or 0)
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    schedule = ["--training.steps", "4", "--training.evaluate-every", "2", "--training.sample-every", "4"]
    assert cli.main(["train", "digits", *TINY, *schedule, "--samples", "4", "--out", str(folder)]) == 0
    return folder
