"""A changed archive gives a typed error or its own pixels. benchmarks/fuzz_archives.py runs more changes."""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from fuzz_archives import mutate, outcome, repaired, subject


@pytest.fixture(scope="module")
def archives():
    return subject()


@settings(max_examples=400, deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.randoms(use_true_random=True), repair=st.booleans())
def test_mutated_archives_give_typed_errors_or_the_right_pixels(archives, draw, repair):
    model, both, pixels = archives
    archive, other = draw.sample(both, 2)
    content = mutate(archive, other, draw)
    assert not outcome(model, repaired(content) if repair else content, pixels).startswith("WRONG")


def test_repairing_a_whole_archive_changes_nothing(archives):
    """So repaired mutations do reach the code behind the checksums."""
    _, both, _ = archives
    assert [repaired(archive) for archive in both] == both
