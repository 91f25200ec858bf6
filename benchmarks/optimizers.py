"""CPU seconds of a training step with Adam and with Muon, in turns in one process.

    python benchmarks/optimizers.py                                fashion_mnist, 20 steps of each
    python benchmarks/optimizers.py --recipe digits --steps 100
    taskset -c 0 env OMP_NUM_THREADS=1 python benchmarks/optimizers.py        one core

The steps are those of `axial train` with the recipe's settings, on random values. Medians count. The last line is JSON.
"""

import json
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
import torch

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformer
from axial_transformers.recipes import NAMED
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import Learner, prepared, step
from command_line import run_command

Optimizer = Literal["adam", "muon"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """CPU seconds of a training step with Adam and with Muon, in turns in one process."""

    recipe: str = "fashion_mnist"
    """Recipe whose model, batch size and precision are taken."""
    steps: int = 20
    """Steps of each, after two that are not counted."""


def begun(options: Options, optimizer: Optimizer, processes: Processes) -> Learner:
    recipe = NAMED[options.recipe]()
    config = recipe.model
    shape = (recipe.training.batch_size, *config.shape, config.channels)
    dtype = np.uint8 if config.num_values <= 256 else np.uint16
    values: Any = np.random.default_rng(0).integers(0, config.num_values, shape, dtype=dtype)
    labels = np.zeros(len(values), np.int64) if config.num_classes else None
    examples = Examples(values, [""] * len(values), labels=labels, num_values=config.num_values)
    training = replace(recipe.training, optimizer=optimizer, device="cpu").resolve_auto()
    return prepared(AxialTransformer(config), examples, training, processes)


def main() -> None:
    options = run_command(Options)
    seconds: dict[str, list[float]] = {name: [] for name in get_args(Optimizer)}
    with Processes(torch.device("cpu")) as processes:
        runs = {name: begun(options, name, processes) for name in get_args(Optimizer)}
        for _ in range(2 + options.steps):
            for name, run in runs.items():
                start = time.process_time()
                step(run)
                seconds[name].append(time.process_time() - start)
        for run in runs.values():
            run.close()
    found = {name: median(each[2:]) for name, each in seconds.items()}
    print(json.dumps({"recipe": options.recipe, **found, "ratio": found["muon"] / found["adam"]}))


if __name__ == "__main__":
    main()
