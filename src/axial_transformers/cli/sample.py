"""axial sample: new examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.cli.console import show_log
from axial_transformers.cli.parsing import Flag, Positional, either, parse
from axial_transformers.cli.runs import TrainedModel, Weights, open_model
from axial_transformers.data import MOVIES, save_arrays, save_clips, save_grid, save_images
from axial_transformers.decoding.sampling import sample
from axial_transformers.progress import bar


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Draw new examples from a model. What --output ends in decides what is written.

    axial sample runs/digits
    axial sample runs/digits --label 3 --temperature 0.9 --output threes.png
    axial sample runs/photos --count 500 --output samples.npz
    axial sample runs/clips --known clips_test.npz --output clips.mp4
    """

    model: Positional[str]
    """Folder of a run or an exported model, or a hub id."""
    output: Path = Path("samples.png")
    """NAME.png: one grid, of clips one strip of frames a row. NAME.npz: an array. A folder: one PNG file a sample. Of
    clips also NAME.mp4 and NAME.gif: a grid that plays; NAME.mkv: lossless, one clip after the other."""
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
    fps: int = 8
    """Frames a second of a movie."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    compile: Flag = False
    """Compile the decoding, however little there is to do."""
    no_compile: Flag = False
    """Do not compile it, however much there is. With neither flag: where it pays."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Sample, argv, "sample")
    if options.count < 1:
        raise ValueError(f"--count must be at least 1, not {options.count}")
    compiled = either(options.compile, options.no_compile, "compile")
    trained = open_model(options.model, options.weights, options.device)
    _check_output(trained, options.output)
    known = _known(trained, options)
    show_log()
    values = sample(
        trained.model,
        options.count,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        generator=torch.Generator().manual_seed(options.seed),
        label=None if options.label is None else torch.full((options.count,), options.label),
        known=known,
        compile=compiled,
        progress=bar(f"drawing {options.count} samples"),
    )
    _save(values.cpu().numpy(), trained, options)
    print(options.output)


def _check_output(trained: TrainedModel, output: Path) -> None:
    """Before anything is drawn."""
    if output.suffix in MOVIES and len(trained.model.config.shape) != 3:
        raise ValueError(f"--output {output}: this model is not of clips (frames, height, width)")
    if output.suffix not in ("", ".png", ".npz", *MOVIES):
        raise ValueError(f"--output {output} is neither NAME.png, NAME.npz, NAME.mp4, NAME.gif, NAME.mkv nor a folder")


def _save(values: NDArray[np.integer], trained: TrainedModel, options: Sample) -> None:
    num_values, uint16, output = trained.model.config.num_values, trained.uint16, options.output
    if output.suffix == ".npz":
        save_arrays(output, values, uint16=uint16)
    elif output.suffix == ".png":
        save_grid(output, values, None, options.scale, num_values, uint16)
    elif output.suffix in MOVIES:
        save_clips(output, values, None, options.scale, num_values, uint16, options.fps)
    else:
        save_images(output, values, num_values=num_values, uint16=uint16)


def _known(trained: TrainedModel, options: Sample) -> torch.Tensor | None:
    if options.known is None:
        return None
    examples, described = trained.examples(options.known, "all")
    if len(examples) < options.count:
        raise ValueError(f"{described} has {len(examples)} examples, fewer than --count {options.count}")
    return torch.from_numpy(examples.values[: options.count])
