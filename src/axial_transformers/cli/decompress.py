"""axial decompress: the images of an archive, bit for bit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from axial_transformers.cli.console import ERRORS
from axial_transformers.cli.parsing import Positional, parse
from axial_transformers.cli.runs import Weights, open_model
from axial_transformers.compression import decompress_files
from axial_transformers.progress import bar


@dataclass(frozen=True, kw_only=True)
class Decompress:
    """Write the files of an archive again: the same pixels, names and modes.

    axial decompress runs/fashion_mnist test.axl test.npz
    axial decompress runs/photos photos.axl photos_again
    """

    model: Positional[str]
    """The model that the archive was compressed with."""
    archive: Positional[Path]
    """The .axl file."""
    output: Positional[Path]
    """A new folder for pictures, or a new .npz or .npy file for an array."""
    salvage: bool = False
    """Write what damaged or missing chunks leave over, and say what is lost, instead of failing."""
    micro_batch: int = 256
    """Images that the network sees at once; the result does not depend on it."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Decompress, argv, "decompress")
    model = open_model(options.model, options.weights, options.device).model
    lost = decompress_files(
        model, options.archive, options.output, salvage=options.salvage, micro_batch=options.micro_batch,
        progress=bar("chunks"),
    )  # fmt: skip
    if lost:
        ERRORS.print(f"warning: lost, {len(lost)}: {', '.join(lost)}", highlight=False)
    print(options.output)
