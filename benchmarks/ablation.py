"""The paper's ablations: at equal parameters, data order and steps, what do the parts of the model change?

    python benchmarks/ablation.py run DATA --out runs/ablation --groups fashion photos clips --seeds 1
    python benchmarks/ablation.py slowdown
    python benchmarks/ablation.py table --out runs/ablation

DATA is a folder with fashion_mnist_{train,test}.npz, photos/{train,test}/ and clips64_{train,test}.npz. Every row is a
process of its own; what it found is a line of OUT/rows.jsonl, and rows that are there already are not run again.

Rows of a group have the same learning rate and schedule, and the parameters of the group's first row within 5 %: the
width of the feedforward blocks makes up the difference. Seconds are CPU time of one thread, so that
others on the same machine disturb less. JSON on the last line.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from axial_transformers.baselines import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)
from axial_transformers.data import DataConfig, Examples, load
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import TrainConfig, train
from timing import interleaved, peak_memory

MODELS = {
    model.config_class: model for model in (AxialTransformer, ImageTransformer, BlockTransformer, SparseTransformer)
}
COMMON: dict[str, Any] = {"dim": 64, "heads": 2}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Models to compare on the same data."""

    train: str
    test: str
    data: DataConfig = field(default_factory=DataConfig)
    test_count: int
    """Test examples looked at, evenly spread."""
    given_frames: int = 0
    steps: int
    batch: int
    rows: Mapping[str, AxialTransformerConfig]
    batches: Mapping[str, int] = field(default_factory=dict)
    """Rows whose batch is another."""

    def config(self, row: str) -> AxialTransformerConfig:
        """The row's model, of the first row's size."""
        return of_size(self.rows[row], size(next(iter(self.rows.values()))))


def _groups() -> dict[str, Group]:
    gray = {"shape": (28, 28), **COMMON}
    sequence = {**gray, "inner_layers": 8}
    colours = {"shape": (32, 32), "channels": 3, **COMMON}
    clip = {"shape": (16, 32, 32), "channels": 3, **COMMON}
    frames = AxialTransformerConfig(
        layout="frames", known_channels=3, encoder_layers=2, outer_layers=2, inner_layers=3, **clip
    )
    return {
        "fashion": Group(
            train="fashion_mnist_train.npz",
            test="fashion_mnist_test.npz",
            test_count=300,
            steps=400,
            batch=8,
            rows={
                "axial, attention": AxialTransformerConfig(outer_layers=4, inner_layers=4, mlp_ratio=2.0, **gray),
                "axial, LSTM": AxialTransformerConfig(outer_layers=4, inner="lstm", inner_layers=1, **gray),
                "Transformer": AxialTransformerConfig(layout="raster", **sequence),
                "Image Transformer": ImageTransformerConfig(block=112, memory=112, **sequence),
                "Block Transformer": BlockTransformerConfig(blocks=((14, 14), (4, 28)), **sequence),
                "Strided Sparse Transformer": SparseTransformerConfig(**sequence),
            },
        ),
        "photos": Group(
            train="photos/train",
            test="photos/test",
            data=DataConfig(size=32, fit="tiles", mode="rgb"),
            test_count=120,
            steps=400,
            batch=4,
            rows={
                "channels": AxialTransformerConfig(
                    encoder_layers=2, outer_layers=4, inner_layers=2, mlp_ratio=2.0, **colours
                ),
                "rows": AxialTransformerConfig(layout="rows", outer_layers=6, inner_layers=2, **colours),
                "columns": AxialTransformerConfig(layout="columns", outer_layers=6, inner_layers=2, **colours),
                "axis": AxialTransformerConfig(layout="axis", outer_layers=(3, 2), inner_layers=3, **colours),
            },
        ),
        "clips": Group(
            train="clips64_train.npz",
            test="clips64_test.npz",
            data=DataConfig(size=32, fit="crop"),
            test_count=15,
            given_frames=1,
            steps=200,
            batch=1,
            rows={
                "time as an axis": AxialTransformerConfig(
                    layout="columns", outer_layers=(3, 2), inner_layers=2, mlp_ratio=2.0, **clip
                ),
                "time as channels": frames,
                "time as channels, 48 clips a batch": frames,
            },
            batches={"time as channels, 48 clips a batch": 48},
        ),
    }


GROUPS = _groups()


def size(config: AxialTransformerConfig) -> int:
    """Parameters of the model."""
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS[type(config)](config).parameters())


def of_size(config: AxialTransformerConfig, parameters: int) -> AxialTransformerConfig:
    """The configuration whose feedforward blocks are so wide that the model has so many parameters, within 5 %."""
    narrow, wide = (size(replace(config, mlp_ratio=ratio)) for ratio in (1.0, 2.0))
    hidden = round(config.dim * (1 + (parameters - narrow) / (wide - narrow)))
    sized = replace(config, mlp_ratio=hidden / config.dim)
    assert abs(size(sized) / parameters - 1) < 0.05
    return sized


