"""axial demo: a model of the bundled digits."""

from dataclasses import replace

import numpy as np
import torch

from axial_transformers.cli.commands import Demo
from axial_transformers.cli.console import INTERRUPTED, print_rows
from axial_transformers.data import Examples, load
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Look, html, image_grid
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.other_codecs import xz_bytes
from axial_transformers.progress import Bar, bar
from axial_transformers.recipes import NAMED
from axial_transformers.recipes.prepare import prepare
from axial_transformers.training import read_run
from axial_transformers.training.run_page import write_page

MAX_MINUTES = 2.6
CLASSES, VALUES = 10, 17
KNOWN_ROWS = 4


def main(options: Demo) -> int:
    """Run the command."""
    recipe, folder = NAMED["digits"](), options.out / "run"
    steps = recipe.training.steps if options.steps is None else options.steps
    run = replace(recipe, out=folder, training=replace(recipe.training, minutes=MAX_MINUTES, steps=steps))
    print(f"training on the digits: {steps:,} steps, at most {MAX_MINUTES} minutes", flush=True)
    prepared = prepare(run, read_run(folder), bar)
    result = prepared.train(Bar("training"), command=("demo", "--out", str(options.out), "--steps", str(steps)))
    if result.ending == "interrupted":
        return INTERRUPTED
    model, test = AxialTransformer.from_pretrained(folder), load("digits", split="test")
    values = np.asarray(test.values)
    score = evaluate(model, torch.from_numpy(values))
    rows = {
        "this model": f"{score.bits_per_dim:.3f} ± {score.standard_error:.3f}",
        "xz": f"{8 * xz_bytes([values], values.nbytes) / values.size:.3f}",
    }
    text = (
        "The model gives each image an exact probability. Its negative logarithm is the number of bits in which the "
        f"image can be stored without loss. These are bits/dim of the last {score.images} images, which are not used "
        f"in training (SHA-256 `{test.fingerprint}`), ± the standard error; fewer is better. xz: the same images as "
        "one stream of bytes."
    )
    sections = [html.Section(title="Likelihood", text=text, facts=rows), *_image_sections(model, test)]
    page = write_page(folder, target=options.out / "index.html", sections=sections)
    print(f"{result.step:,} of {steps:,} steps; bits/dim of {score.images} test images:")
    print_rows(rows)
    print(page.resolve().as_uri())
    return 0


def _image_sections(model: AxialTransformer, test: Examples) -> list[html.Section]:
    of_classes = sample(model, label=torch.arange(CLASSES).repeat(5), seed=0).numpy()
    assert test.labels is not None
    truth = test.values[np.unique(test.labels, return_index=True)[1][:5]]
    known = np.broadcast_to((np.arange(truth.shape[1]) < KNOWN_ROWS)[:, None, None], truth.shape[1:])
    filled = complete(model, torch.from_numpy(truth), rows=KNOWN_ROWS, count=4, seed=0).numpy()
    return [
        html.Section(
            title="Samples by class",
            text="Samples of the model, given a label; none is left out.",
            images=[html.figure(image_grid(of_classes, columns=CLASSES, look=Look(VALUES)))],
        ),
        html.Section(
            title="Completions",
            text="Test images of which only the upper half is given (inpainting). The lower halves are exact samples "
            "from the model's distribution given the upper ones.",
            images=[html.figure(completion_sheet(truth, known, filled, Look(VALUES)))],
        ),
    ]
