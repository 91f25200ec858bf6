"""axial import-official: the authors' TensorFlow checkpoints."""

from axial_transformers.cli.commands import ImportOfficial
from axial_transformers.cli.console import say
from axial_transformers.importers.official import import_official_to


def main(options: ImportOfficial) -> None:
    """Run the command."""
    model = import_official_to(
        options.checkpoint,
        options.output,
        raw=options.raw,
        heads=options.heads,
        channels=options.channels,
        verify=options.verify,
    )
    size = sum(parameter.numel() for parameter in model.parameters())
    kind = "raw" if options.raw else "EMA"
    say(f"{kind} weights, {size:,} parameters; {options.heads} heads (not recorded in a checkpoint: --heads)")
    print(options.output)
