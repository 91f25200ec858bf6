"""axial decompress: the files of an archive, with equal values."""

from axial_transformers.cli.commands import Decompress
from axial_transformers.cli.console import command, say
from axial_transformers.compression import decompress_files
from axial_transformers.compression.restoring import require_target
from axial_transformers.progress import bar
from axial_transformers.training.trained_model import open_model


def main(options: Decompress) -> int:
    """Run the command; return 1 if something is lost."""
    name, archive, output = options.words
    if name is None and archive.is_dir():
        example = command("decompress", archive, output, "restored/")
        raise ValueError(f"{archive} is a folder, and no archive: name archive and output, as in {example}")
    require_target(output)
    lost = decompress_files(
        None if name is None else open_model(name, options.weights, "cpu").model, archive, output,
        salvage=options.salvage, progress=bar("chunks"),
    )  # fmt: skip
    print(output)
    if not lost:
        return 0
    say(f"lost, {len(lost)}: {', '.join(lost)}")
    return 1
