"""axial sample: new examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from axial_transformers.cli.console import rank_zero_output
from axial_transformers.cli.options import Positive, Sampling, processes_on
from axial_transformers.progress import bar
from axial_transformers.wording import counted

if TYPE_CHECKING:  # options are read without torch
    import torch

    from axial_transformers.training.trained_model import TrainedModel


@dataclass(frozen=True, kw_only=True)
class Sample(Sampling):
    """Sample new examples. The suffix of --out sets the format.

    For example:

        axial sample runs/digits --label 3 --temperature 0.9 --out threes.png
        axial sample runs/clips --known clips_test.npz --out clips.mp4
    """

    out: Path = Path("samples.png")
    """NAME.png: one grid. A folder: one PNG file per sample. NAME.npz, .npy, .nii.gz or .tif: an array. Of clips also
    NAME.mp4 or .gif: a grid that plays. Only images and movies are replaced."""
    count: Positive = 16
    """Number of samples."""
    top_k: int | None = None
    """Sample each value from the k most likely ones."""
    top_p: float | None = None
    """Sample each value from the fewest most likely ones that together reach this probability."""
    known: str | Path | None = None
    """Source of the known channels, such as a clip's first frames, for models that need them."""


def main(options: Sample) -> None:
    """Run the command."""
    from axial_transformers.decoding.sampling import require_room, sample, sample_in_processes
    from axial_transformers.pictures.saving import require_no_input, require_output, save_examples

    with processes_on(options.device, options.precision) as processes:
        with rank_zero_output():
            trained = options.opened(processes.device)
            config = trained.model.config
            scan = options.scan(options.out, trained)
            require_no_input(options.out, [*trained.inputs, options.known])
            require_output(options.out, clips=len(config.shape) == 3, folder=True, scan=scan)
            label = trained.label(options.label)
            look = options.look(trained)
            require_room(config, options.count)
            known = _known(trained, options)

        def sample_part(numbers: slice) -> "torch.Tensor":
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
                progress=bar(f"sampling {counted(options.count, trained.kind)}: rows"),
            )

        values = sample_in_processes(config, options.count, sample_part, processes.count, processes.fill)
    if not processes.rank_zero:
        return
    save_examples(options.out, values.numpy(), look, options.scale, scan, config.floats)
    print(options.out)


def _known(trained: "TrainedModel", options: Sample) -> "torch.Tensor | None":
    import torch

    if options.known is None:
        return None
    if not trained.model.config.known_channels:
        raise ValueError(f"--known {options.known}: {options.model} has no known channels, it samples all of them")
    examples, described = trained.examples(options.known, "all")
    if len(examples) < options.count:
        raise ValueError(f"{described} has {len(examples)} examples, fewer than --count {options.count}")
    return torch.from_numpy(examples.values[: options.count])
