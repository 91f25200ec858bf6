"""axial push: a model to the Hugging Face hub."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from axial_transformers import __version__
from axial_transformers.cli.console import say
from axial_transformers.cli.parsing import parse
from axial_transformers.models import AxialTransformer
from axial_transformers.models.baselines.by_name import read_model
from axial_transformers.models.hub_card import model_card
from axial_transformers.planning.operations import engineering
from axial_transformers.storage import hub
from axial_transformers.storage.model_folders import CONFIG, WEIGHTS
from axial_transformers.training.run_description import card_of_run


@dataclass(frozen=True)
class Push:
    """Upload a model to the Hugging Face hub: config.json, model.safetensors and its model card, and nothing else.

    The card is README.md of the folder, or else is made of what the run knows: settings, bits/dim, fingerprint and
    name of the data. The hub takes it with a token: hf auth login.

    For example:
      axial push runs/digits alice/digits --dry-run
      axial push runs/digits alice/digits --private
      axial push runs/digits alice/digits --licence apache-2.0 --revision v2
      axial push runs/digits alice/digits --dry-run > runs/digits/README.md    (a card to edit, then to push)
    """

    folder: Path
    """Folder of a run or of an exported model."""
    repository: str
    """Place on the hub, OWNER/NAME; made if there is none."""
    _: KW_ONLY
    private: bool = False
    """Make a private repository, and refuse a public one that is there. Otherwise the owner's default decides."""
    revision: str | None = None
    """Branch, made if there is none. None: main."""
    licence: Annotated[str | None, Parameter(alias="--license")] = None
    """Licence of the weights as the hub calls it, such as apache-2.0. None: the card states none."""
    dry_run: bool = False
    """Upload nothing: print the card, and on stderr what would go where."""


def main(argv: Sequence[str]) -> None:
    """Runs the command."""
    options = parse(Push, argv, "push")
    hub.require_repository(options.repository)
    if not (options.folder / CONFIG).is_file():
        raise FileNotFoundError(f"{options.folder}: no model folder there (it would hold {CONFIG} and {WEIGHTS})")
    model = read_model(options.folder)
    card = _card(options, model)
    sizes = {name: (options.folder / name).stat().st_size for name in (CONFIG, WEIGHTS)}
    sizes[hub.CARD] = len(card.encode())
    files = ", ".join(f"{name} ({engineering(size)}B)" for name, size in sizes.items())
    place = f"{hub.address(options.repository)}, branch {options.revision or 'main'}"
    say(f"{'would upload' if options.dry_run else 'uploading'} {files} to {place}{', private' * options.private}")
    if options.dry_run:
        print(card, end="")
        return
    private = True if options.private else None
    print(model.push_to_hub(options.repository, private=private, revision=options.revision, card=card))


def _card(options: Push, model: AxialTransformer) -> str:
    """The folder's own card, or one made of what is known."""
    own = options.folder / hub.CARD
    if own.is_file() and own.stat().st_size:  # it is empty while the shell writes the card of a dry run into it
        if options.licence is not None:
            raise ValueError(f"{own} is the model card: state the licence {options.licence} there, or remove the file")
        return own.read_text(encoding="utf-8")
    run, today = card_of_run(options.folder), f"{datetime.now().astimezone():%Y-%m-%d}"
    return model_card(
        model,
        model.config,
        options.repository,
        licence=options.licence,
        rows={**(run.rows if run else {}), "uploaded": f"{today}, axial-transformers {__version__}"},
        result=run.result if run else None,
        settings=run.settings if run else None,
    )
