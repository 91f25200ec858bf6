"""`axial doctor` says what runs, and finds an archive that differs from that of other machines."""

import re

import pytest
import torch

from axial_transformers import compression
from axial_transformers.engine import library


def test_it_names_the_level_and_compares_an_archive(axial):
    status, out, _ = axial("doctor")
    assert status == 0, out
    level = f"compiled, level {library().level}" if library() else "not compiled"
    assert re.search(rf"^  engine +{level}", out, re.MULTILINE), out
    assert out.splitlines()[-1] == "An archive has the bytes that it has on other machines, and is restored."


BROKEN = {
    "compress": lambda then: lambda model, x: then(model, x.flip(0)),
    "decompress": lambda then: lambda model, archive: torch.zeros_like(then(model, archive)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_it_says_what_not_to_trust(axial, monkeypatch, name):
    monkeypatch.setattr(compression, name, BROKEN[name](getattr(compression, name)))
    status, out, _ = axial("doctor")
    assert status == 1
    assert re.match(r"FAILED: an archive .* Do not trust archives", out.splitlines()[-1]), out
