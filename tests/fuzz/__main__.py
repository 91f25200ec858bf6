"""Parse many mutated files of one kind, and count what comes of them.

    python -m tests.fuzz embedded-model --inputs 100000

An input that fails is written to the folder `--failures`, with what happened in its name. The status is 1 if any fails.
"""

import argparse
import os
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.fuzz.parsers import PARSERS, drawn, put
from tests.fuzz.worker import Worker


def main() -> int:
    """Run the command."""
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    words.add_argument("kind", choices=[*PARSERS])
    words.add_argument("--inputs", type=int, default=1000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--run", help="for json: the folder of a trained run")
    words.add_argument("--failures", type=Path, default=Path("failures"))
    given = words.parse_args()
    if given.run:
        os.environ["AXIAL_FUZZ_RUN"] = given.run
    counts, failed, draw = Counter[str](), 0, Random(given.seed)
    with TemporaryDirectory() as folder:
        parser = PARSERS[given.kind](Path(folder))
        with Worker(parser.parse) as bounded:
            began = time.monotonic()
            for _ in range(given.inputs):
                name, content, mended = drawn(parser, draw)
                kind, where, result = bounded.parse(name, content)
                if kind == "ok" and not mended and not parser.right(name, result):
                    kind = "wrong"
                counts[kind] += 1
                if kind not in ("ok", "refused"):
                    failed += 1
                    put(given.failures / f"{kind}-{sha256(content).hexdigest()[:12]}-{name}", content)
                    print(kind, name, where, flush=True)
            seconds = time.monotonic() - began
    print(f"{given.inputs:,} inputs in {seconds:,.0f} s, {given.inputs / seconds:.0f} a second: {dict(counts)}")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
