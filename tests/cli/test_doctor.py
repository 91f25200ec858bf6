"""`axial doctor` finds what is wrong, and says what it means."""

import re
import sys

import pytest

from axial_transformers.cli import doctor
from axial_transformers.decoding.exact_network import ExactNetwork
from axial_transformers.layers.lines import LineAttention

CALLS = iter(range(10**6))
BROKEN = {
    "network": (ExactNetwork, "nats", lambda then: lambda self, x: then(self, x) + next(CALLS) % 2 * 1e-6),
    "archives": (doctor, "compress", lambda then: lambda model, x: then(model, x.flip(0))),
    "samples": (doctor, "sample", lambda then: lambda *a, compile, **k: then(*a, compile=compile, **k) + compile),
    "layers": (LineAttention, "forward", lambda then: lambda self, x: then(self, x) * (1 + x.itemsize % 8 * 1e-3)),
    "processes": (sys, "executable", lambda then: "/bin/false"),
}  # fmt: skip


@pytest.mark.parametrize("processes", [pytest.param(True, marks=pytest.mark.slow), False])
def test_it_says_that_all_can_be_trusted(axial, monkeypatch, processes):
    """Without the two processes, each of which imports torch for four seconds."""
    checks = {name: each for name, each in doctor.CHECKS.items() if processes or name != "processes"}
    monkeypatch.setattr(doctor, "CHECKS", checks)
    status, out, _ = axial("doctor")
    assert status == 0, out
    assert out.splitlines()[-1] == "All that was checked can be trusted."
    assert all(re.search(rf"^    {name} ", out, re.MULTILINE) for name in ("processor", *doctor.CHECKS))


@pytest.mark.parametrize("name", BROKEN)
def test_it_says_what_not_to_trust_and_goes_on(axial, monkeypatch, name):
    module, attribute, change = BROKEN[name]
    monkeypatch.setattr(module, attribute, change(getattr(module, attribute)))
    monkeypatch.setattr(doctor, "CHECKS", {each: doctor.CHECKS[each] for each in (name, "GPU")})
    status, out, _ = axial("doctor")
    assert status == 1
    assert re.search(rf"^    {name} +FAILED: \S.*\n(  .*\n)*    GPU ", out, re.MULTILINE), out
    assert out.splitlines()[-1] == f"Do not trust here: {doctor.CHECKS[name][1]}."
