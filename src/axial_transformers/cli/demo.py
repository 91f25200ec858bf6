"""axial demo: training, likelihood, samples and completions of handwritten digits, on one page."""

import lzma
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from axial_transformers.cli import INTERRUPTED
from axial_transformers.cli.console import working
from axial_transformers.cli.parsing import command, parse
from axial_transformers.cli.settings import Preset, recipe_preset
from axial_transformers.cli.train import run
from axial_transformers.data import Examples, load
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Evaluation, evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import html
from axial_transformers.pictures.charts import Line, line_chart
from axial_transformers.pictures.display import DRAWN, HEAT, INK, Pixels, colour, unseen
from axial_transformers.pictures.grids import sheet
from axial_transformers.planning.operations import parameters
from axial_transformers.storage.files import written_whole
from axial_transformers.training import TrainResult
from axial_transformers.training.curves import Curve, read_curves
from axial_transformers.training.metrics import VALIDATION

MOST_MINUTES = 2.6
"""Limit of the training time, which only a slow machine reaches before the recipe's last step."""
CLASSES = 10
KNOWN_ROWS = 4
COMPLETIONS = 4
BATCH_SIZE = 64
"""Images whose bits are computed at once."""
HOTTEST = 6.0
"""Bits of a pixel at the upper end of the colours."""

Pictures = dict[str, Image.Image]
THIS_MODEL = "this model"


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


@dataclass(frozen=True, kw_only=True)
class Results:
    """All numbers and pictures of the page."""

    preset: Preset
    result: TrainResult
    score: Evaluation
    """Of the test images, labels not given."""
    score_with_labels: Evaluation
    """The same, labels given."""
    simple_codes: dict[str, float]
    """Bits/dim of the same images under simple codes, by name."""
    fingerprint: str
    """Of the test images."""
    pictures: Pictures


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


def independent_bits(train: Examples, test: Examples) -> float:
    """Bits/dim under independent pixels, each with its histogram over the training images, counts plus one."""
    values = np.arange(train.num_values)
    counts = 1 + (train.values[..., None] == values).sum(axis=0)
    bits = -np.log2(counts / (len(train) + train.num_values))
    return float(np.where(test.values[..., None] == values, bits, 0).sum() / test.values.size)


def xz_bits(examples: Examples) -> float:
    """Bits/dim of the examples as one xz stream of bytes, at its strongest setting."""
    return 8 * len(lzma.compress(examples.values.tobytes(), preset=9 | lzma.PRESET_EXTREME)) / examples.values.size


def figures(model: AxialTransformer, others: Examples, test: Examples) -> Pictures:
    """All pictures of the page by name; `others` are the images that are not in the test part."""
    generator = torch.Generator().manual_seed(0)
    return {
        "samples": sheet(_ink(sample(model, 60, generator=generator)), columns=CLASSES),
        "classes": sheet(_ink(_of_every_class(model, generator)), columns=CLASSES),
        **_nearest(model, others, generator),
        **_completions(model, test, generator),
        **_bits(model, test),
    }


def _of_every_class(model: AxialTransformer, generator: torch.Generator) -> Tensor:
    return sample(model, label=torch.arange(CLASSES).repeat(5), generator=generator)


def _nearest(model: AxialTransformer, others: Examples, generator: torch.Generator) -> Pictures:
    """Samples, and for each the image with the smallest sum of squared differences from it."""
    drawn = sample(model, 10, generator=generator).numpy()
    difference = drawn[:, None].astype(np.int64) - others.values.astype(np.int64)
    closest = (difference**2).sum(axis=(2, 3, 4)).argmin(axis=1)
    return {
        "drawn": sheet(_ink(drawn), columns=len(drawn)),
        "nearest": sheet(_ink(others.values[closest]), columns=len(drawn)),
    }


