"""Train the default model on 12 sets of own data, and show that it stays stable. JSON lines into OUT.

    python experiments/stable_training.py DATA OUT [--sets shapes noise] [--seeds 0 1 2] [--precisions float32 bfloat16]

DATA has photos/train/. Examples are small, and batches too: 2,000 steps take about a minute of a core. The learning
rate stays at its highest for half of the steps, then falls to zero. Every 100 steps the EMA weights are evaluated on
the validation part: `worst` is the largest (bits - 0.05) / (fewest bits before), `final` the last.
"""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from axial_transformers import recipes
from axial_transformers.data import DataConfig, load
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.training import TrainConfig, step as training_step, train
from of_benchmarks import run_command

STEPS, EVERY, WARMUP, BATCH = 2_000, 100, 100, 8
SIDE = 12


def drawn(random: np.random.Generator, mode: str, side: int = SIDE) -> NDArray[Any]:
    """Return two flat circles or rectangles on a plain dark ground."""

    def ink(low: int, high: int) -> tuple[int, ...]:
        return tuple(map(int, random.integers(low, high, len(mode))))

    image = Image.new(mode, (side, side), ink(10, 60))
    draw = ImageDraw.Draw(image)
    for _ in range(2):
        (x, y), (width, height) = random.integers(0, side - 3, 2), random.integers(3, side // 2 + 2, 2)
        shape = draw.ellipse if random.random() < 0.5 else draw.rectangle
        shape((x, y, x + width, y + height), fill=ink(90, 250))
    return np.asarray(image)


def shapes(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return np.stack([drawn(random, "L") for _ in range(600)])[..., None]


def icons(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return np.stack([drawn(random, "RGB", 8) for _ in range(600)])


def noise(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return random.integers(0, 256, (600, SIDE, SIDE, 1), dtype=np.uint8)


def constant(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return np.repeat(drawn(random, "L")[None, ..., None], 600, axis=0)


def two_values(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return np.where(shapes(random, data) > 70, 255, 0).astype(np.uint8)


def photographs(random: np.random.Generator, data: Path) -> NDArray[Any]:
    files = sorted((data / "photos/train").iterdir())
    images = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    corners = random.integers(0, 576 - SIDE, (600, 2))
    return np.stack([images[i % len(images)][y : y + SIDE, x : x + SIDE] for i, (y, x) in enumerate(corners)])


def scans(random: np.random.Generator, data: Path) -> NDArray[Any]:
    z, y, x = np.indices((4, 6, 10))
    phases = random.uniform(0, 6, (600, 3, 1, 1, 1))
    waves = np.sin(z / 3 + phases[:, 0]) + np.sin(y / 4 + phases[:, 1]) + np.sin(x / 5 + phases[:, 2])
    return (30_000 + 9_000 * waves + random.normal(0, 300, waves.shape)).astype(np.uint16)[..., None]


def clips(random: np.random.Generator, data: Path) -> NDArray[Any]:
    found = np.full((600, 3, 8, 8, 1), 20, np.uint8)
    for clip, (y, x, down, right) in zip(found, random.integers((0, 0, 0, 0), (4, 4, 2, 2), (600, 4))):
        for t in range(3):
            clip[t, y + t * down : y + t * down + 3, x + t * right : x + t * right + 3] = 200
    return found


def table(random: np.random.Generator, data: Path) -> NDArray[Any]:
    age, visits = random.integers(18, 90, 2000), random.poisson(4, 2000)
    weight = (3 * age + random.normal(0, 20, 2000)).clip(0).astype(int)
    columns = (age, visits, weight, (age // 10) ** 2, visits > 4, random.poisson(300, 2000), 2020 - age)
    return np.stack(columns, axis=1)[..., None]


def chain(random: np.random.Generator, symbols: int, length: int, evenness: float) -> NDArray[Any]:
    """Return sequences of a Markov chain."""
    chances = random.dirichlet(np.full(symbols, evenness), symbols).cumsum(-1)
    found = random.integers(0, symbols, (2000, length, 1))
    for i in range(1, length):
        found[:, i, 0] = (random.random((2000, 1)) > chances[found[:, i - 1, 0]][:, :-1]).sum(1)
    return found.astype(np.uint8)


def tokens(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return chain(random, 200, 32, 0.05)


def dna(random: np.random.Generator, data: Path) -> NDArray[Any]:
    return chain(random, 4, 64, 1.0)


def labelled(random: np.random.Generator, data: Path) -> NDArray[Any]:
    """The bundled digits come with their labels; see `trained`."""
    return np.zeros((0, 8, 8, 1), np.uint8)


MAKERS = (
    shapes, icons, noise, constant, two_values, photographs, scans, clips, table, tokens, dna, labelled,
)  # fmt: skip


NAMES = tuple(maker.__name__ for maker in MAKERS)


def held(step: int, config: TrainConfig, clock: float = 0.0) -> float:
    """Return a learning rate that stays at its highest for half of the steps."""
    falling = (config.steps - step) / (config.steps / 2)
    return config.learning_rate * min(1.0, (step + 1) / WARMUP, falling)


def trained(source: str, precision: Literal["float32", "bfloat16"], seed: int, steps: int) -> dict[str, object]:
    """Train on a source, and return what is said above."""
    examples, validation = load(source, DataConfig()), load(source, DataConfig(), "validation")[:200]
    run = recipes.custom(examples)
    config = replace(
        run.training, steps=steps, batch_size=BATCH, precision=precision, seed=seed, device="cpu", compile=False,
        evaluate_every=min(EVERY, steps), sample_every=steps, save_every=250, log_every=1,
    )  # fmt: skip
    torch.manual_seed(seed)
    model, curve = AxialTransformer(run.model), list[float]()

    def bits(average: AxialTransformer, number: int, fill: object) -> dict[str, float]:
        values = torch.from_numpy(validation.values)
        curve.append(evaluate(average, values, batch_size=50).bits_per_dim)
        return {"bits_per_dim": curve[-1]}

    with TemporaryDirectory() as folder:
        with patch.object(training_step, "learning_rate", held):
            result = train(model, examples, config, Path(folder) / "run", evaluate=bits)
        lines = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    norms = [line["gradient_norm"] for line in lines if "gradient_norm" in line]
    left_out = max(line.get("steps_left_out", 0) for line in lines)
    worst = max((now - 0.05) / min(curve[: i + 1]) for i, now in enumerate(curve))
    return {
        "values": run.model.values, "dim": run.model.dim, "steps": result.step, "final": curve[-1], "worst": worst,
        "left_out": left_out, "median_norm": float(np.median(norms)), "largest_norm": max(norms),
    }  # fmt: skip


def main(
    data: Path,
    out: Path,
    sets: tuple[str, ...] = NAMES,
    seeds: tuple[int, ...] = (0,),
    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32",),
    steps: int = STEPS,
) -> None:
    """Add a line to OUT for each run that it has not.

    Args:
        data: the folder described above.
        out: a file of JSON lines.
        sets: those to try.
        seeds: seeds of training.
        precisions: float32, bfloat16.
        steps: of each run.
    """
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    for maker in [maker for maker in MAKERS if maker.__name__ in sets]:
        with TemporaryDirectory() as folder:
            source = "digits"
            if maker is not labelled:
                source = f"{folder}/data.npy"
                np.save(source, maker(np.random.default_rng(0), data))
            for precision in precisions:
                for seed in seeds:
                    key = {"set": maker.__name__, "precision": precision, "seed": seed}
                    if any(key.items() <= row.items() for row in done):
                        continue
                    row = key | trained(source, precision, seed, steps)
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    run_command(main)
