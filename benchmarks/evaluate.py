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
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from command_line import run_command

HERE = Path(__file__).resolve()
PRETRAINED = HERE.parents[1] / "src" / "axial_transformers" / "pretrained"
RECIPES = ("digits", "fashion_mnist", "photos32")
WORK = (
    *("evaluate", "evaluate_wide", "encode", "decode", "sample_1", "sample_4", "sample_16"),
    *(f"train_{name}" for name in RECIPES),
)
WARM_UP = 2


def works(half: bool, compiled: bool) -> dict[str, Callable[[], Callable[[], object]]]:
    """What can be timed, by name: each prepares itself and returns the work.

    Args:
        half: train in bfloat16.
        compiled: compile the blocks that are trained.
    """
    import torch

    import axial_transformers as axial
    from axial_transformers import recipes
    from axial_transformers.layers.blocks import compile_blocks
    from axial_transformers.layers.initialisation import randomise

    def pretrained() -> axial.AxialTransformer:
        return axial.AxialTransformer.from_pretrained(PRETRAINED / "fashion_mnist").float()

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
        model = axial.AxialTransformer(recipe.model).train()
        if compiled:
            compile_blocks(model)
        x = torch.randint(
            recipe.model.num_values, (recipe.training.batch_size, *recipe.model.shape, recipe.model.channels)
        )

        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
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


def worker(names: list[str], threads: int, half: bool, compiled: bool) -> None:
    """Prepares the work, then does and times one piece for each line of standard input."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    known = works(half, compiled)
    prepared = {name: known[name]() for name in names}
    for line in sys.stdin:
        start = time.process_time()
        prepared[line.strip()]()
        print(time.process_time() - start, flush=True)


@contextmanager
def process(checkout: Path, work: tuple[str, ...], threads: int) -> Iterator[Callable[[str], float]]:
    """A process of a checkout: the name of a piece of work -> seconds of CPU time."""
    from axial_transformers.training import TrainConfig

    chosen = TrainConfig(device="cpu").resolve_auto()  # for both, whatever each checkout would choose
    flags = [str(threads), str(int(chosen.precision == "bfloat16")), str(int(bool(chosen.compile)))]
    command = [sys.executable, str(HERE), "--worker", *flags, *work]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert isinstance(child.stdin, io.TextIOWrapper)
        assert isinstance(child.stdout, io.TextIOWrapper)
        sent, received = child.stdin, child.stdout

        def ask(name: str) -> float:
            print(name, file=sent, flush=True)
            return float(received.readline())

        yield ask
        sent.close()


def main(other: Path, *, work: tuple[str, ...] = WORK, turns: int = 7, threads: int = 1) -> None:
    """Args:
    other: the other checkout.
    """
    rows = {}
    with process(HERE.parents[1], work, threads) as ours, process(other, work, threads) as theirs:
        for name in work:
            pairs = [(ours(name), theirs(name)) for _ in range(WARM_UP + turns)][WARM_UP:]
            ratio, (mine, before) = median(b / a for a, b in pairs), map(median, zip(*pairs))
            rows[name] = {"ours": round(mine, 4), "other": round(before, 4), "times_as_fast": round(ratio, 3)}
            print(f"{name:<20}{mine:9.4f} s {before:9.4f} s   {ratio:.3f} times as fast", flush=True)
    print(json.dumps({"threads": threads, "turns": turns, "rows": rows}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        threads, half, compiled, *names = sys.argv[2:]
        worker(names, int(threads), half == "1", compiled == "1")
    else:
        run_command(main, description=__doc__)
