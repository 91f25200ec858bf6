"""The axial model beside a GPT, a gated PixelCNN and PixelCNN++: equal parameters, data and CPU time of training.

    python experiments/peers.py run DATA --out runs/peers
    python experiments/peers.py run DATA --out runs/peers --data fashion --models axial GPT --seconds 600
    python experiments/peers.py run DATA --out runs/peers --data varied --optimizers muon --rates 1 --kodak KODAK
    python experiments/peers.py table --out runs/peers

DATA is a folder with fashion_mnist_train.npz, photos/train/ and varied/. The last holds copies of these photographs by
varied_photos.py, but none of guitar and mies, which validate. KODAK is a file with crops of other photographs, of which
models report bits/dim too. The models are those of peer_models.py; the axial one is that of the recipe, for
Fashion-MNIST narrower, for photographs with one position a pixel.

Every trial is a process of its own, of one thread; what it found is a line of OUT/rows.jsonl, and trials that are there
already are not run again. First each model and optimizer tries the learning rates with seed 0, then the best rate gets
the other seeds. A changed recipe needs another OUT.

Seconds are CPU time of training steps, nothing compiled by torch. All models see the same batches, and train in
bfloat16 where the CPU has instructions for it, as `axial train` does. JSON on the last line.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf, nan, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any, Literal

import numpy as np
import torch
from cyclopts import Parameter
from torch import Tensor
from torch.optim import AdamW, Optimizer

from ablation import some
from axial_transformers.data import DataConfig, Examples, load
from axial_transformers.recipes import NAMED
from axial_transformers.training import RunConfig, TrainConfig
from axial_transformers.training.batches import example_indices, step_positions
from axial_transformers.training.optimizer import Muon, clip_gradients, ema_decay, step_all, update_average
from of_benchmarks import interleaved, now, peak_memory, run_command
from peer_models import PEERS, WITHOUT_ATTENTION, Axial, Peer, build, size
from stored_rows import read, run_missing

Optimizing = Literal["adamw", "muon"]

WARM_UP = 0.05
"""Share of the time in which the learning rate rises."""
RATES = {"adamw": (4e-3, 2e-3, 8e-3, 1e-3), "muon": (1e-2, 2e-2, 5e-3, 4e-2)}
"""Learning rates; with Muon, of its matrices and of the other weights alike."""
SETTINGS = TrainConfig(betas=(0.9, 0.95), ema_decay=0.999, device="cpu", compile=False)
WEIGHT_DECAY = 0.01
EVALUATED_AT_ONCE = 20
PARTS = VALIDATION, KODAK = "", "kodak_"
"""What begins the names of numbers of the validation images, and of the Kodak crops."""
EXAMPLES = "bits_of_examples"
FITTED = 160
"""Training examples to which the linear prediction of photographs is fitted."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Data to compare on: its validation part chooses the learning rate and is what the table shows."""

    source: str
    trained_on: str | None = None
    """A folder of which all trains, in place of the training part of the source."""
    data: DataConfig = field(default_factory=DataConfig)
    recipes: Mapping[str, Callable[[], RunConfig]]
    """Of the axial models; peers have the size, the values and the batches of "axial"."""
    crops: str | None = None
    """The array in the file of Kodak crops whose images are of this kind."""
    validation: int
    """Validation examples looked at, evenly spread."""
    timed_batches: tuple[int, ...] = (1, 16)
    """Numbers of samples computed at a time, to time them."""

    @property
    def models(self) -> tuple[str, ...]:
        return (*self.recipes, *PEERS)

    def recipe(self, model: str) -> RunConfig:
        """The settings of a model, or of the axial one, whose size a peer has."""
        if model not in self.models:
            raise ValueError(f"{model} is not compared on this data: choose one of {', '.join(self.models)}")
        return self.recipes.get(model, self.recipes["axial"])()

    def training_part(self, data: Path) -> Examples:
        if self.trained_on is None:
            return load(data / self.source, self.data, "train")
        return load(data / self.trained_on, self.data, "all")


def photographs_by_feedforward_blocks() -> RunConfig:
    """The recipe of photographs without gated convolutions, in as many parameters."""
    blocks = {"gated_convolutions": 0, "mlp_ratio": 2.0, "outer_layers": 4, "inner_layers": 2}
    return NAMED["photos32"]().changed({f"model.{name}": value for name, value in blocks.items()})


