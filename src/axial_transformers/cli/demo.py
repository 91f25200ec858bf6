"""axial demo: a model of the bundled digits."""

from dataclasses import replace
from functools import partial
from math import ceil

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from axial_transformers.cli import INTERRUPTED
from axial_transformers.cli.commands import Demo
from axial_transformers.cli.console import working
from axial_transformers.cli.parsing import command
from axial_transformers.cli.train import Request
from axial_transformers.cli.training import run
from axial_transformers.data import Examples, load
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.evaluation import Evaluation, evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Look, html, image_grid
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.other_codecs import xz_bytes
from axial_transformers.recipes import NAMED
from axial_transformers.training import read_run
from axial_transformers.training.run_page import write_page

MAX_MINUTES = 2.6
CLASSES, VALUES = 10, 17
KNOWN_ROWS = 4
THIS_MODEL = "this model"


def main(options: Demo) -> int:
    """Run the command."""
    request = _request(options)
    training, folder = request.run.training, request.run.out
    print(f"training on the digits: {training.steps:,} steps, at most {MAX_MINUTES} minutes", flush=True)
    result = run(*request, ("demo", "--out", str(options.out), "--steps", str(training.steps)))
    if result.ending == "interrupted":
        print("stopped; the same command continues from there")
        return INTERRUPTED
    model, test = AxialTransformer.from_pretrained(folder), load("digits", split="test")
    everything = load("digits", split="all")
    others = everything[: len(everything) - len(test)]
    xz = 8 * xz_bytes([test.values], test.values.nbytes) / test.values.size
    codes = {"independent pixels": _independent_bits(others, test), "xz": xz}
    with working("sampling, and writing the page"):
        score = evaluate(model, torch.from_numpy(test.values))
        sections = [_likelihood(model, test, score, codes), *_image_sections(model, others, test)]
        page = write_page(folder, target=options.out / "index.html", sections=sections)
    error, images = score.standard_error, f"{score.images} test images"
    print(f"{THIS_MODEL:<20}{score.bits_per_dim:.3f} ± {error:.3f} bits/dim on {images}")
    for name, bits in codes.items():
        print(f"{name:<20}{bits:.3f} bits/dim on the same images")
    print(page.resolve().as_uri())
    if result.step < training.steps:
        minutes = ceil(result.seconds * training.steps / result.step / 60)
        more = command("train", folder, "--training.minutes", minutes)
        print(f"{result.step:,} of {training.steps:,} steps: samples improve with more; continue with {more}")
    return 0


def _request(options: Demo) -> Request:
    recipe, out = NAMED["digits"](), options.out / "run"
    steps = recipe.training.steps if options.steps is None else options.steps
    training = replace(recipe.training, minutes=MAX_MINUTES, steps=steps)
    return Request(replace(recipe, out=out, training=training), read_run(out))


def _likelihood(model: AxialTransformer, test: Examples, score: Evaluation, codes: dict[str, float]) -> html.Section:
    with_labels = evaluate(model, torch.from_numpy(test.values), torch.from_numpy(test.labels))
    own = f"{score.bits_per_dim:.3f} ± {score.standard_error:.3f} (standard error over images)"
    rows = {THIS_MODEL: own, "with labels": f"{with_labels.bits_per_dim:.3f}"}
    rows |= {name: f"{bits:.3f}" for name, bits in codes.items()}
    return html.Section(
        title="Likelihood",
        text="The model gives each image an exact probability. Its negative logarithm is the number of bits in which "
        f"the image can be stored without loss. These are bits/dim of the last {score.images} images, which are not "
        "used in training; fewer is better. Independent pixels: each has its own histogram over the other images, "
        f"counts plus one. xz: the same images as one stream of bytes. Test images: SHA-256 `{test.fingerprint}`.",
        facts=rows,
    )


def _independent_bits(train: Examples, test: Examples) -> float:
    """Return bits/dim under independent pixels, by training histograms."""
    values = np.arange(train.num_values)
    counts = 1 + (train.values[..., None] == values).sum(axis=0)
    bits = -np.log2(counts / (len(train) + train.num_values))
    return float(np.where(test.values[..., None] == values, bits, 0).sum() / test.values.size)


def _image_sections(model: AxialTransformer, others: Examples, test: Examples) -> list[html.Section]:
    grid = partial(image_grid, columns=CLASSES, look=Look(VALUES))
    of_classes = sample(model, label=torch.arange(CLASSES).repeat(5), seed=0).numpy()
    samples = sample(model, CLASSES, seed=1).numpy()
    return [
        _image_section(
            "Nearest images",
            "Ten samples, none left out. Below each is the nearest (in squared difference) of the images that are not "
            "test images.",
            grid(np.concatenate([samples, _nearest(samples, others)])),
        ),
        _image_section(
            "Samples by class",
            "Samples of the same model, given a label. In training, a share of the labels was hidden at random. So one "
            "model samples with labels and without.",
            grid(of_classes),
        ),
        _image_section(
            "Completions",
            "Test images of which only the upper half is given (inpainting). These pixels come first in the generation "
            "order. So the lower halves are exact samples from the model's distribution given the upper ones.",
            _completions(model, _first_of_five_classes(test)),
        ),
    ]


def _image_section(title: str, text: str, picture: Image.Image) -> html.Section:
    return html.Section(title=title, text=text, images=[html.figure(picture)])


def _first_of_five_classes(test: Examples) -> Tensor:
    assert test.labels is not None
    _, first = np.unique(test.labels, return_index=True)
    return torch.from_numpy(test.values[first[:5]])


def _nearest(samples: np.ndarray, others: Examples) -> np.ndarray:
    difference = samples[:, None].astype(np.int64) - others.values.astype(np.int64)
    return np.asarray(others.values[(difference**2).sum(axis=(2, 3, 4)).argmin(axis=1)])


def _completions(model: AxialTransformer, truth: Tensor) -> Image.Image:
    filled = complete(model, truth, rows=KNOWN_ROWS, count=4, seed=0).numpy()
    known = np.zeros(truth.shape[1:], bool)
    known[:KNOWN_ROWS] = True
    return completion_sheet(truth.numpy(), known, filled, Look(VALUES))
