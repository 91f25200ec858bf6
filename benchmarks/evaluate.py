"""Compares two checkouts of this project: the same work in alternating processes, and the ratio of their speeds.

    git worktree add ../before HEAD~1
    python benchmarks/evaluate.py ../before
    python benchmarks/evaluate.py ../before --work evaluate sample_1 --threads 2

A process of each checkout does each piece of work in turn, after two turns that do not count. The ratio is the median
over turns of the other checkout's CPU time by ours: above 1, ours is faster. The last line is JSON.
"""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from command_line import run_command

HERE = Path(__file__).resolve()
PRETRAINED = HERE.parents[1] / "pretrained"
RECIPES = ("digits", "fashion_mnist", "photos32")
WORK = (
    *("evaluate", "evaluate_wide", "encode", "decode", "sample_1", "sample_4", "sample_16"),
    *(f"train_{name}" for name in RECIPES),
)
WARM_UP = 2


@dataclass(frozen=True, kw_only=True)
class Options:
    other: Path
    """The other checkout."""
    work: tuple[str, ...] = WORK
    turns: int = 7
    threads: int = 1


def works() -> dict[str, Callable[[], Callable[[], object]]]:
    """What can be timed, by name: each prepares itself and returns the work."""
    import torch

    import axial_transformers as axial
    from axial_transformers import recipes
    from axial_transformers.layers.blocks import compile_blocks
    from axial_transformers.layers.initialisation import randomise

    def pretrained() -> axial.AxialTransformer:
        return axial.AxialTransformer.from_pretrained(PRETRAINED / "fashion_mnist")

    def images(model: axial.AxialTransformer) -> torch.Tensor:
        return axial.sample(model, 32, generator=torch.Generator().manual_seed(1), compile=True)

    def evaluate() -> Callable[[], object]:
        model = pretrained()
        x = images(model)
        return lambda: axial.bits_per_dim(model, x)

    def evaluate_wide() -> Callable[[], object]:
        config = axial.AxialTransformerConfig(
            shape=(32, 32), channels=3, dim=128, heads=4, encoder_layers=2, outer_layers=2, inner_layers=2
        )
        model, x = axial.AxialTransformer(config).eval(), torch.randint(256, (16, 32, 32, 3))
        randomise(model, torch.Generator().manual_seed(0))
        return lambda: axial.bits_per_dim(model, x)

    def encode() -> Callable[[], object]:
        model = pretrained()
        x = images(model)
        return lambda: axial.compress(model, x, verify=False)

    def decode() -> Callable[[], object]:
        model = pretrained()
        archive = axial.compress(model, images(model), verify=False)
        return lambda: axial.decompress(model, archive)

    def sample(count: int) -> Callable[[], object]:
        model = pretrained()
        return lambda: axial.sample(model, count, generator=torch.Generator().manual_seed(0), compile=True)

    def train(name: str) -> Callable[[], object]:
        recipe = recipes.NAMED[name]()
        config = replace(recipe.training, device="cpu").resolved()
        model = axial.AxialTransformer(recipe.model).train()
        if config.compile:
            compile_blocks(model)
        x = torch.randint(recipe.model.num_values, (config.batch_size, *recipe.model.shape, recipe.model.channels))
        half = torch.autocast("cpu", torch.bfloat16) if config.precision == "bfloat16" else nullcontext()

        def step() -> None:
            with half:
                loss = axial.random_slice_loss(model, x)
            loss.backward()

        return step

    return {
        "evaluate": evaluate,
        "evaluate_wide": evaluate_wide,
        "encode": encode,
        "decode": decode,
        **{f"sample_{count}": lambda count=count: sample(count) for count in (1, 4, 16)},
        **{f"train_{name}": lambda name=name: train(name) for name in RECIPES},
    }


def worker(names: list[str], threads: int) -> None:
    """Prepares the work, then does and times one piece for each line of standard input."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    known = works()
    prepared = {name: known[name]() for name in names}
    for line in sys.stdin:
        start = time.process_time()
        prepared[line.strip()]()
        print(time.process_time() - start, flush=True)


@contextmanager
def process(checkout: Path, options: Options) -> Iterator[Callable[[str], float]]:
    """A process of a checkout: the name of a piece of work -> seconds of CPU time."""
    command = [sys.executable, str(HERE), "--worker", str(options.threads), *options.work]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": str(options.threads)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert isinstance(child.stdin, io.TextIOWrapper)
        assert isinstance(child.stdout, io.TextIOWrapper)
        sent, received = child.stdin, child.stdout

        def ask(name: str) -> float:
            print(name, file=sent, flush=True)
            return float(received.readline())

        yield ask
        sent.close()


def main(options: Options) -> None:
    rows = {}
    with process(HERE.parents[1], options) as ours, process(options.other, options) as theirs:
        for name in options.work:
            pairs = [(ours(name), theirs(name)) for _ in range(WARM_UP + options.turns)][WARM_UP:]
            ratio, (mine, before) = median(b / a for a, b in pairs), map(median, zip(*pairs))
            rows[name] = {"ours": round(mine, 4), "other": round(before, 4), "times_as_fast": round(ratio, 3)}
            print(f"{name:<20}{mine:9.4f} s {before:9.4f} s   {ratio:.3f} times as fast", flush=True)
    print(json.dumps({"threads": options.threads, "turns": options.turns, "rows": rows}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[3:], int(sys.argv[2]))
    else:
        main(run_command(Options, description=__doc__))
