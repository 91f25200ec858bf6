"""Seconds of a training step: ours beside a straightforward one, of equal weights, batches and precision.

    python benchmarks/train.py                                          digits, fashion_mnist, photos32 on the CPU
    python benchmarks/train.py --recipes photos32 --precisions bfloat16 --seconds 60
    python benchmarks/train.py --precisions auto                        in what suits the machine, as shipped
    python benchmarks/train.py --device cuda --recipes imagenet32 imagenet64 --precisions bfloat16

Ours is the step of `axial train`, making of the batch included; the other is benchmarks/straightforward.py, blocks
compiled on both sides or on neither. Both see the same random values and have one loss, which is checked; the median
wall time counts. On a CPU they step in turns, each in a process of its own; a GPU holds one of them at a time. The
share of the matmul rate is that of the model's FLOPs, as `axial inspect` counts them. The last line is JSON; its
"machine" is what `machine.machine_facts` returns.
"""

import gc
import json
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing.connection import Connection
from statistics import median
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from axial_transformers import recipes
from axial_transformers.data import Examples
from axial_transformers.layers.initialisation import randomise
from axial_transformers.machine import machine_facts
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.torch_private import whole_graphs
from axial_transformers.training.batches import Batch, batch_at, step_positions
from axial_transformers.training.config import TrainConfig, find_device
from axial_transformers.training.costs import training_flops
from axial_transformers.training.metrics import forget_peak_memory, peak_memory
from axial_transformers.training.processes import Processes
from axial_transformers.training.run_config import RunConfig
from axial_transformers.training.step import prepared, step
from command_line import run_command
from matmul_rate import matmul_rate
from straightforward import Straightforward, StraightforwardTraining
from timing import rows_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
AGREE = {"float32": 1e-5, "bfloat16": 1e-2}
"""Relative difference of the two losses that rounding explains."""
WARM_UP, MIN_STEPS, MAX_STEPS = 3, 3, 40
SETTLE = 0.05
"""Seconds before a step, in which the idle threads of the other side cease to spin."""


@dataclass(frozen=True, kw_only=True)
class Options:
    recipes: tuple[str, ...] = ("digits", "fashion_mnist", "photos32")
    precisions: tuple[str, ...] = ("float32", "auto")
    """float32, bfloat16, or auto: what suits the device."""
    compiled: tuple[Literal["False", "True"], ...] = ("False", "True")
    batch: int | None = None
    """Examples of a step. None: those that the recipe takes at a time, a part of its batch."""
    seconds: float = 20.0
    """For each pair, and at least three steps."""
    device: str = "cpu"
    threads: int | None = None
    """Of the CPU; None: as many as torch takes."""


def main(options: Options) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = []
    suitable = TrainConfig(device=options.device).resolve_auto().precision
    precisions = dict.fromkeys(suitable if each == "auto" else each for each in options.precisions)
    for name, precision, compiled in rows_of([*product(options.recipes, precisions, options.compiled)]):
        rows.append(measure(name, precision, compiled == "True", options))
        print(json.dumps(rows[-1]), flush=True)
    show(rows)
    summary = {
        "torch": torch.__version__,
        "machine": machine_facts(),
        "threads": torch.get_num_threads(),
        "matmul_rate": {name: rate(options, name) for name in sorted({row["precision"] for row in rows})},
        "rows": rows,
    }
    print(json.dumps(summary))


