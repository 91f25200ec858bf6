"""The models of the package, which an archive names in place of holding them.

A model that an archive may name never changes and never leaves the package: a retrained one has a new name. In its
folder, the file `IDENTITY` has two lines: its SHA-256, and the configuration that the SHA-256 begins with.
"""

from importlib.metadata import version

from axial_transformers.compression.container import NeededModel, WrongModelError
from axial_transformers.compression.embedded_model import config_text, fingerprint
from axial_transformers.models import AxialTransformer
from axial_transformers.storage.model_folders import SHIPPED, shipped_names

IDENTITY = "archive.txt"


def identity(model: AxialTransformer) -> str:
    """Return what `IDENTITY` holds for a model."""
    return f"{fingerprint(model).hex()}\n{config_text(model).decode()}\n"


def stated_fingerprint(name: str) -> bytes:
    """Return the SHA-256 of a model of the package, as its folder states it: 32 bytes."""
    digest, _ = (SHIPPED / name / IDENTITY).read_text(encoding="ascii").splitlines()
    return bytes.fromhex(digest)


def needed(model: AxialTransformer) -> NeededModel:
    """Return how an archive names a model; one that is not of the package has no name."""
    own = fingerprint(model)
    for name in shipped_names():
        if stated_fingerprint(name) == own:
            return NeededModel(own, name, version("axial-transformers"))
    return NeededModel(own)


def open_needed(needs: NeededModel) -> AxialTransformer:
    """Return the model of the package that an archive needs.

    Raises:
        WrongModelError: the package has no model of this name and fingerprint.
    """
    if not needs.name:
        digest = needs.fingerprint.hex()[:16]
        raise WrongModelError(f"the archive does not hold its model, {digest}: give the one it was written with")
    if needs.name not in shipped_names() or stated_fingerprint(needs.name) != needs.fingerprint:
        raise WrongModelError(
            f"the archive needs the model {needs.name}, which this package does not have:"
            f" axial-transformers {needs.version} has it, and so have later versions"
        )
    return AxialTransformer.from_pretrained(SHIPPED / needs.name)
