"""The page of the demo: its sections and their text."""

from collections import defaultdict
from dataclasses import dataclass

from axial_transformers.cli.demo.figures import CLASSES, HOTTEST, Pictures
from axial_transformers.cli.parsing import command
from axial_transformers.cli.settings import Preset
from axial_transformers.likelihood.evaluation import Evaluation
from axial_transformers.pictures import html
from axial_transformers.pictures.charts import Line, line_chart
from axial_transformers.pictures.display import HEAT
from axial_transformers.planning.operations import parameters
from axial_transformers.training import TrainResult
from axial_transformers.training.curves import Curve, read_curves
from axial_transformers.training.metrics import VALIDATION

THIS_MODEL = "this model"


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


def page(results: Results) -> str:
    """The page, as HTML."""
    sections = [_title, _likelihood, _training, _samples, _neighbours, _classes, _completions, _bits, _again]
    return html.document("Axial Transformer: handwritten digits", [part(results) for part in sections])


def _image(results: Results, name: str, description: str) -> str:
    return html.image(results.pictures[name], description)


def _title(results: Results) -> str:
    size = sum(parameters(results.preset.settings.model).values())
    return (
        f"<h1>An Axial Transformer of handwritten digits, trained in {results.result.seconds:.0f} seconds</h1>\n"
        f'<p class="soft">{size:,} parameters, trained from scratch on 1,350 images of 8 × 8 pixels with 17 gray '
        "values. Everything on this page was computed on this machine by <code>axial demo</code>.</p>"
    )


def _likelihood(results: Results) -> str:
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


def _training(results: Results) -> str:
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


def _samples(results: Results) -> str:
    return html.section(
        "New digits",
        "Samples of the model, each pixel drawn given those before it. These are the first sixty, none left out.",
        html.figure(_image(results, "samples", "sixty samples")),
    )


def _neighbours(results: Results) -> str:
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


def _classes(results: Results) -> str:
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


def _completions(results: Results) -> str:
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


def _bits(results: Results) -> str:
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


def _again(results: Results) -> str:
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
                "data": "UCI Optical Recognition of Handwritten Digits, test part, CC BY 4.0, bundled with the package",
                "test images": f"SHA-256 <code>{results.fingerprint}</code>",
            }
        ),
    )
