"""axial push: a model to the Hugging Face hub."""

from axial_transformers.cli.commands import Push
from axial_transformers.cli.console import say
from axial_transformers.models import AxialTransformer
from axial_transformers.training.run_page import card_of, describe_upload


def main(options: Push) -> None:
    """Run the command."""
    model = AxialTransformer.from_pretrained(options.folder.absolute())  # no hub id
    card = card_of(options.folder, model, options.repository, options.licence)
    sent = describe_upload(options.repository, options.revision)
    say(f"{'would upload' if options.dry_run else 'uploading'} {sent}{', private' * options.private}")
    if options.dry_run:
        print(card, end="")
        return
    print(model.push_to_hub(options.repository, private=options.private or None, revision=options.revision, card=card))
