"""axial sample: new examples."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter

from axial_transformers.cli.console import rank_zero_output
from axial_transformers.cli.options import (
    Appearance,
    Compile,
    Device,
    Model,
    Precision,
    Reading,
    Temperature,
    Weights,
    products_in,
)
from axial_transformers.cli.parsing import parse, require_within
from axial_transformers.decoding.sampling import require_room, sample, sample_in_processes
from axial_transformers.pictures.saving import require_output, save_examples
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.training.trained_model import TrainedModel, open_model


@dataclass(frozen=True)
class Sample:
    """Sample new examples from a model. The suffix of --output sets the format.

    For example:
      axial sample runs/digits
      axial sample runs/digits --label 3 --temperature 0.9 --output threes.png
      axial sample runs/photos --count 500 --output samples.npz
      axial sample runs/clips --known clips_test.npz --output clips.mp4
    """

    model: Model
    _: KW_ONLY
    output: Path = Path("samples.png")
    """NAME.png: one grid; clips as strips of frames, volumes as slices. A folder: one PNG file per sample. NAME.npz,
    NAME.npy: an array; for data in NIfTI, DICOM or TIFF also NAME.nii, NAME.nii.gz, NAME.tif. For clips also NAME.mp4
    and NAME.gif: a grid that plays; NAME.mkv: lossless, one clip after the other. Only images and movies are
    replaced."""
    count: int = 16
    """Number of samples."""
    seed: int = 0
    """Equal seeds give equal samples."""
    temperature: Temperature = 1.0
    top_k: int | None = None
    """Sample each value from the k most likely ones."""
    top_p: float | None = None
    """Sample each value from the fewest most likely ones that together reach this probability."""
    label: str | None = None
    """Class of all samples, for class-conditional models: its name or its number. None: no label."""
    known: str | Path | None = None
    """Source of the known channels, such as a clip's first frames, for models that need them."""
    data: Reading = Reading()
    appearance: Annotated[Appearance, Parameter(name="*")] = Appearance()
    weights: Weights = "ema"
    precision: Precision = "auto"
    device: Device = "auto"
    compile: Compile = None


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    with rank_zero_output():
        options = parse(Sample, argv, "sample")
        require_within("count", options.count, 1)
        options.appearance.check()
        require_within("seed", options.seed, -(2**63))
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.data.of(open_model(options.model, options.weights, str(processes.device)))
            config = trained.model.config
            scan, clips = options.appearance.scan(options.output, trained), len(config.shape) == 3
            require_output(options.output, clips, folder=True, source=options.known, scan=scan)
            label, look = trained.label(options.label), options.appearance.look(trained)
            require_room(config, options.count, pixels=options.appearance.pixels(options.output))
            known = _known(trained, options)

        def sample_part(numbers: slice) -> torch.Tensor:
            count = numbers.stop - numbers.start
            return sample(
                trained.model,
                count,
                temperature=options.temperature,
                top_k=options.top_k,
                top_p=options.top_p,
                seed=options.seed,
                first=numbers.start,
                label=None if label is None else label.expand(count),
                known=None if known is None else known[numbers],
                compile=options.compile,
                progress=bar(f"sampling {options.count} examples"),
            )

        values = sample_in_processes(config, options.count, sample_part, processes.count, processes.fill)
    if not processes.rank_zero:
        return
    save_examples(
        options.output, values.numpy(), look, options.appearance.scale, options.appearance.fps, scan, config.floats
    )
    print(options.output)


def _known(trained: TrainedModel, options: Sample) -> torch.Tensor | None:
    if options.known is None:
        return None
    if not trained.model.config.known_channels:
        raise ValueError(f"--known {options.known}: {options.model} has no known channels, it samples all of them")
    examples, described = trained.examples(options.known, "all")
    if len(examples) < options.count:
        raise ValueError(f"{described} has {len(examples)} examples, fewer than --count {options.count}")
    return torch.from_numpy(examples.values[: options.count])
