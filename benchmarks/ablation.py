"""The paper's ablations: with equal data order and steps, what do the parts of the model change?

    python benchmarks/ablation.py run DATA --out runs/ablation --groups fashion photos clips --seeds 3
    python benchmarks/ablation.py table --out runs/ablation
    python benchmarks/ablation.py slowdown
    python benchmarks/ablation.py products

DATA is a folder with fashion_mnist_{train,test}.npz, photos/{train,test}/ and clips64_{train,test}.npz. Every row is a
process of its own; what it found is a line of OUT/rows.jsonl, and rows that are there already are not run again. All
rows of seed 0 come first.

The rows are those of ablation_groups.py, of equal parameters but where their name says otherwise, with the same
learning rate and schedule. Seconds are CPU time on a CPU, by default of one thread, so that others on the same machine
disturb less; on another device wall-clock time. JSON on the last line.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ablation_groups import GROUPS, of_size, size
from axial_transformers.data import Examples, load
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.processor import multiplies_bfloat16
from axial_transformers.training import TrainConfig, train
from command_line import run_command
from timing import interleaved, now, peak_memory


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where the rows run."""

    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    threads: int = 1
    """Threads of the CPU."""


HERE = Where()


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 where the device multiplies it faster, otherwise float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=multiplies_bfloat16(device))


def step(model: AxialTransformer, x: torch.Tensor) -> Callable[[], None]:
    """A training step on x, in the precision that suits its device."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def run() -> None:
        with autocast(x.device):
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
    machine: Annotated[Where, Parameter(name="*")] = HERE,
) -> dict[str, Any]:
    """One row: memory and time of a step, training, evaluation, time of a sample."""
    torch.set_num_threads(machine.threads)
    plan, device = GROUPS[group], torch.device(machine.device)
    examples, test = (load(data / part, plan.data, "all") for part in (plan.train, plan.test))
    batch = plan.batches.get(name, plan.batch)
    found: dict[str, Any] = {"group": group, "row": name, "seed": seed, "steps": steps, "batch": batch}
    found |= {"device": machine.device, "threads": machine.threads}
    found["precision"] = "bfloat16" if multiplies_bfloat16(device) else "float32"
    model = plan.model(name, seed, device)
    found["parameters"] = sum(p.numel() for p in model.parameters())
    once = step(model, torch.from_numpy(examples.values[:batch]).to(device))
    found["step_megabytes"] = peak_memory(once, device) / 2**20
    found["step_seconds"] = interleaved({"": once}, rounds=5, warm_up=1, device=device)[""]
    model = plan.model(name, seed, device)
    found["train_bits_per_dim"], found["train_seconds"] = trained(model, examples, steps, batch, seed)
    values = torch.from_numpy(some(test, plan.test_count))
    with autocast(device):
        metrics = evaluate(model.eval(), values, batch_size=8, given_frames=plan.given_frames)
    found.update(bits_per_dim=metrics.bits_per_dim, standard_error=metrics.standard_error, images=metrics.images)
    known = values[:1] if model.config.known_channels else None
    sampling = {"": lambda: sample(model, 1, known=known, compile=False)}
    found["sample_seconds"] = interleaved(sampling, rounds=1, warm_up=1, device=device)[""]
    return found


def some(examples: Examples, count: int) -> Any:
    """So many examples, evenly spread."""
    return examples.values[torch.linspace(0, len(examples.values) - 1, count).long().numpy()]


def trained(model: AxialTransformer, examples: Examples, steps: int, batch: int, seed: int) -> tuple[float, float]:
    """Leaves the averaged weights in the model; bits/dim of the last log line, and seconds."""
    device = model.device
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
        device=str(device),
    )
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "run", now(device)
        train(model, examples, config, out)
        used = now(device) - start
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
    machine: Annotated[Where, Parameter(name="*")] = HERE,
) -> dict[str, Any]:
    """Runs what is not in OUT/rows.jsonl yet, then prints the table.

    Args:
        rows: only these; all if none.
        steps: in place of each group's own.
        seeds: 0 .. seeds-1.
    """
    out.mkdir(parents=True, exist_ok=True)
    where = ["--device", machine.device, "--threads", str(machine.threads)]
    for seed in range(seeds):
        for group in groups:
            for name in rows or GROUPS[group].rows:
                wanted = {"group": group, "row": name, "seed": seed, "steps": steps or GROUPS[group].steps}
                wanted["device"] = machine.device
                if any(wanted.items() <= found.items() for found in read(out)):
                    continue
                arguments = [str(data), group, name, str(seed), "--steps", str(wanted["steps"]), *where]
                ran = subprocess.run([sys.executable, __file__, "row", *arguments], stdout=subprocess.PIPE, text=True)
                if ran.returncode:
                    raise SystemExit(f"row {name!r} of {group} failed")
                with (out / "rows.jsonl").open("a") as file:
                    file.write(ran.stdout.splitlines()[-1] + "\n")
    return table(out)


def read(out: Path) -> list[dict[str, Any]]:
    """What was found so far; lines of runs that name no device are of the CPU."""
    path = out / "rows.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [{"device": "cpu", **json.loads(line)} for line in lines]


def table(out: Path) -> dict[str, Any]:
    """Prints one table; bits/dim as mean ± standard error over seeds."""
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in sorted(read(out), key=_place):
        runs.setdefault((*_place(line), line["steps"], line["device"]), []).append(line)
    summary = [summarised(lines) for lines in runs.values()]
    shown = Table("", "bits/dim", "seeds", "steps x batch", "s a step", "MB a step", "s a sample", "parameters", "on")
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
            line["device"],
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


def with_lstm(n: int, dim: int) -> dict[str, AxialTransformerConfig]:
    """The paper's 8 + 8 + 4 layers for n x n images, and the same with an LSTM; with as many parameters besides."""
    attention = AxialTransformerConfig(
        shape=(n, n), channels=3, dim=dim, heads=4, encoder_layers=8, outer_layers=8, inner_layers=4
    )
    lstm = replace(attention, inner="lstm", inner_layers=1)
    return {"attention": attention, "lstm": lstm, "lstm, equal parameters": of_size(lstm, size(attention))}


