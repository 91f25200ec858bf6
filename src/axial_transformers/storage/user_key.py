"""A secret key of the user's: what it signs was written by this user on this machine, not brought from elsewhere."""

import hmac
import secrets
from pathlib import Path

from platformdirs import user_state_path

from axial_transformers.storage.caches import only_one_process
from axial_transformers.storage.files import written_whole

_BYTES = 32


def sign(text: str) -> str | None:
    """The signature (HMAC-SHA256) of a text; None where no key can be kept."""
    try:
        return hmac.digest(_key(), text.encode("utf-8", "surrogatepass"), "sha256").hex()
    except OSError:
        return None


def is_signed(text: str, signature: str | None) -> bool:
    """Tests for a signature that this user made."""
    expected = None if signature is None else sign(text)
    return expected is not None and signature is not None and hmac.compare_digest(signature.encode(), expected.encode())


def _key() -> bytes:
    """The key, made when it is first needed, which only its owner can read."""
    path = key_file()
    with only_one_process(path):
        if not path.is_file() or path.stat().st_size != _BYTES:
            with written_whole(path) as aside:
                aside.chmod(0o600)
                aside.write_bytes(secrets.token_bytes(_BYTES))
        return path.read_bytes()


def key_file() -> Path:
    """The place of the key in the system's folder for state ($XDG_STATE_HOME or ~/.local/state on Linux)."""
    return user_state_path("axial-transformers", appauthor=False) / "key"
