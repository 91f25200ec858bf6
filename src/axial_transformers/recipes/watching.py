"""What a run computes beside its steps: evaluations, pictures, and what is wrong with its result."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.data import Examples
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, summarise
from axial_transformers.likelihood.outliers import keep_typical, label_of, score
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Look, image_grid
from axial_transformers.pictures.heat_maps import under_examples
from axial_transformers.pictures.saving import save_picture
from axial_transformers.progress import NamedProgress, rank
from axial_transformers.training import RunConfig, RunRecord
from axial_transformers.training.fit import Evaluate
from axial_transformers.training.run_folder import require_run
from axial_transformers.training.run_page import BITS
from axial_transformers.training.trained_model import open_model

LAG = 1.03
"""Bits of the EMA weights, divided by those of the raw weights, from which on they lag behind."""
SHOWN = 8
"""Most validation images whose bits are drawn."""


def examples_to_watch(run: RunConfig, begun: RunRecord | None, examples: Examples, validation: Examples) -> Examples:
    """Return the validation examples that are evaluated during training; with labels if the model needs some."""
    watched = validation.spread(run.validate_on)[:]
    if not run.model.needs_label:
        return replace(watched, labels=None)
    names = run.model.names_of_classes(begun.facts.class_names if begun else examples.class_names)
    return replace(watched, labels=watched.classes_among(names, f"{run.source}, validation"))


def _in_memory(run: RunConfig) -> int:
    """Return how many examples are computed together."""
    return run.training.batch_size // run.training.accumulate


def make_evaluation(watched: Examples, run: RunConfig, progress: NamedProgress) -> Evaluate:
    """Return a callback of `train` that evaluates examples, with their labels if they have some."""
    label = label_of(watched)

    def evaluate(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, float]:
        scores = score(model, watched.values, _in_memory(run), progress("validation: batches"), fill, label)
        if rank() == 0:
            require_run(run.out)  # examples may take long
            keep_typical(run.out, scores)
        summary = summarise(torch.from_numpy(scores.bits))
        return {"bits_per_dim": summary.bits_per_dim, "standard_error": summary.standard_error}

    return evaluate


def make_pictures(
    watched: Examples, run: RunConfig
) -> Callable[[AxialTransformer, int], Mapping[str, NDArray[np.uint8]]] | None:
    """Return a callback of `train` that draws samples, and bits of the examples, or None.

    Samples have the classes of the examples, if these have some.
    """
    config = run.model
    look = Look.of(config, run.data.axes)
    if not run.samples:
        return None
    known = torch.from_numpy(watched.values[: run.samples]) if config.known_channels else None
    most = min(SHOWN if len(config.shape) == 2 else SHOWN // 2, _in_memory(run))
    shown_examples = watched.spread(most)[:]
    shown = torch.from_numpy(np.asarray(shown_examples.values))
    label = label_of(shown_examples)

    def draw(model: AxialTransformer, step: int) -> Mapping[str, NDArray[np.uint8]]:
        count = run.samples if known is None else len(known)
        classes = None if watched.labels is None else torch.from_numpy(np.resize(watched.labels, count))
        values = sample(model, count, seed=step, label=classes, known=known)
        grid = image_grid(values.cpu().numpy(), look=look)
        require_run(run.out)  # samples may take long
        save_picture(run.out / f"samples/step-{step:08d}.png", grid)
        bits = bits_map(model, shown, label).cpu().numpy()
        require_run(run.out)
        save_picture(run.out / BITS, under_examples(shown.numpy(), bits, look))
        return {"samples": np.asarray(grid)}

    return draw


def find_fault(run: RunConfig, watched: Examples, bits: float, progress: NamedProgress) -> str | None:
    """Return what is wrong with a result, and what to do: the EMA weights lag behind, or PNG takes fewer bits.

    Args:
        watched: the examples that were evaluated.
        bits: their bits/dim by the EMA weights.
    """
    raw = open_model(run.out, "raw", run.training.device).model
    scores = score(raw, watched.values, _in_memory(run), progress("raw weights: batches"), label=label_of(watched))
    of_raw = float(scores.bits.mean())
    if bits > LAG * of_raw:
        return (
            f"the EMA weights lag behind the raw ones, which have {of_raw:.3f} bits/dim: train for more steps, or with "
            "a smaller --training.ema-decay"
        )
    if scores.corrected is None:
        return None
    png = float((scores.bits - scores.corrected).mean())
    if bits > png:
        return (
            f"PNG takes {png:.3f} bits/dim of these images, fewer than the model: train for more steps, with other "
            "rates, or by another recipe"
        )
    return None