def slowdown(
    sizes: tuple[int, ...] = (32, 64),
    dim: int = 128,
    batch: int = 4,
    rounds: int = 5,
    machine: Annotated[Where, Parameter(name="*")] = HERE,
) -> dict[str, Any]:
    """A training step with an LSTM inner decoder beside one with attention, in turns; 8 + 8 + 4 layers, as the paper.

    The other layers are the same; `equal parameters` widens the LSTM model's feedforward blocks besides.
    """
    torch.set_num_threads(machine.threads)
    device = torch.device(machine.device)
    found = {}
    for n in sizes:
        x = torch.randint(0, 256, (batch, n, n, 3), device=device)
        steps = {name: step(AxialTransformer(c).to(device), x) for name, c in with_lstm(n, dim).items()}
        times = interleaved(steps, rounds, warm_up=1, device=device)
        found[n] = {
            **{f"{name} seconds": each for name, each in times.items()},
            "slower": times["lstm"] / times["attention"] - 1,
            "slower, equal parameters": times["lstm, equal parameters"] / times["attention"] - 1,
        }
        print(n, found[n], flush=True)
    return {"dim": dim, "batch": batch, "device": machine.device, "sizes": found}


def products(n: int = 64, dim: int = 128) -> dict[str, dict[str, float]]:
    """Matrix-vector products that the inner decoder does at each position, one after the other, when decoding.

    Counted while a step at the last position of a row runs on the meta device; of the paper's 8 + 8 + 4 layers, with
    attention and with an LSTM. `weights`: products with a weight matrix (queries, keys and values are one product);
    `cache`: with the cached keys and values, all heads together; `multiply_adds`: of all of them, in units of dim^2.
    """
    found = {}
    for name, config in with_lstm(n, dim).items():
        with torch.device("meta"):
            inner = AxialTransformer.build_inner(config)
            state, r = inner.start(1), torch.zeros(1, dim)
        with Calls() as calls, FlopCounterMode(display=False) as counter:
            inner.step(r, n - 1, state)
        matrices = {"weights": calls.of["aten::addmm"], "cache": calls.of["aten::bmm"]}
        found[name] = {**matrices, "multiply_adds": counter.get_total_flops() / 2 / dim**2}
    return found


class Calls(TorchDispatchMode):
    """Counts the calls of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Runs the command and prints its JSON."""
    print(json.dumps(run_command(run, row, table, slowdown, products)))


if __name__ == "__main__":
    main()