def step(model: AxialTransformer, x: torch.Tensor) -> Callable[[], None]:
    """A training step on x, in bfloat16."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def run() -> None:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = random_slice_loss(model, x)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return run


def seconds(run: Callable[[], object], rounds: int) -> float:
    """CPU time of one call, the median."""
    return interleaved({"": run}, rounds, warm_up=1)[""]


def row(
    data: Positional[Path], group: Positional[str], name: Positional[str], seed: Positional[int], steps: int
) -> dict[str, Any]:
    """One row: memory and time of a step, training, evaluation, time of a sample."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    plan = GROUPS[group]
    examples, test = (load(data / part, plan.data, "all") for part in (plan.train, plan.test))
    model = MODELS[type(plan.rows[name])](plan.config(name))
    batch = plan.batches.get(name, plan.batch)
    found: dict[str, Any] = {"group": group, "row": name, "seed": seed, "steps": steps, "batch": batch}
    found["parameters"] = sum(p.numel() for p in model.parameters())
    once = step(model, torch.from_numpy(examples.values[:batch]))
    found["step_megabytes"] = peak_memory(once) / 2**20
    found["step_seconds"] = seconds(once, 5)
    torch.manual_seed(seed)
    model = MODELS[type(plan.rows[name])](plan.config(name))
    found["train_bits_per_dim"], found["train_seconds"] = trained(model, examples, steps, batch, seed)
    values = torch.from_numpy(some(test, plan.test_count))
    figures = evaluate(model.eval(), values, batch_size=8, given_frames=plan.given_frames, autocast=torch.bfloat16)
    found.update(bits_per_dim=figures.bits_per_dim, standard_error=figures.standard_error, images=figures.images)
    known = values[:1] if model.config.known_channels else None
    found["sample_seconds"] = seconds(lambda: sample(model, 1, known=known, compile=False), 1)
    return found


def some(examples: Examples, count: int) -> Any:
    """So many examples, evenly spread."""
    return examples.values[torch.linspace(0, len(examples.values) - 1, count).long().numpy()]


def trained(model: AxialTransformer, examples: Examples, steps: int, batch: int, seed: int) -> tuple[float, float]:
    """Leaves the averaged weights in the model; bits/dim of the last log line, and CPU seconds."""
    config = TrainConfig(
        steps=steps,
        batch_size=batch,
        learning_rate=2e-3,
        warmup_steps=steps // 8,
        schedule="cosine",
        ema_decay=0.99,
        precision="bfloat16",
        seed=seed,
        log_every=min(50, steps),
        save_every=steps,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "run", time.process_time()
        train(model, examples, config, out)
        used = time.process_time() - start
        model.load_state_dict(type(model).from_pretrained(out).state_dict())
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return last["bits_per_dim"], used


def run(
    data: Positional[Path],
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
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for group in groups:
            for name in rows or GROUPS[group].rows:
                wanted = {"group": group, "row": name, "seed": seed, "steps": steps or GROUPS[group].steps}
                if any(wanted.items() <= found.items() for found in read(out)):
                    continue
                arguments = [str(data), group, name, str(seed), "--steps", str(wanted["steps"])]
                ran = subprocess.run([sys.executable, __file__, "row", *arguments], stdout=subprocess.PIPE, text=True)
                if ran.returncode:
                    raise SystemExit(f"row {name!r} of {group} failed")
                with (out / "rows.jsonl").open("a") as file:
                    file.write(ran.stdout.splitlines()[-1] + "\n")
    return table(out)


def read(out: Path) -> list[dict[str, Any]]:
    """What was found so far."""
    path = out / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(out: Path) -> dict[str, Any]:
    """Prints one table; bits/dim with the spread of seeds."""
    found, summary = read(out), []
    shown = Table("", "bits/dim", "seeds", "steps x batch", "s a step", "MB a step", "s a sample", "parameters")
    for group, plan in GROUPS.items():
        for name in plan.rows:
            runs = [line for line in found if (line["group"], line["row"]) == (group, name)]
            if not runs:
                continue
            bits = [line["bits_per_dim"] for line in runs]
            spread = stdev(bits) if len(bits) > 1 else None
            figures = {key: mean(line[key] for line in runs) for key in ("step_seconds", "step_megabytes")}
            line = {**runs[0], **figures, "bits_per_dim": mean(bits), "spread": spread, "seeds": len(runs)}
            shown.add_row(
                f"{group}: {name}",
                f"{line['bits_per_dim']:.3f}" + (f" ± {spread:.3f}" if spread is not None else ""),
                f"{len(runs)}",
                f"{line['steps']} x {line['batch']}",
                f"{line['step_seconds']:.3f}",
                f"{line['step_megabytes']:.0f}",
                f"{line['sample_seconds']:.2f}",
                f"{line['parameters']:,}",
            )
            summary.append(line)
    Console(width=140).print(shown)
    return {"rows": summary}


def slowdown(sizes: tuple[int, ...] = (32, 64), dim: int = 128, batch: int = 4, rounds: int = 5) -> dict[str, Any]:
    """A training step with an LSTM inner decoder beside one with attention, in turns; 8 + 8 + 4 layers, as the paper.

    The other layers are the same; `equal_parameters` widens the LSTM model's feedforward blocks besides.
    """
    torch.set_num_threads(1)
    found = {}
    for n in sizes:
        attention = AxialTransformerConfig(
            shape=(n, n), channels=3, dim=dim, heads=4, encoder_layers=8, outer_layers=8, inner_layers=4
        )
        lstm = replace(attention, inner="lstm", inner_layers=1)
        models = {"attention": attention, "lstm": lstm, "lstm, equal parameters": of_size(lstm, size(attention))}
        x = torch.randint(0, 256, (batch, n, n, 3))
        times = interleaved({name: step(AxialTransformer(c), x) for name, c in models.items()}, rounds, warm_up=1)
        found[n] = {
            **{f"{name} seconds": each for name, each in times.items()},
            "slower": times["lstm"] / times["attention"] - 1,
            "slower, equal parameters": times["lstm, equal parameters"] / times["attention"] - 1,
        }
        print(n, found[n], flush=True)
    return {"dim": dim, "batch": batch, "sizes": found}


def main() -> None:
    """Runs the verb and prints its JSON."""
    result = tyro.extras.subcommand_cli_from_dict({"run": run, "row": row, "table": table, "slowdown": slowdown})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
