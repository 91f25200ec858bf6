"""axial sample: new examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from axial_transformers.cli.console import ERRORS
from axial_transformers.cli.parsing import Positional, parse
from axial_transformers.cli.runs import TrainedModel, Weights, open_model
from axial_transformers.data import save_arrays, save_grid, save_images
from axial_transformers.sampling import sample


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Draw new examples from a model. What --output ends in decides what is written.

    axial sample runs/digits
    axial sample runs/digits --label 3 --temperature 0.9 --output threes.png
    axial sample runs/photos --count 500 --output samples.npz
    """

    model: Positional[str]
    """Folder of a run or an exported model, or a hub id."""
    output: Path = Path("samples.png")
    """NAME.png: one grid. NAME.npz: an array. A folder: one PNG file a sample."""
    count: int = 16
    """How many."""
    seed: int = 0
    """Equal seeds draw equal samples."""
    temperature: float = 1.0
    """1 samples the model, less is more cautious, 0 takes the most likely value of every site."""
    top_k: int | None = None
    """Draw each value from the k most likely ones only."""
    top_p: float | None = None
    """Draw each value from the most likely ones that together reach this probability."""
    label: int | None = None
    """Class of all samples, for class-conditional models. None: unlabelled."""
    known: str | None = None
    """Source of the given channels, such as a clip's first frames, for models that need them."""
    scale: int = 2
    """Enlargement of a grid."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Sample, argv, "sample")
    if options.count < 1:
        raise ValueError(f"--count must be at least 1, not {options.count}")
    trained = open_model(options.model, options.weights, options.device)
    known = _known(trained, options)
    with ERRORS.status(f"drawing {options.count} samples"):
        values = sample(
            trained.model,
            options.count,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            generator=torch.Generator().manual_seed(options.seed),
            label=None if options.label is None else torch.full((options.count,), options.label),
            known=known,
        )
    config = trained.model.config
    array = values.cpu().numpy()
    if options.output.suffix == ".npz":
        save_arrays(options.output, array, uint16=trained.uint16)
    elif options.output.suffix == ".png":
        save_grid(options.output, array, scale=options.scale, num_values=config.num_values, uint16=trained.uint16)
    elif not options.output.suffix:
        save_images(options.output, array, num_values=config.num_values, uint16=trained.uint16)
    else:
        raise ValueError(f"--output {options.output} is neither NAME.png, NAME.npz nor a folder")
    print(options.output)


def _known(trained: TrainedModel, options: Sample) -> torch.Tensor | None:
    if options.known is None:
        return None
    examples, described = trained.examples(options.known, "all")
    if len(examples) < options.count:
        raise ValueError(f"{described} has {len(examples)} examples, fewer than --count {options.count}")
    return torch.from_numpy(examples.values[: options.count])