def measure(name: str, precision: str, compiled: bool, options: Options) -> dict[str, Any]:
    """Both sides of one recipe at one precision."""
    recipe = recipes.NAMED[name]()
    config = training(recipe, precision, compiled, options)
    precision, shipped = config.precision, replace(recipe.training, device=options.device).resolve_auto()
    seconds: dict[str, list[float]] = {}
    losses, peaks = {}, {}
    on_cpu = options.device == "cpu"
    for together in ([*SIDES],) if on_cpu else ([side] for side in SIDES):
        where = Worker if on_cpu else Here
        workers = {side: where(SIDES[side], name, config, options.threads) for side in together}
        losses |= {side: worker.ask("loss") for side, worker in workers.items()}
        seconds |= time_steps(workers, options.seconds)
        peaks |= {side: worker.ask("peak_memory") for side, worker in workers.items()}
        for worker in workers.values():
            worker.close()
    ours, theirs = losses["ours"], losses["straightforward"]
    assert abs(ours - theirs) < AGREE[precision] * theirs, (ours, theirs)
    medians = {side: median(times) for side, times in seconds.items()}
    return {
        "recipe": name,
        "precision": precision,
        "compiled": compiled,
        "batch": config.batch_size,
        "steps": len(seconds["ours"]),
        **{
            side: {**metrics_of(recipe.model, config, took, rate(options, precision)), "peak_memory_bytes": peaks[side]}
            for side, took in medians.items()
        },
        "speedup": round(medians["straightforward"] / medians["ours"], 3),
        "shipped": (config.precision, config.compile) == (shipped.precision, shipped.compile),
    }


def time_steps(workers: "Mapping[str, Worker | Here]", least: float) -> dict[str, list[float]]:
    """Seconds of the steps of each worker, in turns, after those that warm up."""
    seconds: dict[str, list[float]] = {side: [] for side in workers}
    start = time.monotonic()
    for number in range(WARM_UP + MAX_STEPS):
        for side, worker in workers.items():
            time.sleep(SETTLE)
            took = worker.ask("step")
            if number >= WARM_UP:
                seconds[side].append(took)
        if number + 1 == WARM_UP:
            start = time.monotonic()
        if number + 1 >= WARM_UP + MIN_STEPS and time.monotonic() - start > least:
            break
    return seconds


class Ours:
    """What `axial train` steps through, on random values."""

    def __init__(self, recipe: RunConfig, config: TrainConfig):
        processes = Processes(config.torch_device())
        model = build(recipe, config.torch_device())
        self.learner = prepared(model, random_examples(recipe), config, processes)
        self.device, self.slices = processes.device, model.slices

    def loss(self, batch: Batch) -> float:
        model, half = self.learner.weights.model.eval(), self.learner.config.precision == "bfloat16"
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, half):
            loss = float(self.learner.objective(*batch))
        model.train()
        return loss

    def step(self) -> None:
        step(self.learner)
        self.learner.meter.read()  # waits for the device


class Theirs:
    """The straightforward training step, on the same batches."""

    def __init__(self, recipe: RunConfig, config: TrainConfig):
        self.recipe, self.config, self.device = recipe, config, config.torch_device()
        self.examples, self.steps = random_examples(recipe), 0
        ours = build(recipe, self.device)
        self.slices = ours.slices
        with self.device:
            model = Straightforward(recipe.model)
        model.load(ours.state_dict())
        bfloat16 = config.precision == "bfloat16"
        compiled = config.compile is True
        self.training = StraightforwardTraining(model.to(self.device), bfloat16, config.learning_rate, compiled)

    def loss(self, batch: Batch) -> float:
        model = self.training.model.eval()
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, self.training.bfloat16):
            loss = float(model(batch.values, batch.label, batch.channel))
        model.train()
        return loss

    def step(self) -> None:
        positions = step_positions(self.steps, self.config.batch_size)
        batch = batch_at(self.examples, self.slices, self.recipe.model.num_classes, self.config, positions)
        values, label, channel, _ = batch.to(self.device)
        with whole_graphs():
            self.training.step(values, label, channel)
        self.steps += 1


Kind = type[Ours] | type[Theirs]
SIDES: dict[str, Kind] = {"ours": Ours, "straightforward": Theirs}


