"""A stand-in of the Hugging Face hub: the calls of huggingface_hub that this package makes, and their errors."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import CommitOperationAdd, constants, errors, get_token

TOKEN = "hf_right"


@dataclass
class Repository:
    private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})


class Hub:
    """Repositories by name, and the calls that came; it takes the place of `HfApi`, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repositories: dict[str, Repository] = {}
        self.calls: list[str] = []

    def __call__(self) -> "Hub":
        return self

    def create_repo(self, name: str, *, private: bool | None, exist_ok: bool) -> None:
        self._called("create_repo", writes=True)
        assert exist_ok or name not in self.repositories
        self.repositories.setdefault(name, Repository(bool(private)))

    def model_info(self, name: str) -> SimpleNamespace:
        self._called("model_info")
        return SimpleNamespace(private=self.repositories[name].private)

    def create_branch(self, name: str, *, branch: str, exist_ok: bool) -> None:
        self._called("create_branch", writes=True)
        branches = self.repositories[name].branches
        assert exist_ok or branch not in branches
        branches.setdefault(branch, dict(branches["main"]))

    def create_commit(
        self, name: str, operations: Iterable[CommitOperationAdd], *, commit_message: str, revision: str | None
    ) -> SimpleNamespace:
        self._called("create_commit", writes=True)
        files = self.repositories[name].branches[revision or "main"]
        for each in operations:
            with each.as_file() as file:
                files[each.path_in_repo] = file.read()
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        return SimpleNamespace(commit_url=f"{constants.ENDPOINT}/{name}/commit/{digest}")

    def snapshot_download(self, name: str, *, revision: str | None, allow_patterns: Sequence[str]) -> str:
        """Return a folder; what the hub refuses comes as the cause of what the cache lacks, as it does there."""
        try:
            self._called("snapshot_download", writes=get_token() is not None)
            if name not in self.repositories:
                raise refusal(errors.RepositoryNotFoundError, 404)
            if (revision or "main") not in self.repositories[name].branches:
                raise refusal(errors.RevisionNotFoundError, 404)
        except errors.HfHubHTTPError as error:
            raise errors.LocalEntryNotFoundError("not in the cache") from error
        folder = self.folder / name / (revision or "main")
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in self.repositories[name].branches[revision or "main"].items():
            if file in allow_patterns:
                (folder / file).write_bytes(content)
        return str(folder)

    def _called(self, call: str, writes: bool = False) -> None:
        self.calls.append(call)
        if writes and get_token() != TOKEN:
            raise refusal(errors.HfHubHTTPError, 401)


def refusal(kind: type[errors.HfHubHTTPError], status: int) -> errors.HfHubHTTPError:
    response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind("refused", response=response)
