"""Mutated archives that carry their model, for the C decoder under the address and undefined-behaviour sanitizers.

    TMPDIR=/dev/shm python -m tests.fuzz.c_decoder 100000 [SEED]

Each gives what was written, or an error of one line, within `SECONDS` of axl_many.c.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz import archives

SOURCE = Path(__file__).with_name("axl_many.c")
ENGINE = Path(__file__).parents[2] / "src" / "axial_transformers" / "engine"
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
FLAGS = (f"-I{ENGINE}", "-std=gnu99", "-O0", "-g", "-ffp-contract=off", *SANITIZERS)
TOGETHER = 100
"""Archives for one run of the program."""


def build(folder: Path, compiler: str) -> Path | None:
    """Return the program, or None if the compiler has no sanitizers."""
    program = folder / "axl_many"
    done = subprocess.run([compiler, *FLAGS, "-o", program, SOURCE, "-lm"], capture_output=True, check=False)
    return None if done.returncode else program


def restored(program: Path, place: Path, given: list[tuple[str, bytes]]) -> list[tuple[str, dict[str, bytes]]]:
    """Return of each archive "0" or one line, and the files written; AssertionError for anything else.

    Args:
        place: an empty folder; if there is an error, it holds the archive.
        given: names and contents of archives.
    """
    outputs, lines = [], []
    for i, (name, content) in enumerate(given):
        outputs.append(place / f"{i}")
        (place / f"{i}.axl").write_bytes(content)
        lines.append(f"{place / f'{i}.axl'}\t{place / f'{i}'}\n")
        if name == archives.FOLDER:
            outputs[-1].mkdir()
    options = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=8"}
    done = subprocess.run(
        [program], input="".join(lines).encode(), env=options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    *ended, left = re.split(r"^= (\d)\n", done.stdout.decode(errors="replace"), flags=re.MULTILINE)
    assert (done.returncode, left) == (0, ""), f"{place}/{len(ended) // 2}.axl: {done.returncode}\n{left[:3000]}"
    found = []
    for output, said, status in zip(outputs, ended[::2], ended[1::2], strict=True):
        errors = [line for line in said.splitlines() if line.startswith("axl: ")]
        assert (status, errors) == ("0", []) or (status, errors) == ("2", said.splitlines()[-1:]), (output, said)
        files = output.rglob("*") if output.is_dir() else [output] if output.exists() else []
        found.append((errors[0] if errors else "0", {file.name: file.read_bytes() for file in files}))
    return found


def fuzz(count: int, number: int, program: Path, place: Path) -> Counter[str]:
    """Return how often each outcome came of `count` mutated archives; AssertionError for one that it must not have.

    Args:
        number: seed of the mutations.
        place: an empty folder.
    """
    draw, outcomes, room = Random(number), Counter[str](), place / "room"
    seeds = archives.seeds(place)
    for i in range(0, count, TOGETHER):
        sound = [(name, content, False) for name, content in seeds.items()] if i == 0 else []
        inputs = sound + [archives.changed(seeds, draw) for _ in range(min(TOGETHER, count - i))]
        room.mkdir()
        found = restored(program, room, [(name, content) for name, content, _ in inputs])
        if sound:
            assert all(outcome == "0" for outcome, _ in found[: len(sound)]), found
            right = {name: files for name, (_, files) in zip(seeds, found)}
        for k, ((name, _, mended), (outcome, files)) in enumerate(zip(inputs, found, strict=True)):
            same = outcome != "0" or mended or list(files.values()) == list(right[name].values())
            assert same, f"{room}/{k}.axl: other values from a damaged archive"
            outcomes[re.sub(r"\d+", "..", outcome.replace(f"{room}/", ""))] += 1
        shutil.rmtree(room)
    return outcomes


def main() -> None:
    count, number, place = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, Path(tempfile.mkdtemp())
    program = build(place, "cc")
    assert program is not None, "the C compiler has no sanitizers"
    for outcome, times in fuzz(count, number, program, place).most_common():
        print(f"{times:8,}  {outcome}")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