def _completions(model: AxialTransformer, test: Examples, generator: torch.Generator) -> Pictures:
    """The upper halves of ten test images, completions of them, and the whole images."""
    truth = _one_of_each_class(test)
    filled = complete(model, truth, rows=KNOWN_ROWS, count=COMPLETIONS, generator=generator)
    filled = filled.unflatten(0, (CLASSES, COMPLETIONS)).transpose(0, 1).flatten(0, 1)  # a column for each image
    drawn = np.arange(8)[:, None] >= KNOWN_ROWS + np.zeros(8, int)
    return {
        "given": sheet(unseen(_ink(truth), drawn), columns=CLASSES),
        "completions": sheet(np.where(drawn[..., None], colour(_levels(filled), DRAWN), _ink(filled)), columns=CLASSES),
        "truth": sheet(_ink(truth), columns=CLASSES),
    }


def _bits(model: AxialTransformer, test: Examples) -> Pictures:
    """Bits of every pixel: of ten test images, and the mean over all of them."""
    chosen = _one_of_each_class(test)
    parts = torch.from_numpy(test.values).split(BATCH_SIZE)  # as many as in an evaluation: no kernel is compiled
    mean = torch.cat([bits_map(model, part) for part in parts]).mean(dim=0, keepdim=True)
    return {
        "bits_of": sheet(_ink(chosen), columns=CLASSES),
        "bits": sheet(_heat(bits_map(model, chosen)), columns=CLASSES),
        "bits_mean": sheet(_heat(mean), columns=1, scale=24),
    }


def _one_of_each_class(test: Examples) -> Tensor:
    """The first test image of every class [10, 8, 8, 1]."""
    assert test.labels is not None
    _, first = np.unique(test.labels, return_index=True)
    return torch.from_numpy(test.values[first])


def _levels(values: Tensor | NDArray[np.uint8]) -> NDArray[np.floating]:
    """Digits [N, 8, 8, 1] as levels 0..1 [N, 8, 8]."""
    return np.asarray(values)[..., 0] / 16


def _ink(values: Tensor | NDArray[np.uint8]) -> Pixels:
    return colour(_levels(values), INK)


def _heat(bits: Tensor) -> Pixels:
    return colour(bits[..., 0].numpy() / HOTTEST, HEAT)


def page(results: Results) -> str:
    """The page, as HTML."""
    sections = [
        _title_section,
        _likelihood_section,
        _training_section,
        _samples_section,
        _neighbours_section,
        _classes_section,
        _completions_section,
        _bits_section,
        _again_section,
    ]
    return html.document("Axial Transformer: handwritten digits", [part(results) for part in sections])


def _image(results: Results, name: str, description: str) -> str:
    return html.image(results.pictures[name], description)


def _title_section(results: Results) -> str:
    size = sum(parameters(results.preset.settings.model).values())
    return (
        f"<h1>An Axial Transformer of handwritten digits, trained in {results.result.seconds:.0f} seconds</h1>\n"
        f'<p class="soft">{size:,} parameters, trained from scratch on 1,350 images of 8 × 8 pixels with 17 gray '
        "values. Everything on this page was computed on this machine by <code>axial demo</code>.</p>"
    )


def _likelihood_section(results: Results) -> str:
    score, told = results.score, results.score_with_labels
    return html.section(
        "Likelihood",
        "The model gives every image an exact probability, pixel by pixel. Its negative logarithm is the number of "
        "bits in which the image can be stored without loss: fewer is better.",
        html.bars({THIS_MODEL: score.bits_per_dim, **results.simple_codes}, best=THIS_MODEL),
        html.figure(
            "",
            f"Bits per pixel (bits/dim) of the last {score.images} images, which are not used in training. This model: "
            f"{score.bits_per_dim:.3f} ± {score.standard_error:.3f} (standard error over images), averaged weights "
            f"(EMA), labels not given; with labels {told.bits_per_dim:.3f}. Independent pixels: each has its own "
            "histogram over the other 1,500 images, counts plus one. xz: the same images as one stream of bytes.",
        ),
    )


