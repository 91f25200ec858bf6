"""axial push: a model to the Hugging Face hub."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from axial_transformers.cli.console import say


@dataclass(frozen=True)
class Push:
    """Upload a model to the Hugging Face hub: config.json, model.safetensors and its model card.

    The card is README.md of the folder, or is made from the run. The hub needs a token: hf auth login.

        axial push runs/digits alice/digits --private
        axial push runs/digits alice/digits --dry-run > runs/digits/README.md    (a card to edit, then to push)
    """

    folder: Path
    """Folder of a run or of an exported model."""
    repository: str
    """Repository on the hub, OWNER/NAME; made if missing."""
    _: KW_ONLY
    private: bool = False
    """Make a private repository, and refuse an existing public one. Otherwise the owner's default decides."""
    revision: str | None = None
    """Branch, made if missing. None: main."""
    licence: str | None = None
    """Licence of the weights as the hub calls it, such as apache-2.0. None: the card states none."""
    dry_run: bool = False
    """Upload nothing; print the card, and on stderr what would go where."""


def main(options: Push) -> None:
    """Run the command."""
    from axial_transformers.models import AxialTransformer
    from axial_transformers.training.run_page import card_of, describe_upload

    model = AxialTransformer.from_pretrained(options.folder.absolute())  # no hub id
    card = card_of(options.folder, model, options.repository, options.licence)
    sent = describe_upload(options.repository, options.revision)
    say(f"{'would upload' if options.dry_run else 'uploading'} {sent}{', private' * options.private}")
    if options.dry_run:
        print(card, end="")
        return
    print(model.push_to_hub(options.repository, private=options.private or None, revision=options.revision, card=card))
