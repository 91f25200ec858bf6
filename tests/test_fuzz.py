"""Mutated files give what was written or one line, soon and in little memory. benchmarks/fuzz.py runs more of them."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import fuzz
from fuzz_mutations import Parser

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS as Linux keeps it")

SLOW = {
    "archive": 40, "model-folder": 30, "video": 40, "tar": 200, "tf-bundle": 150,
    "shard-index": 50, "shard-names": 100,
}  # fmt: skip
"""Number of inputs of parsers that take long; 300 of each other."""


@pytest.mark.parametrize("name", fuzz.PARSERS)
def test_mutated_files_give_what_was_written_or_an_error_of_one_line(name, tmp_path):
    result = fuzz.fuzz(name, SLOW.get(name, 300), seed=1, failures=tmp_path)
    assert not result["failures"], (result["kinds"], [file.name for file in tmp_path.iterdir()])
    assert result["ok"] + result["refused"] == result["inputs"]


@pytest.mark.parametrize("name", [name for name in fuzz.PARSERS if name not in ("archive", "video")])
def test_sound_files_and_those_with_mended_checksums_are_parsed_alike(name, tmp_path):
    """So mended mutations do reach the code behind the checksums."""
    parser = fuzz.PARSERS[name](tmp_path)
    for of, content in parser.seeds:
        results = []
        for each in (content, parser.mend(of, content)) if parser.mend else (content,):
            try:
                results.append(parser.parse(of, each))
            except ValueError as error:  # a kind that is refused
                results.append(str(error))
            assert parser.right is None or parser.right(of, results[-1])
        assert results[0] == results[-1]


def _fail(name: str, content: bytes) -> object:
    """Each kind of failure, by the first letter of the input."""
    match content[:1]:
        case b"u":
            raise KeyError(content)
        case b"l":
            raise ValueError("two\nlines")
        case b"w":
            return "wrong"
        case b"m":
            return len(bytearray(2 << 30))
        case b"h":
            while True:
                pass
        case b"t":
            time.sleep(30)
        case b"c":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"r":
            raise OSError("one line")
    return "right"


def test_each_kind_of_failure_is_found_and_kept(tmp_path, monkeypatch):
    """Also where the process that parses dies of it; the inputs behind it are parsed all the same."""
    letters = "orulwmhtcro"
    parser = Parser(seeds=[("file", b"")], parse=_fail, right=lambda name, result: result == "right")
    monkeypatch.setitem(fuzz.PARSERS, "failing", lambda place: parser)
    monkeypatch.setattr(fuzz, "make", lambda parser, seed, i: ("file", letters[i].encode(), False))
    monkeypatch.setattr(fuzz, "SECONDS", 0.3)
    monkeypatch.setattr(fuzz, "WALL_SECONDS", 1.5)
    result = fuzz.fuzz("failing", len(letters), failures=tmp_path)
    expected = {"ok": 2, "refused": 2, "untyped": 2, "wrong": 1, "memory": 1, "hang": 2, "crash": 1}
    assert {outcome: result[outcome] for outcome in fuzz.OUTCOMES} == expected
    assert result["failures"] == 7
    kept = {file.name.split("--")[1]: file.read_bytes() for file in tmp_path.iterdir()}
    assert kept.keys() == set(fuzz.OUTCOMES[2:])
    assert kept["crash"] == b"c"


def test_an_input_depends_on_its_seed_and_number_alone(tmp_path):
    parser = fuzz.PARSERS["npy"](tmp_path)
    first = [fuzz.make(parser, 5, i) for i in range(20)]
    assert [fuzz.make(parser, 5, i) for i in reversed(range(20))] == first[::-1]
    assert [fuzz.make(parser, 6, i) for i in range(20)] != first
