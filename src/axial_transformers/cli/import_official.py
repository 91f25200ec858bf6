"""axial import-official: the authors' TensorFlow checkpoints."""

from axial_transformers.cli.commands import ImportOfficial
from axial_transformers.importers.official import import_official_to


def main(options: ImportOfficial) -> None:
    """Run the command."""
    import_official_to(**vars(options))
    print(options.output)
