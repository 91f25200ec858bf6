"""Random calls of operators and layers agree with float64. benchmarks/random_calls.py compares more of them."""

import sys

import torch

from axial_transformers.ops import compiled_attention
from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import random_calls


def test_random_calls_are_within_the_bounds_of_their_operators():
    table, layouts = random_calls.compare(calls=10 * len(random_calls.BOUNDS))
    assert {kind: found.seeds for kind, found in table.items() if found.beyond} == {}
    assert all(found.calls == 10 for found in table.values())
    assert layouts.keys() == {layout.__name__ for layout in random_calls.LAYOUTS}


def test_a_call_with_wrong_numbers_is_found(monkeypatch):
    def slightly_wrong(x):
        by_kernel = compiled_attention.PAYS_FROM == 1 and x.dtype != torch.float64
        return x * (1.1 if by_kernel else 1)

    monkeypatch.setitem(random_calls.DRAWN, "linear", lambda draw: (slightly_wrong, [draw.plain(3, 4)]))
    table, _ = random_calls.compare(calls=len(random_calls.BOUNDS))
    assert {name for (name, _), found in table.items() if found.beyond} == {"linear"}