AXIAL_PHOTOGRAPHS: dict[str, Callable[[], RunConfig]] = {
    "axial": NAMED["photos32"],
    WITHOUT_ATTENTION: NAMED["photos32"],
    "axial, feedforward blocks": photographs_by_feedforward_blocks,
}
KINDS = {
    "fashion": Kind(source="fashion_mnist_train.npz", recipes={"axial": NAMED["fashion_mnist"]}, validation=500),
    "photos": Kind(
        source="photos/train",
        data=DataConfig(size=32, cut="tiles", mode="rgb"),
        recipes=AXIAL_PHOTOGRAPHS,
        crops="crops32",
        validation=240,
    ),
}
KINDS["varied"] = replace(KINDS["photos"], trained_on="varied")


def optimizers(model: Axial | Peer, config: TrainConfig) -> list[Optimizer]:
    """Return AdamW; or the package's Muon for the matrices of the blocks, and AdamW for the rest."""
    matrices = model.matrices() if config.optimizer == "muon" else {}
    others = [parameter for parameter in model.parameters() if parameter not in matrices]
    rate, betas = config.learning_rate, config.betas
    found: list[Optimizer] = [AdamW(others, rate, betas, weight_decay=WEIGHT_DECAY, fused=True)]
    dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
    return [*found, Muon(matrices.items(), config.muon_learning_rate, dtype=dtype)] if matrices else found


class Training:
    """A model in training, and its EMA weights. The batches of a seed are the same for every model."""

    def __init__(self, model: Axial | Peer, examples: Examples, config: TrainConfig) -> None:
        self.model, self.average = model, copy.deepcopy(model)
        self.examples, self.config = examples, config
        self.optimizers = optimizers(model, config)
        self.steps = 0

    def batch(self) -> Tensor:
        positions = step_positions(self.steps, self.config.batch_size)
        indices = example_indices(self.config.seed, len(self.examples.values), positions)
        return torch.from_numpy(self.examples.values[indices]).long()

    def update(self, rate: float) -> bool:
        """Make a step; return False, and make none, if the loss is not finite."""
        self.model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            loss = self.model.loss(self.batch())
        if not loss.isfinite():
            return False
        loss.backward()
        clip_gradients(self.model, self.config)
        step_all(self.optimizers, self.config, rate)
        update_average(self.average, self.model, 1 - ema_decay(self.steps, self.config))
        self.steps += 1
        return True

    def run(self, seconds: float) -> bool:
        """Train for so much CPU time; return False if the loss stopped being finite."""
        begun = now()
        while (share := (now() - begun) / seconds) < 1:
            if not self.update(self.config.learning_rate * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))):
                return False
        return True


def trial(
    data: Path,
    kind: str,
    model: str,
    optimizer: Optimizing,
    learning_rate: float,
    seed: int,
    seconds: float,
    kodak: Path | None = None,
    every: int = 4,
) -> dict[str, Any]:
    """One trial: memory of a step, training, validation; for the first of a model also the time of a sample.

    Args:
        kodak: a file of Kodak crops, of which models of photographs report bits/dim too.
        every: of these crops, this one in so many.
    """
    torch.set_num_threads(1)
    plan = KINDS[kind]
    recipe, examples = plan.recipe(model), plan.training_part(data)
    config = replace(
        SETTINGS.resolve_auto(),
        optimizer="muon" if optimizer == "muon" else "adam",
        learning_rate=learning_rate,
        muon_learning_rate=learning_rate,
        batch_size=recipe.training.batch_size,
        seed=seed,
    )
    torch.manual_seed(seed)
    first = build(model, recipe.model)
    first.fit(torch.from_numpy(some(examples, FITTED)).long())
    training = Training(copy.deepcopy(first), examples, config)
    first.loss(training.batch()[:1]).backward()  # kernels are compiled here
    first.zero_grad()
    megabytes = peak_memory(partial(Training(first, examples, config).update, learning_rate)) / 2**20
    finite = training.run(seconds)
    average = training.average.eval()
    found: dict[str, Any] = {"kind": kind, "model": model, "optimizer": optimizer, "learning_rate": learning_rate}
    found |= {"seed": seed, "seconds": seconds}
    found |= {"steps": training.steps, "batch": config.batch_size, "precision": config.precision}
    found |= {"parameters": size(first), "step_megabytes": megabytes}
    validation = some(load(data / plan.source, plan.data, "validation"), plan.validation)
    found |= {"validation": len(validation), **scores(VALIDATION, average, validation, finite)}
    if kodak and plan.crops:
        crops = np.load(kodak)[plan.crops][::every]
        found |= {"kodak": len(crops), **scores(KODAK, average, crops, finite)}
    if (optimizer, learning_rate, seed) == ("muon", RATES["muon"][0], 0):
        found["sample_seconds"] = sample_seconds(average.sample, plan.timed_batches)
        if isinstance(average, Axial):
            found["eager_sample_seconds"] = sample_seconds(partial(average.sample, compiled=False), plan.timed_batches)
    return found


