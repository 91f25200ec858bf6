"""Mutated files give what was written or an error of one line, soon and in little memory.

Half of the mutated files have right checksums, so that they reach the code behind the checks.
"""

import resource
import time
from random import Random

import pytest

from tests.fuzz.parsers import PARSERS
from tests.fuzz.processes import Forked, address_space, limit

SECONDS, MEMORY = 10, 1 << 30
"""Bounds of one input: seconds of CPU time, and bytes beyond what the process has."""


@pytest.mark.parametrize("inputs", [10, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PARSERS)
def test_files_give_what_was_written_or_an_error_of_one_line(name, inputs, tmp_path):
    (tmp_path / "place").mkdir()
    parser, draw, now = PARSERS[name](tmp_path / "place"), Random(inputs), tmp_path / "input"
    written = {file: parser.parse(file, content) for file, content in parser.seeds.items()}

    def work() -> None:
        for _ in range(inputs):
            file, content, mended = parser.changed(draw)
            now.write_bytes(content)
            limit(resource.RLIMIT_AS, address_space() + MEMORY)
            limit(resource.RLIMIT_CPU, int(time.process_time() + SECONDS) + 1)
            try:
                found = parser.parse(file, content)
            except (ValueError, OSError) as error:
                right = len(str(error).strip().splitlines()) == 1 and "allocate" not in str(error)
            else:
                right = mended or found == written[file]
            assert right, file

    status, said = Forked(work).wait()
    assert status == 0, f"the input is {now}: {status}\n{said}"
