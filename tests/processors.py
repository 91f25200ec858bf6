"""Runs the tests of what depends on the processor as older x86 processors would.

python tests/processors.py          all that this processor can stand in for
python tests/processors.py AVX2     one of them
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = (
    "engine", "ops", "layers", "exact", "decoding", "project/test_machine.py", "compression/test_archive.py",
    "compression/test_codec.py", "training/test_optimizer.py", "training/test_muon.py", "training/test_replicas.py",
)  # fmt: skip
PROCESSORS = {
    "x86-64": ("v2", "SSE41", "default"),
    "AVX2": ("v3", "AVX2", "avx2"),
    "AVX-512": ("v4", "AVX512_CORE", "avx512"),
    "AVX2-VNNI": ("v3_vnni", "AVX2_VNNI", "avx2"),
    "AVX-512-VNNI": ("v4_vnni", "AVX512_CORE_VNNI", "avx512"),
}
"""Without bfloat16: the level of the engine; the limits of oneDNN and of torch."""


def main(names: list[str]) -> bool:
    from tests.engine.levels import levels

    failed = False
    for name in names or PROCESSORS:
        level, onednn, torch = PROCESSORS[name]
        if level not in levels():
            print(f"{name}: skipped, this processor lacks level {level}", flush=True)
            continue
        limits = {"AXIAL_CPU": level, "ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": torch}
        command = [sys.executable, "-m", "pytest", *(str(Path(__file__).parent / each) for each in TESTS)]
        status = subprocess.run(command, env=os.environ | limits, check=False).returncode
        print(f"{name}: {'failed' if status else 'passed'}", flush=True)
        failed |= status != 0
    return failed


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1:]))