@torch.no_grad()
def scores(part: str, model: Axial | Peer, images: Any, finite: bool) -> dict[str, Any]:
    """Bits/dim of images [N, H, W, C]: of each, their mean and its standard error; None where training diverged."""
    batches = torch.from_numpy(images).long().split(EVALUATED_AT_ONCE)
    bits = torch.cat([model.bits(batch) for batch in batches])
    finite = finite and bool(bits.isfinite().all())
    found: dict[str, Any] = dict.fromkeys(("bits_per_dim", "standard_error", EXAMPLES))
    if finite:
        rounded = [round(each, 4) for each in bits.tolist()]
        found = {"bits_per_dim": bits.mean().item(), "standard_error": error_of(rounded), EXAMPLES: rounded}
    return {part + name: value for name, value in found.items()}


def error_of(bits: Sequence[float]) -> float:
    """The standard error of a mean."""
    return stdev(bits) / sqrt(len(bits))


def sample_seconds(sample: Callable[[int, torch.Generator], Tensor], counts: tuple[int, ...]) -> dict[str, float]:
    """CPU seconds of a sample, by how many are sampled at a time."""
    runs = {str(count): partial(sample, count, torch.Generator().manual_seed(0)) for count in counts}
    return {count: used / int(count) for count, used in interleaved(runs, rounds=1, warm_up=1).items()}


def run(
    data: Path,
    /,
    out: Path,
    kinds: Annotated[tuple[str, ...], Parameter(name="--data")] = ("fashion", "photos"),
    models: tuple[str, ...] = (),
    optimizers: tuple[Optimizing, ...] = ("adamw", "muon"),
    seconds: float = 150.0,
    rates: Literal[1, 2, 3, 4] = 4,
    seeds: int = 3,
    kodak: Path | None = None,
    every: int = 4,
) -> dict[str, Any]:
    """Runs what is not in OUT/rows.jsonl yet, then prints the table.

    Args:
        kinds: fashion, photos, varied.
        models: axial, GPT, "gated PixelCNN", PixelCNN++; of photographs also those of AXIAL_PHOTOGRAPHS. All if none.
        optimizers: of the matrices of the blocks.
        seconds: CPU time of training, of each trial.
        rates: learning rates of each model and optimizer, the likeliest first.
        seeds: 0 .. seeds-1; those after 0 for the best learning rate.
        kodak, every: see `trial`.
    """
    options = () if kodak is None else ("--kodak", kodak, "--every", every)

    def wanted(kind: str, model: str, optimizer: str, rate: float, seed: int) -> dict[str, Any]:
        names = {"kind": kind, "model": model, "optimizer": optimizer}
        return {**names, "learning_rate": rate, "seed": seed, "seconds": seconds}

    first = [
        wanted(kind, model, optimizer, RATES[optimizer][number], 0)
        for kind in kinds
        for number, optimizer, model in product(range(rates), optimizers, models or KINDS[kind].models)
    ]
    run_missing(__file__, "trial", data, out, first, options)
    best = summarised([row for row in read(out) if any(each.items() <= row.items() for each in first)])
    names = ("kind", "model", "optimizer", "learning_rate")
    chosen = [{name: each[name] for name in names} for each in best]
    again = [each | {"seed": seed, "seconds": seconds} for seed in range(1, seeds) for each in chosen]
    run_missing(__file__, "trial", data, out, again, options)
    return table(out)


