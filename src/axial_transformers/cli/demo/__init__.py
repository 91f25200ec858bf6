"""axial demo: training, likelihood, samples and completions of handwritten digits, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from axial_transformers.cli import INTERRUPTED
from axial_transformers.cli.console import working
from axial_transformers.cli.demo.figures import figures
from axial_transformers.cli.demo.page import THIS_MODEL, Results, page
from axial_transformers.cli.demo.simple_codes import independent_bits, xz_bits
from axial_transformers.cli.parsing import parse
from axial_transformers.cli.settings import Preset, recipe_preset
from axial_transformers.cli.train import run
from axial_transformers.data import load
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.files import written_whole
from axial_transformers.training import TrainResult

MOST_MINUTES = 2.6
"""Limit of the training time, which only a slow machine reaches before the recipe's last step."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small model on handwritten digits, in a few minutes on a laptop, and show its results on one page.

    For example:
      axial demo
      axial demo --out somewhere --steps 300

    A second call finds the trained model in OUT/run and only writes the page again.
    """

    out: Path = Path("demo")
    """Folder for the page, its pictures and the run."""
    steps: int | None = None
    """Training steps. None: the recipe's."""


def main(argv: Sequence[str]) -> int:
    """Runs the command."""
    options = parse(Demo, argv, "demo")
    preset = _preset(options)
    training = preset.settings.training
    print(f"training on the digits: {training.steps:,} steps, at most {MOST_MINUTES} minutes", flush=True)
    result = run(preset, ("demo", *argv))
    if result.ending == "interrupted":
        print("stopped; the same command continues from there")
        return INTERRUPTED
    with working("drawing samples and the page"):
        results = _results(preset, result)
        for name, picture in results.pictures.items():
            with written_whole(options.out / f"{name}.png") as aside:
                picture.save(aside)
        with written_whole(options.out / "index.html") as aside:
            aside.write_text(page(results), encoding="utf-8")
    score, images = results.score, f"{results.score.images} test images"
    print(f"{THIS_MODEL:<20}{score.bits_per_dim:.3f} ± {score.standard_error:.3f} bits/dim on {images}")
    for name, bits in results.simple_codes.items():
        print(f"{name:<20}{bits:.3f} bits/dim on the same images")
    print((options.out / "index.html").resolve().as_uri())
    return 0


def _preset(options: Demo) -> Preset:
    preset = recipe_preset("digits")
    training = replace(preset.settings.training, time_limit=MOST_MINUTES)
    if options.steps is not None:
        training = replace(training, steps=options.steps)
    settings = replace(preset.settings, out=options.out / "run", resume=True, training=training)
    return replace(preset, settings=settings)


def _results(preset: Preset, result: TrainResult) -> Results:
    model = AxialTransformer.from_pretrained(preset.settings.out)
    everything, test = load("digits", split="all"), load("digits", split="test")
    others = everything[: len(everything) - len(test)]
    values = torch.from_numpy(test.values)
    return Results(
        preset=preset,
        result=result,
        score=evaluate(model, values),
        score_with_labels=evaluate(model, values, torch.from_numpy(test.labels)),
        simple_codes={"independent pixels": independent_bits(others, test), "xz": xz_bits(test)},
        fingerprint=test.fingerprint,
        pictures=figures(model, others, test),
    )
