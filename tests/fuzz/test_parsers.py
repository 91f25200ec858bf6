"""Mutated files give what was written or an error of one line, soon and in little memory.

    pytest tests/fuzz --hypothesis-profile long      a thousand inputs for each parser in place of a few dozen

Half of the mutated files get their checksums mended, so that they reach the code behind the checks. An input that fails
is kept by hypothesis, and is tried first the next time.
"""

import os
import signal
import time
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import worker
from tests.fuzz.parsers import PARSERS, drawn
from tests.fuzz.worker import Worker

settings.register_profile("long", max_examples=1000)
SLOW = {"archive": 20, "embedded-model": 20, "model-folder": 20, "tf-bundle": 60}
"""Inputs of parsers that take long; 100 of each other."""


@pytest.fixture(autouse=True)
def of_a_run(trained, monkeypatch):
    monkeypatch.setenv("AXIAL_FUZZ_RUN", str(trained))


@pytest.mark.parametrize("name", PARSERS)
def test_mutated_files_give_what_was_written_or_an_error_of_one_line(name, tmp_path):
    parser, long = PARSERS[name](tmp_path), settings.default.max_examples == 1000

    @settings(
        max_examples=1000 if long else SLOW.get(name, 100), derandomize=not long, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.randoms(use_true_random=True))
    def parse(draw: Random) -> None:
        of, content, mended = drawn(parser, draw)
        found = bounded.parse(of, content)
        assert found.kind in ("ok", "refused"), (found.kind, found.where, of, content[:1000])
        assert found.kind == "refused" or mended or parser.right(of, found.result), (of, content[:1000])

    with Worker(parser.parse) as bounded:
        parse()


@pytest.mark.parametrize("name", PARSERS)
def test_sound_files_and_those_with_mended_checksums_are_parsed_alike(name, tmp_path):
    """So mended mutations do reach the code behind the checksums."""
    parser = PARSERS[name](tmp_path)
    for of, content in parser.seeds:
        results = []
        for each in (content, parser.mend(of, content)) if parser.mend else (content,):
            try:
                results.append(parser.parse(of, each))
            except ValueError as error:  # a kind that is refused
                results.append(str(error))
            assert results[-1] == results[0]
        assert isinstance(results[0], str) or parser.right(of, results[0])


def _fail(name: str, content: bytes) -> object:
    """Each kind of failure, by the name of the input."""
    if name == "untyped":
        raise KeyError(content)
    if name == "two lines":
        raise ValueError("two\nlines")
    if name == "memory":
        return len(bytearray(1 << 40))  # the heap of a whole suite may have gigabytes to give, but no terabyte
    while name == "hang":
        pass
    if name == "sleep":
        time.sleep(30)
    if name == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "refused":
        raise OSError("one line")
    return "right"


def test_each_kind_of_failure_is_found_and_the_inputs_behind_it_are_parsed(monkeypatch):
    monkeypatch.setattr(worker, "SECONDS", 3.0)
    expected = {
        "ok": "ok", "refused": "refused", "untyped": "untyped", "two lines": "untyped", "memory": "memory",
        "hang": "hang", "crash": "crash", "sleep": "hang", "again": "ok",
    }  # fmt: skip
    found = {}
    with Worker(_fail) as bounded:
        for name in expected:  # a new process may need seconds on a busy machine: only "sleep" has a short limit
            monkeypatch.setattr(worker, "WALL_SECONDS", 2 if name == "sleep" else 60)
            found[name] = bounded.parse(name, b"").kind
    assert found == expected
