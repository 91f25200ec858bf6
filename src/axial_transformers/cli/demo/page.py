"""What the demo's page tells."""

import json
from dataclasses import dataclass
from pathlib import Path

from axial_transformers.cli.colours import HEAT
from axial_transformers.cli.demo import html
from axial_transformers.cli.demo.figures import CLASSES, HOTTEST, Pictures
from axial_transformers.cli.settings import Preset
from axial_transformers.costs.operations import parameters
from axial_transformers.likelihood.evaluation import Evaluation
from axial_transformers.training import TrainResult

THIS_MODEL = "this model"


@dataclass(frozen=True, kw_only=True)
class Story:
    """All that was computed."""

    preset: Preset
    result: TrainResult
    score: Evaluation
    """Of the test images, labels not given."""
    score_with_labels: Evaluation
    baselines: dict[str, float]
    """Bits/dim of the same images, by what describes them."""
    fingerprint: str
    """Of the test images."""
    pictures: Pictures


def page(story: Story) -> str:
    """The page, as HTML."""
    sections = [_title, _likelihood, _training, _samples, _neighbours, _classes, _completions, _bits, _again]
    return html.document("Axial Transformer: handwritten digits", [part(story) for part in sections])


def _image(story: Story, name: str, description: str) -> str:
    return html.image(story.pictures[name], description)


def _title(story: Story) -> str:
    size = sum(parameters(story.preset.settings.model).values())
    return (
        f"<h1>An Axial Transformer that learned to write digits in {story.result.seconds:.0f} seconds</h1>\n"
        f'<p class="soft">{size:,} parameters, trained from nothing on 1,350 images of 8 × 8 pixels with 17 gray '
        "values. Everything on this page was computed on this machine by <code>axial demo</code>.</p>"
    )


def _likelihood(story: Story) -> str:
    score, told = story.score, story.score_with_labels
    return html.section(
        "How well it knows them",
        "The model gives every image a probability, pixel by pixel. The negative logarithm of that is the number of "
        "bits in which the image can be stored without loss: fewer is better.",
        html.bars({THIS_MODEL: score.bits_per_dim, **story.baselines}, best=THIS_MODEL),
        html.figure(
            "",
            f"Bits per pixel (bits/dim) of the last {score.images} images, which it was never trained on. This model: "
            f"{score.bits_per_dim:.3f} ± {score.standard_error:.3f} (standard error over images), averaged weights "
            f"(EMA), labels not given; told the labels it needs {told.bits_per_dim:.3f}. Independent pixels: each its "
            "own histogram over the other 1,500 images, counts plus one. xz: the same images as one stream of bytes.",
        ),
    )


def _training(story: Story) -> str:
    metrics = story.preset.settings.out / "metrics.jsonl"
    return html.section(
        "How it learned",
        "150 more images, the validation part, say which weights are kept.",
        html.figure(
            html.curves(_curve(metrics, "bits_per_dim"), _curve(metrics, "validation_bits_per_dim"), low=1.0, high=3.0),
            "Bits per pixel by training step. Gray: the training batches, with dropout. Orange: validation, averaged "
            f"weights, best at step {story.result.best_step:,}.",
        ),
    )


def _curve(metrics: Path, name: str) -> list[tuple[float, float]]:
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(line["step"], line[name]) for line in lines if name in line]


def _samples(story: Story) -> str:
    return html.section(
        "New digits",
        "Drawn from the model, each pixel given those before it. Not chosen: these are the first sixty.",
        html.figure(_image(story, "samples", "sixty samples")),
    )


def _neighbours(story: Story) -> str:
    return html.section(
        "Are they new?",
        "Ten more samples, and below each the image most like it among the 1,500 that are not test images.",
        html.figure(
            html.rows(
                {
                    "sample": _image(story, "drawn", "ten samples"),
                    "nearest image": _image(story, "nearest", "their nearest images"),
                }
            )
        ),
    )


def _classes(story: Story) -> str:
    hidden = story.preset.settings.training.label_dropout
    return html.section(
        "Digits on demand",
        "The same model, told what to write. While it trained, "
        f"{hidden:.0%} of the labels were hidden at random, so that one model does both.",
        html.figure(
            html.column_heads([str(c) for c in range(CLASSES)])
            + _image(story, "classes", "five samples of every digit")
        ),
    )


def _completions(story: Story) -> str:
    return html.section(
        "Finishing what was begun",
        "Test images of which it sees the upper half only. Those pixels come first in its order, so the lower halves "
        "are exact draws from its distribution given the upper ones.",
        html.figure(
            html.rows(
                {
                    "it sees": _image(story, "given", "upper halves of ten test images"),
                    "it draws": _image(story, "completions", "four completions of each"),
                    "it was": _image(story, "truth", "the whole test images"),
                }
            ),
            "Orange: drawn by the model.",
        ),
    )


def _bits(story: Story) -> str:
    mean = _image(story, "bits_mean", "mean bits of each pixel")
    return html.section(
        "Where the bits go",
        "What each pixel costs, given those before it, for ten test images and on average over all of them.",
        html.figure(
            html.rows(
                {
                    "image": _image(story, "bits_of", "ten test images"),
                    "its bits": _image(story, "bits", "bits of each of their pixels"),
                    "mean": f'<div style="max-width:11rem">{mean}</div>',
                    "": html.colour_scale(HEAT, "0 bits", f"{HOTTEST:.0f} bits and more"),
                }
            )
        ),
    )


def _again(story: Story) -> str:
    settings, result = story.preset.settings, story.result
    model = settings.model
    commands = "\n".join(
        [
            f"axial evaluate {settings.out}",
            f"axial sample {settings.out} --label 7",
            "axial train digits --model.dim 96",
        ]
    )
    return html.section(
        "Go on",
        "The run is in <code>run/</code>, beside this page.",
        f"<pre><code>{commands}</code></pre>",
        html.facts(
            {
                "model": f"width {model.dim}, {model.heads} heads, "
                f"{model.layers_of_outer_decoders[0]} outer and {model.inner_layers} inner layers",
                "training": f"{result.step:,} steps of {settings.training.batch_size} images, {result.seconds:.0f} s",
                "data": "UCI Optical Recognition of Handwritten Digits, test part, CC BY 4.0, embedded in the package",
                "test images": f"SHA-256 <code>{story.fingerprint}</code>",
            }
        ),
    )
