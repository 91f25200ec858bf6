"""Runs the tests of what depends on the processor as older x86 processors would.

    python tests/processors.py          all that this processor can stand in for
    python tests/processors.py AVX2     one of them

Prints a line for each with its CPU time.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = (
    "engine/*", "ops/*", "layers/*", "decoding/*", "project/machine", "compression/archive", "compression/codec",
    "training/optimizer", "training/muon", "training/replicas",
)  # fmt: skip

PROCESSORS = {
    "x86-64": ("v2", "SSE41", "default"),
    "AVX2": ("v3", "AVX2", "avx2"),
    "AVX-512": ("v4", "AVX512_CORE", "avx512"),
}
"""Without bfloat16: the level of the engine; the limits of oneDNN and of torch."""


def files() -> list[Path]:
    here = Path(__file__).parent
    found = {name: sorted(here.glob(f"{name.replace('/', '/test_')}.py")) for name in TESTS}
    assert all(found.values()), f"no such tests: {[name for name in found if not found[name]]}"
    return [path for paths in found.values() for path in paths]


def environment(name: str) -> dict[str, str]:
    level, onednn, torch = PROCESSORS[name]
    return {"AXIAL_CPU": level, "ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": torch}


def main(names: list[str]) -> bool:
    from tests.engine.levels import levels

    if unknown := set(names) - set(PROCESSORS):
        sys.exit(f"no processor {', '.join(sorted(unknown))}: there are {', '.join(PROCESSORS)}")
    failed = False
    for name in names or PROCESSORS:
        if PROCESSORS[name][0] not in levels():
            print(f"{name}: skipped, this processor lacks level {PROCESSORS[name][0]}", flush=True)
            continue
        before = os.times()
        command = [sys.executable, "-m", "pytest", *map(str, files())]
        status = subprocess.run(command, env=os.environ | environment(name), check=False).returncode
        after = os.times()
        seconds = sum(after[2:4]) - sum(before[2:4])
        print(f"{name}: {'failed' if status else 'passed'}, {seconds:.0f} s of CPU", flush=True)
        failed |= status != 0
    return failed


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1:]))