def bits_of(row: dict[str, Any]) -> float:
    """Bits/dim; infinity where training diverged."""
    return inf if row["bits_per_dim"] is None else row["bits_per_dim"]


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each model, optimizer, data and time: its rate that is best with seed 0, means over seeds."""
    together: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        together.setdefault((row["kind"], row["seconds"], row["optimizer"], row["model"]), []).append(row)
    summary = []
    for key in sorted(together, key=lambda key: (*key[:3], key[3] != "axial")):
        tried = [row for row in together[key] if row["seed"] == 0]
        rate = min(tried, key=bits_of)["learning_rate"]
        seeds = [row for row in together[key] if row["learning_rate"] == rate]
        all_rates = [row["learning_rate"] for row in tried]
        line = seeds[0] | {name: mean(row[name] for row in seeds) for name in ("steps", "step_megabytes")}
        for part in PARTS:
            line |= over_seeds(part, seeds)
        at_edge = rate in (min(all_rates), max(all_rates))
        summary.append({**line, "seeds": len(seeds), "rates": len(all_rates), "at_edge": at_edge})
    axial = {settings_of(line): line for line in summary if line["model"] == "axial"}
    for line, part in product(summary, PARTS):
        line[part + "above_axial"] = difference(part, line, axial.get(settings_of(line)))
    return [{name: value for name, value in line.items() if not name.endswith(EXAMPLES)} for line in summary]


def settings_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["kind"], line["seconds"], line["optimizer"]


def over_seeds(part: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds and their standard deviation; standard error over examples of these means. None: not known."""
    bits: list[Any] = [row.get(part + "bits_per_dim") for row in rows]
    examples = [row.get(part + EXAMPLES) for row in rows]
    found: dict[str, Any] = dict.fromkeys(("bits_per_dim", "spread", "standard_error", EXAMPLES))
    if None not in bits:
        found["bits_per_dim"] = mean(bits)
        found["spread"] = stdev(bits) if len(bits) > 1 else None
    if None not in examples:
        found[EXAMPLES] = [mean(of_seeds) for of_seeds in zip(*examples, strict=True)]
        found["standard_error"] = error_of(found[EXAMPLES])
    return {part + name: value for name, value in found.items()}


def difference(part: str, line: dict[str, Any], axial: dict[str, Any] | None) -> tuple[float, float] | None:
    """Bits/dim above the axial model, and the standard error over examples, which both have seen; None: not known."""
    if axial is None or None in (line[part + EXAMPLES], axial[part + EXAMPLES]):
        return None
    above = [ours - of_axial for ours, of_axial in zip(line[part + EXAMPLES], axial[part + EXAMPLES], strict=True)]
    return mean(above), error_of(above)


SCORES = ("bits/dim", "standard error", "above axial")
HEADINGS = (
    *("model", "optimizer", *SCORES, *(f"Kodak: {name}" for name in SCORES)),
    *("learning rate", "seeds", "steps", "parameters", "MB a step"),
    *("s a sample, one at a time", "s a sample, 16 at a time"),
)
NOTES = """
bits/dim: mean ± standard deviation over seeds. Standard errors are over examples; "above axial" is paired, with its
standard error. \\*: the lowest or the highest rate that was tried. –: training diverged, or not measured.
"""


def table(out: Path) -> dict[str, Any]:
    """Prints Markdown: a table for each kind of data."""
    rows = read(out)
    summary = summarised(rows)
    sampling = {(row["kind"], row["model"]): row for row in rows if "sample_seconds" in row}
    for kind, seconds in dict.fromkeys((each["kind"], each["seconds"]) for each in summary):
        lines = [each for each in summary if (each["kind"], each["seconds"]) == (kind, seconds)]
        crops = f", {lines[0]['kodak']} Kodak crops" if "kodak" in lines[0] else ""
        print(f"\n**{kind}**, {seconds:g} s of CPU time, {lines[0]['validation']} validation images{crops}\n")
        print("| " + " | ".join(HEADINGS) + " |")
        print("|" + "---|" * len(HEADINGS))
        for line in lines:
            print("| " + " | ".join([*cells(line), *sample_cells(sampling.get((kind, line["model"]), {}))]) + " |")
    print(NOTES)
    return {"rows": summary}


def cells(line: dict[str, Any]) -> list[str]:
    return [
        line["model"],
        line["optimizer"],
        *(cell for part in PARTS for cell in score_cells(part, line)),
        f"{line['learning_rate']:g}" + (" \\*" if line["at_edge"] else ""),
        f"{line['seeds']}",
        f"{line['steps']:.0f}",
        f"{line['parameters']:,}",
        f"{line['step_megabytes']:.0f}",
    ]


def score_cells(part: str, line: dict[str, Any]) -> list[str]:
    bits, spread, error = (line[part + name] for name in ("bits_per_dim", "spread", "standard_error"))
    above = line[part + "above_axial"]
    return [
        "–" if bits is None else f"{bits:.3f}" + ("" if spread is None else f" ± {spread:.3f}"),
        "–" if error is None else f"{error:.3f}",
        "–" if above is None else f"{above[0]:+.4f} ({above[1]:.4f})",
    ]


def sample_cells(row: dict[str, Any]) -> list[str]:
    """Seconds of a sample by batch; of the axial model also without compiled kernels."""
    eager = row.get("eager_sample_seconds", {})
    return [
        f"{used:.3f}" + (f" ({eager[count]:.3f} eager)" if count in eager else "")
        for count, used in row.get("sample_seconds", {"1": nan, "16": nan}).items()
    ]


def main() -> None:
    """Runs the command and prints its JSON."""
    print(json.dumps(run_command(run, trial, table)))


if __name__ == "__main__":
    main()
