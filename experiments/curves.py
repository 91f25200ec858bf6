"""Compares a run with the recorded curve of its recipe: training and validation bits/dim at equal steps.

    python experiments/curves.py compare runs/fashion_mnist fashion_mnist
    python experiments/curves.py record runs/fashion_mnist fashion_mnist

The curves lie in experiments/measured/curves. Stop a run after a tenth of its steps (Ctrl-C) to see early whether it
follows: the learning rates are those of the whole run. Exit status 1 if a value differs by more than 3 %.
"""

import json
import sys
from pathlib import Path

from of_benchmarks import run_command

CURVES = Path(__file__).parent / "measured" / "curves"
MAX_DIFFERENCE = 0.03
METRICS = {"bits_per_dim": "training", "validation_bits_per_dim": "validation"}
"""Keys of a run's metrics, and their names here."""

Curve = dict[tuple[str, int], float]
"""Bits/dim by metric and step."""


def read(path: Path) -> Curve:
    """The curve in a file of JSON lines."""
    if not path.is_file():
        sys.exit(f"there is no {path}")
    found: Curve = {}
    for line in map(json.loads, path.read_text().splitlines()):
        found |= {(name, line["step"]): line[key] for key, name in METRICS.items() if key in line}
    return found


def compare(run: Path, name: str) -> dict[str, float]:
    """Prints where the run differs most from the recorded curve."""
    recorded, found = read(CURVES / f"{name}.jsonl"), read(run / "metrics.jsonl")
    both = recorded.keys() & found.keys()
    if not both:
        sys.exit(f"{run} and {name} have no step in common")
    most = {}
    for metric in METRICS.values():
        differences = {step: abs(found[kind, step] / recorded[kind, step] - 1) for kind, step in both if kind == metric}
        if differences:
            step = max(differences, key=differences.__getitem__)
            most[metric] = differences[step]
            values = f"{found[metric, step]:.3f}, recorded {recorded[metric, step]:.3f}"
            print(
                f"{metric}: {len(differences)} steps; the largest difference is {most[metric]:.1%}, at {step}: {values}"
            )
    print(json.dumps(most))
    sys.exit(max(most.values()) > MAX_DIFFERENCE)


def record(run: Path, name: str) -> None:
    """Writes the curve of a run, to compare others with it."""
    CURVES.mkdir(parents=True, exist_ok=True)
    keys = {metric: key for key, metric in METRICS.items()}
    curve = read(run / "metrics.jsonl")
    lines = [json.dumps({"step": step, keys[metric]: round(bits, 4)}) for (metric, step), bits in curve.items()]
    path = CURVES / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    print(path)


if __name__ == "__main__":
    run_command(compare, record)
