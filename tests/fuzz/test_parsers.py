"""Mutated files give what was written or an error of one line, soon and in little memory.

Half of the mutated files get their checksums mended, so that they reach the code behind the checks.
"""

from random import Random

import pytest

from tests.fuzz.parsers import PARSERS, drawn
from tests.fuzz.worker import Worker


@pytest.mark.parametrize("inputs", [10, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PARSERS)
def test_files_give_what_was_written_or_an_error_of_one_line(name, inputs, tmp_path):
    parser, draw = PARSERS[name](tmp_path), Random(inputs)
    with Worker(parser.parse) as bounded:
        for of, content in parser.seeds:  # sound ones
            whole = bounded.parse(of, content)
            assert whole.kind == "ok", whole
            assert parser.right(of, whole.result)
            assert parser.mend is None or parser.mend(of, content) == content
        for _ in range(inputs):
            of, content, mended = drawn(parser, draw)
            found = bounded.parse(of, content)
            assert found.kind in ("ok", "refused"), (found.kind, found.where, of, content[:1000])
            assert found.kind == "refused" or mended or parser.right(of, found.result), (of, content[:1000])
