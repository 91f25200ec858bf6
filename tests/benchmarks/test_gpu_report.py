"""The parts of the report that measure what is to become faster on a GPU: they run on a CPU, at their smallest size."""

import json
from pathlib import Path

import pytest
import torch

from tests import benchmark_commands  # noqa: F401  the path of the scripts

import gpu_parts  # isort: skip
import gpu_sides  # isort: skip


@pytest.fixture
def sides(monkeypatch):
    """The trees that a part measures, which are all this one, in this process."""
    asked = []

    def measured(options, tree, name, **changes):
        asked.append((tree, name))
        return json.loads(json.dumps(gpu_sides.MEASURED[name](torch.device("cpu"), **changes)))

    monkeypatch.setattr(gpu_parts, "measured", measured)
    return asked


@pytest.mark.parametrize(
    ("part", "name"), [("small", "steps"), ("masked", "attention"), ("large", "large"), ("sampled", "sampled")]
)
def test_a_part_measures_this_tree_and_an_earlier_one(part, name, sides):
    options = gpu_parts.Options(dry_run=True, before=Path("before"))
    rows = list(gpu_parts.PARTS[part].rows(options))
    assert sides == [(Path("before").absolute(), name), (gpu_parts.ROOT, name)]
    assert rows
    assert [row["name"] for row in rows if not row["holds"]] == []
    assert "before" in rows[-1]


def test_what_a_side_says_when_it_fails_is_a_row(monkeypatch):
    monkeypatch.setattr(gpu_parts, "measured", lambda *given, **changes: {"failed": "no device"})
    for part in ("small", "masked", "large", "sampled"):
        options = gpu_parts.Options(dry_run=True)
        monkeypatch.setattr(gpu_parts, "same_by_graph", lambda options: iter(()))
        (row,) = gpu_parts.PARTS[part].rows(options)
        assert (row["holds"], row["failed"]) == (False, "no device")


def test_two_calls_of_five_minutes_hold_what_is_to_become_faster():
    for call in (("small", "masked"), ("large", "sampled")):
        assert sum(gpu_parts.PARTS[part].seconds for part in call) <= 300
