"""axial decompress: the images or the scan of an archive, bit for bit."""

from axial_transformers.cli.commands import Decompress
from axial_transformers.cli.console import say
from axial_transformers.compression.files.file_archive import decompress_files, require_target
from axial_transformers.progress import bar
from axial_transformers.training.trained_model import open_model


def main(options: Decompress) -> None:
    """Run the command."""
    require_target(options.output)
    model = open_model(options.model, options.weights, "cpu").model
    lost = decompress_files(
        model, options.archive, options.output, salvage=options.salvage, only=options.only,
        most_values=options.most_values, progress=bar("chunks"),
    )  # fmt: skip
    if lost:
        say(f"warning: lost, {len(lost)}: {', '.join(lost)}")
    print(options.output)
