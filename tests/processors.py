"""Runs the tests of what depends on the processor as older x86 processors would.

    python tests/processors.py          all that this processor can stand in for
    python tests/processors.py AVX2     one of them

Prints a line for each with its CPU time. The first time, kernels are compiled, which takes most of it.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from llvmlite.binding import get_host_cpu_features

TESTS = (
    "kernels/*", "ops/*", "layers/*", "inference/*", "decoding/*", "planning/machine", "compression/archive",
    "compression/codec", "training/optimizer", "training/muon", "training/replicas",
)  # fmt: skip

# Without its features, numba compiles for those of the processor at hand.
PROCESSORS = {
    "x86-64": ({}, ("x86-64", "+sse2"), ("SSE41", "default")),
    "AVX2": ({"avx2", "fma"}, ("haswell", "+avx,+avx2,+fma"), ("AVX2", "avx2")),
    "AVX-512": (
        {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
        ("skylake-avx512", "+avx,+avx2,+fma,+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl"),
        ("AVX512_CORE", "avx512"),
    ),
}
"""Without bfloat16: the features that they need; what numba compiles for; the limits of oneDNN and of torch."""


def files() -> list[Path]:
    here = Path(__file__).parent
    found = {name: sorted(here.glob(f"{name.replace('/', '/test_')}.py")) for name in TESTS}
    assert all(found.values()), f"no such tests: {[name for name in found if not found[name]]}"
    return [path for paths in found.values() for path in paths]


def environment(name: str) -> dict[str, str]:
    _, (numba, features), (onednn, torch) = PROCESSORS[name]
    return {
        **{"NUMBA_CPU_NAME": numba, "NUMBA_CPU_FEATURES": features},
        **{"ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": torch},
    }


def main(names: list[str]) -> bool:
    if unknown := set(names) - set(PROCESSORS):
        sys.exit(f"no processor {', '.join(sorted(unknown))}: there are {', '.join(PROCESSORS)}")
    here = get_host_cpu_features() if platform.machine().lower() in ("x86_64", "amd64") else None
    failed = False
    for name in names or PROCESSORS:
        lacking = sorted(each for each in PROCESSORS[name][0] if here is not None and not here.get(each))
        if here is None or lacking:
            reason = "this is no x86 processor" if here is None else f"this processor lacks {', '.join(lacking)}"
            print(f"{name}: skipped, {reason}", flush=True)
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
    sys.exit(main(sys.argv[1:]))
