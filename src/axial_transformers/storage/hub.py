"""Models on the Hugging Face hub: downloaded into its cache, and uploaded as one commit."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from axial_transformers.storage import import_extra

CARD = "README.md"
LOGIN = "log in by the command `hf auth login`, or set HF_TOKEN"

_NETWORK = {"TransportError", "ConnectionError", "Timeout", "OfflineModeIsEnabled"}
"""Base classes of network errors."""
_ID = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[^@\s]+))?", re.ASCII)


def split_id(name: str) -> tuple[str, str | None] | None:
    """Return repository and revision of "owner/name" or "owner/name@revision", or None."""
    match = _ID.fullmatch(name)
    return None if match is None or name.startswith(".") else (match["repository"], match["revision"])


def download(repository: str, revision: str | None, files: Sequence[str]) -> Path:
    """Return the local copy of a repository's files; without a network, the last copy."""
    hub = import_extra("hub", "huggingface_hub", f"{repository}, a model of the hub,")
    with _one_line_errors(repository, revision):
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=files))


def upload(
    repository: str, files: Mapping[str, Path], message: str, private: bool | None = None, revision: str | None = None
) -> str:
    """Upload files as one commit, and return its address.

    Args:
        private: visibility of a new repository (None: the owner's default); if true, an existing public one is refused.
        revision: the branch; None: main.
    """
    require_repository(repository)
    hub = import_extra("hub", "huggingface_hub", "an upload to the hub")
    if not hub.get_token():
        raise PermissionError(f"{repository} was not uploaded, since no token of the hub is known: {LOGIN}")
    api = hub.HfApi()
    with _one_line_errors(repository, revision):
        api.create_repo(repository, private=private, exist_ok=True)
        is_public = not api.model_info(repository).private
    if private and is_public:
        raise PermissionError(f"{repository} is there, and public: nothing was uploaded; take another name")
    with _one_line_errors(repository, revision):
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        additions = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()]
        return str(api.create_commit(repository, additions, commit_message=message, revision=revision).commit_url)


def require_repository(name: str) -> None:
    """Raise ValueError where a name is not "owner/name"."""
    if split_id(name) != (name, None):
        raise ValueError(f"{name!r:.200} is no repository of the hub: these are called owner/name")


def address(repository: str) -> str:
    """Return the web address of a repository, by HF_ENDPOINT."""
    import_extra("hub", "huggingface_hub", "the hub")
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repository}"


@contextmanager
def _one_line_errors(repository: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of requests, httpx or httpx2, by the version of huggingface_hub
        if isinstance(error, OSError) and error.errno is not None:  # such as a full disk
            raise
        raise _explained(error, repository, revision) from error


def _explained(error: Exception, repository: str, revision: str | None) -> OSError:
    from huggingface_hub import errors

    answer = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
    status = getattr(getattr(answer, "response", None), "status_code", None)
    reason = " ".join(str(answer).split())[:200]
    if isinstance(answer, errors.RevisionNotFoundError):
        return FileNotFoundError(f"{repository} has no revision {revision}: name a branch, a tag or a commit")
    if isinstance(answer, errors.RepositoryNotFoundError):
        return FileNotFoundError(f"{repository}: no such model on the hub, or it is private: {LOGIN}")
    if status in (401, 403):
        return PermissionError(f"{repository}: the hub does not allow that with this token: {LOGIN}")
    if status is None and _NETWORK & {kind.__name__ for kind in type(answer).__mro__}:
        return ConnectionError(
            f"{repository}: the hub cannot be reached ({type(answer).__name__}): check the network and HF_ENDPOINT"
        )
    return OSError(f"{repository}: the hub failed ({type(answer).__name__}: {reason})")
