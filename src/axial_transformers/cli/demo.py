"""axial demo: a model of the bundled digits."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from axial_transformers.cli.console import INTERRUPTED, print_rows
from axial_transformers.progress import Bar, bar
from axial_transformers.recipes import NAMED

if TYPE_CHECKING:  # options are read without torch
    from axial_transformers.data import Examples
    from axial_transformers.models import AxialTransformer
    from axial_transformers.pictures.html import Section

MAX_MINUTES = 2.6
CLASSES = 10
VALUES = 17
KNOWN_ROWS = 4
LIKELIHOOD = (
    "The model gives each image an exact probability. Its negative logarithm is the number of bits in which the "
    "image can be stored without loss. These are bits/dim of the last {images} images, which are not used in training "
    "(SHA-256 `{fingerprint}`), ± the standard error; fewer is better. xz: the same images as one stream of bytes."
)
SAMPLES = "Samples of the model, given a label; none is left out."
COMPLETIONS = (
    "Test images of which only the upper half is given (inpainting). The lower halves are exact samples from the "
    "model's distribution given the upper ones."
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small model on handwritten digits in minutes, and show the results on one page.

    A second call finds the trained model in OUT/run and only writes the page again.

        axial demo
    """

    out: Path = Path("demo")
    """Folder for the page and the run."""
    steps: int | None = None
    """Training steps. None: the recipe's."""


def main(options: Demo) -> int:
    """Run the command."""
    import numpy as np
    import torch

    from axial_transformers.data import load
    from axial_transformers.likelihood.evaluation import evaluate
    from axial_transformers.models import AxialTransformer
    from axial_transformers.pictures.html import Section
    from axial_transformers.pictures.other_codecs import xz_bytes
    from axial_transformers.recipes.prepare import prepare
    from axial_transformers.training import read_run
    from axial_transformers.training.run_page import write_page

    recipe = NAMED["digits"]()
    folder = options.out / "run"
    steps = recipe.training.steps if options.steps is None else options.steps
    run = replace(recipe, out=folder, training=replace(recipe.training, minutes=MAX_MINUTES, steps=steps))
    print(f"training on the digits: {steps:,} steps, at most {MAX_MINUTES} minutes", flush=True)
    prepared = prepare(run, read_run(folder), bar)
    result = prepared.train(Bar("training: steps"), command=("demo", "--out", str(options.out), "--steps", str(steps)))
    if result.ending == "interrupted":
        return INTERRUPTED
    model = AxialTransformer.from_pretrained(folder)
    test = load("digits", split="test")
    values = np.asarray(test.values)
    score = evaluate(model, torch.from_numpy(values))
    rows = {
        "this model": f"{score.bits_per_dim:.3f} ± {score.standard_error:.3f}",
        "xz": f"{8 * xz_bytes([values], values.nbytes) / values.size:.3f}",
    }
    text = LIKELIHOOD.format(images=score.images, fingerprint=test.fingerprint)
    sections = [Section(title="Likelihood", text=text, facts=rows), *_image_sections(model, test)]
    page = write_page(folder, target=options.out / "index.html", sections=sections)
    print(f"{result.step:,} of {steps:,} steps; bits/dim of {score.images} test images:")
    print_rows(rows)
    print(page.resolve().as_uri())
    return 0


def _image_sections(model: "AxialTransformer", test: "Examples") -> "list[Section]":
    import numpy as np
    import torch

    from axial_transformers.decoding.sampling import complete, sample
    from axial_transformers.pictures import Look, image_grid
    from axial_transformers.pictures.completions import completion_sheet
    from axial_transformers.pictures.html import Section, figure

    look = Look(VALUES)
    of_classes = sample(model, label=torch.arange(CLASSES).repeat(5), seed=0).numpy()
    assert test.labels is not None
    truth = test.values[np.unique(test.labels, return_index=True)[1][:5]]
    known = np.zeros(truth.shape[1:], bool)
    known[:KNOWN_ROWS] = True
    filled = complete(model, torch.from_numpy(truth), rows=KNOWN_ROWS, count=4, seed=0).numpy()
    samples = figure(image_grid(of_classes, columns=CLASSES, look=look))
    completions = figure(completion_sheet(truth, known, filled, look))
    return [
        Section(title="Samples by class", text=SAMPLES, images=[samples]),
        Section(title="Completions", text=COMPLETIONS, images=[completions]),
    ]
