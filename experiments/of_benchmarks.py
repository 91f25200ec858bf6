"""What experiments take from benchmarks/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from command_line import run_command
from timing import CPU, interleaved, now, peak_memory, rows_of

__all__ = ["CPU", "interleaved", "now", "peak_memory", "rows_of", "run_command"]