class Worker:
    """A side in a process of its own: what one does to the allocator serves only itself. It answers questions."""

    def __init__(self, kind: Kind, name: str, config: TrainConfig, threads: int | None):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, kind, name, config, threads), daemon=True)
        self.process.start()

    def ask(self, question: str) -> Any:
        self.pipe.send(question)
        return self.pipe.recv()

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def serve(
    pipe: Connection, kind: type[Ours] | type[Theirs], name: str, config: TrainConfig, threads: int | None
) -> None:
    if threads:
        torch.set_num_threads(threads)
    here = Here(kind, name, config, threads)
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        pipe.send(here.ask(question))


class Here:
    """A side in this process."""

    def __init__(self, kind: Kind, name: str, config: TrainConfig, threads: int | None):
        forget_peak_memory(config.torch_device())
        self.recipe, self.config = recipes.NAMED[name](), config
        self.side = kind(self.recipe, config)

    def ask(self, question: str) -> Any:
        if question == "loss":
            classes, slices = self.recipe.model.num_classes, self.side.slices
            first = batch_at(random_examples(self.recipe), slices, classes, self.config, np.arange(4))
            return self.side.loss(first.to(self.side.device))
        if question == "step":
            start = time.perf_counter()
            self.side.step()
            return time.perf_counter() - start
        return peak_memory(self.side.device)

    def close(self) -> None:
        del self.side
        gc.collect()


def metrics_of(model: AxialTransformerConfig, config: TrainConfig, seconds: float, matmul: float) -> dict[str, float]:
    examples_per_second = config.batch_size / seconds
    return {
        "seconds": seconds,
        "examples_per_second": examples_per_second,
        "share_of_matmul_rate": examples_per_second * training_flops(model) / matmul,
    }


def rate(options: Options, precision: str) -> float:
    return matmul_rate(find_device(options.device), DTYPES[precision])


def training(recipe: RunConfig, precision: str, compiled: bool, options: Options) -> TrainConfig:
    changes: dict[str, Any] = {"precision": precision, "compile": compiled, "device": options.device}
    augmentations = {"distribution_augmentation": 0.0, "shift_augmentation": 0.0}
    changes |= {"optimizer": "adam", **augmentations}  # the straightforward step has no other
    at_a_time = recipe.training.batch_size // recipe.training.accumulate
    return replace(recipe.training, batch_size=options.batch or at_a_time, accumulate=1, **changes).resolve_auto()


BUILDING = Lock()


def build(recipe: RunConfig, device: torch.device) -> AxialTransformer:
    """The same model on both sides, which may be threads that share torch's generator."""
    with BUILDING, device:
        torch.manual_seed(0)
        model = AxialTransformer(recipe.model)
        randomise(model)  # a new head gives every model the same loss
    return model


def random_examples(recipe: RunConfig, count: int = 1024) -> Examples:
    rng = np.random.default_rng(0)
    shape = (count, *recipe.model.shape, recipe.model.channels)
    return Examples(
        values=rng.integers(0, recipe.model.num_values, shape, dtype=np.uint8),
        names=[str(i) for i in range(count)],
        labels=rng.integers(0, recipe.model.num_classes, count) if recipe.model.num_classes else None,
        num_values=recipe.model.num_values,
    )


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        "recipe", "batch", "precision", "blocks", "ours", "straightforward", "speed-up", "share of matmul rate"
    )
    for row in rows:
        ours, plain = row["ours"], row["straightforward"]
        table.add_row(
            row["recipe"],
            str(row["batch"]),
            row["precision"],
            "compiled" if row["compiled"] else "eager",
            f"{ours['seconds']:.4f} s, {ours['examples_per_second']:,.0f}/s",
            f"{plain['seconds']:.4f} s, {plain['examples_per_second']:,.0f}/s",
            f"{row['speedup']:.2f}" + (" (shipped)" if row["shipped"] else ""),
            f"{ours['share_of_matmul_rate']:.0%} | {plain['share_of_matmul_rate']:.0%}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