def _training_section(results: Results) -> str:
    curves = defaultdict[str, Curve](list, read_curves(results.preset.settings.out / "metrics.jsonl"))
    return html.section(
        "Training",
        "The weights with the fewest bits on 150 further images, the validation part, are kept.",
        html.figure(
            line_chart(
                [Line(curves["bits_per_dim"]), Line(curves[f"{VALIDATION}bits_per_dim"], best=True)],
                "bits/dim by step",
                span=(1.0, 3.0),
            ),
            "Bits per pixel by training step. Gray: training batches, with dropout. Orange: validation, averaged "
            f"weights, best at step {results.result.best_step:,}.",
        ),
    )


def _samples_section(results: Results) -> str:
    return html.section(
        "New digits",
        "Samples of the model, each pixel drawn given those before it. These are the first sixty, none left out.",
        html.figure(_image(results, "samples", "sixty samples")),
    )


def _neighbours_section(results: Results) -> str:
    return html.section(
        "Nearest images",
        "Ten more samples, and below each the nearest (in squared difference) of the 1,500 images that are not test "
        "images.",
        html.figure(
            html.rows(
                {
                    "sample": _image(results, "drawn", "ten samples"),
                    "nearest image": _image(results, "nearest", "their nearest images"),
                }
            )
        ),
    )


def _classes_section(results: Results) -> str:
    hidden = results.preset.settings.training.label_dropout
    return html.section(
        "Samples by class",
        "Samples of the same model given a label. In training, "
        f"{hidden:.0%} of the labels were hidden at random, so that one model draws with labels and without.",
        html.figure(
            html.column_heads([str(c) for c in range(CLASSES)])
            + _image(results, "classes", "five samples of every digit")
        ),
    )


def _completions_section(results: Results) -> str:
    return html.section(
        "Completions",
        "Test images of which only the upper half is given. Its pixels come first in the generation order, so the "
        "lower halves are exact draws from the model's distribution given the upper ones.",
        html.figure(
            html.rows(
                {
                    "given": _image(results, "given", "upper halves of ten test images"),
                    "completions": _image(results, "completions", "four completions of each"),
                    "original": _image(results, "truth", "the whole test images"),
                }
            ),
            "Orange: drawn by the model.",
        ),
    )


def _bits_section(results: Results) -> str:
    mean = _image(results, "bits_mean", "mean bits of each pixel")
    return html.section(
        "Bits of each pixel",
        "The bits of each pixel given those before it, for ten test images and on average over all of them.",
        html.figure(
            html.rows(
                {
                    "image": _image(results, "bits_of", "ten test images"),
                    "its bits": _image(results, "bits", "bits of each of their pixels"),
                    "mean": f'<div style="max-width:11rem">{mean}</div>',
                    "": html.colour_scale(HEAT, "0 bits", f"{HOTTEST:.0f} bits or more"),
                }
            )
        ),
    )


def _again_section(results: Results) -> str:
    settings, result = results.preset.settings, results.result
    model = settings.model
    commands = "\n".join(
        [
            command("evaluate", settings.out),
            command("sample", settings.out, "--label", 7),
            "axial train digits --model.dim 96",
        ]
    )
    return html.section(
        "Further commands",
        "The run is in <code>run/</code>, beside this page.",
        f"<pre><code>{commands}</code></pre>",
        html.facts(
            {
                "model": f"width {model.dim}, {model.heads} heads, "
                f"{model.layers_of_outer_decoders[0]} outer and {model.inner_layers} inner layers",
                "training": f"{result.step:,} steps of {settings.training.batch_size} images, {result.seconds:.0f} s",
                "data": "UCI Optical Recognition of Handwritten Digits, test part, CC BY 4.0, embedded in the package",
                "test images": f"SHA-256 <code>{results.fingerprint}</code>",
            }
        ),
    )
