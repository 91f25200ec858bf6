"""The paper's ablations: with equal data order and steps, what do the parts of the model change?

    python experiments/ablation.py run DATA --out runs/ablation --groups fashion photos --seeds 3
    python experiments/ablation.py table --out runs/ablation

DATA is a folder with fashion_mnist_{train,test}.npz and photos/{train,test}/. Every row is a process of its own; what
it found is a line of OUT/rows.jsonl, and rows that are there already are not run again. All rows of seed 0 come first.

The rows are those of ablation_groups.py, of equal parameters but where their name says otherwise, with the same
learning rate and schedule. Seconds are CPU time of one thread, so that others on the same machine disturb less. JSON on
the last line.
"""

import json
import tempfile
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ablation_groups import GROUPS
from axial_transformers.data import Examples, load
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.machine import multiplies_bfloat16
from axial_transformers.models import AxialTransformer
from axial_transformers.training import TrainConfig, train
from of_benchmarks import CPU, interleaved, now, peak_memory, run_command
from stored_rows import read, run_missing


def autocast() -> torch.autocast:
    """bfloat16 where the CPU has instructions for it, otherwise float32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bfloat16(CPU))


def step(model: AxialTransformer, x: torch.Tensor) -> Callable[[], None]:
    """A training step on x, in the precision that suits the CPU."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def run() -> None:
        with autocast():
            loss = random_slice_loss(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def row(
    data: Path,
    group: str,
    name: str,
    seed: int,
    steps: int,
) -> dict[str, Any]:
    """One row: memory and time of a step, training, evaluation, time of a sample."""
    torch.set_num_threads(1)
    plan = GROUPS[group]
    examples, test = (load(data / part, plan.data, "all") for part in (plan.train, plan.test))
    batch = plan.batch
    found: dict[str, Any] = {"group": group, "row": name, "seed": seed, "steps": steps, "batch": batch}
    found["precision"] = "bfloat16" if multiplies_bfloat16(CPU) else "float32"
    model = plan.model(name, seed)
    found["parameters"] = sum(p.numel() for p in model.parameters())
    once = step(model, torch.from_numpy(examples.values[:batch]))
    found["step_megabytes"] = peak_memory(once) / 2**20
    found["step_seconds"] = interleaved({"": once}, rounds=5, warm_up=1)[""]
    model = plan.model(name, seed)
    found["train_bits_per_dim"], found["train_seconds"] = trained(model, examples, steps, batch, seed)
    values = torch.from_numpy(some(test, plan.test_count))
    with autocast():
        metrics = evaluate(model.eval(), values, batch_size=8)
    found.update(bits_per_dim=metrics.bits_per_dim, standard_error=metrics.standard_error, images=metrics.images)
    sampling = {"": lambda: sample(model, 1, compile=False)}
    found["sample_seconds"] = interleaved(sampling, rounds=1, warm_up=1)[""]
    return found


def some(examples: Examples, count: int) -> Any:
    """So many examples, evenly spread."""
    return examples.values[torch.linspace(0, len(examples.values) - 1, count).long().numpy()]


def trained(model: AxialTransformer, examples: Examples, steps: int, batch: int, seed: int) -> tuple[float, float]:
    """Leaves the averaged weights in the model; bits/dim of the last log line, and seconds."""
    config = TrainConfig(
        steps=steps,
        batch_size=batch,
        learning_rate=2e-3,
        warmup_steps=steps // 8,
        schedule="cosine",
        ema_decay=0.99,
        seed=seed,
        log_every=min(50, steps),
        save_every=steps,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "run", now()
        train(model, examples, config, out)
        used = now() - start
        model.load_state_dict(type(model).from_pretrained(out).state_dict())
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return last["bits_per_dim"], used


def run(
    data: Path,
    out: Path,
    groups: tuple[str, ...] = tuple(GROUPS),
    rows: tuple[str, ...] = (),
    steps: int | None = None,
    seeds: int = 1,
) -> dict[str, Any]:
    """Runs what is not in OUT/rows.jsonl yet, then prints the table.

    Args:
        rows: only these; all if none.
        steps: in place of each group's own.
        seeds: 0 .. seeds-1.
    """
    wanted = (
        {"group": group, "row": name, "seed": seed, "steps": steps or GROUPS[group].steps}
        for seed in range(seeds)
        for group in groups
        for name in rows or GROUPS[group].rows
    )
    run_missing(__file__, "row", data, out, wanted)
    return table(out)


def table(out: Path) -> dict[str, Any]:
    """Prints one table; bits/dim as mean ± standard error over seeds."""
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in sorted(read(out), key=_place):
        runs.setdefault((*_place(line), line["steps"]), []).append(line)
    summary = [summarised(lines) for lines in runs.values()]
    shown = Table("", "bits/dim", "seeds", "steps x batch", "s a step", "MB a step", "s a sample", "parameters")
    for line in summary:
        error = line["seeds_standard_error"]
        shown.add_row(
            f"{line['group']}: {line['row']}",
            f"{line['bits_per_dim']:.3f}" + ("" if error is None else f" ± {error:.3f}"),
            f"{line['seeds']}",
            f"{line['steps']} x {line['batch']}",
            f"{line['step_seconds']:.3f}",
            f"{line['step_megabytes']:.0f}",
            f"{line['sample_seconds']:.2f}",
            f"{line['parameters']:,}",
        )
    Console(width=140).print(shown)
    return {"rows": summary}


def _place(line: dict[str, Any]) -> tuple[int, int]:
    """The group and the row, by number."""
    rows = GROUPS[line["group"]].rows
    return list(GROUPS).index(line["group"]), list(rows).index(line["row"])


def summarised(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One line for the seeds of a row: means, and the standard error of bits/dim over seeds, stdev / sqrt(seeds)."""
    bits = [line["bits_per_dim"] for line in runs]
    means = {key: mean(line[key] for line in runs) for key in ("step_seconds", "step_megabytes", "sample_seconds")}
    error = stdev(bits) / sqrt(len(bits)) if len(bits) > 1 else None
    return {**runs[0], **means, "bits_per_dim": mean(bits), "seeds_standard_error": error, "seeds": len(runs)}


def main() -> None:
    """Runs the command and prints its JSON."""
    print(json.dumps(run_command(run, row, table)))


if __name__ == "__main__":
    main()
