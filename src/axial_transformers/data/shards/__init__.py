"""Shards: tar files of records, from paths, addresses and data sets of the hub."""

import re
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path, PurePosixPath

from axial_transformers.data.folders import natural_key
from axial_transformers.data.shards.shard_examples import ShardExamples, load_shards
from axial_transformers.progress import Progress
from axial_transformers.storage import require_extra

__all__ = ["SUFFIX", "ShardExamples", "expand", "load_shards", "names_shards", "shard_files"]

SUFFIX = ".tar"
WEB = ("http://", "https://")

_MAX_SHARDS = 100_000
_SHOWN = 99  # characters of a pattern in a message
_HUB = re.compile(r"hf://datasets/(?P<repository>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.*))?")


def names_shards(source: str) -> bool:
    """Return True for a pattern or an address of shards, or a tar file."""
    return source.startswith((*WEB, "hf://")) or source.endswith(SUFFIX) or "{" in source


def shard_files(source: str, progress: Progress = iter) -> list[Path]:
    """Return the shards that a source names, in order.

    Sources are a path or an http(s) address with or without braces (`train-{000..009}.tar`, `{train,val}-0.tar`), or
    `hf://datasets/OWNER/NAME[@REVISION][/PATH]`. Downloads are cached.
    """
    if source.startswith("hf://"):
        return _from_hub(source, progress)
    if source.startswith(WEB):
        require_extra("hub", "httpx2", source)
        from axial_transformers.data.shards.downloads import download

        return download(expand(source), progress)
    files = [Path(name) for name in expand(source)]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file, of {len(files)} that {source} names")
        if file.suffix != SUFFIX:
            raise ValueError(f"{file} is no .tar file: shards are uncompressed tar files")
    return files


def expand(pattern: str) -> list[str]:
    """Expand braces: {a,b} or {08..11}."""
    parts = re.split(r"{([^{}]*)}", pattern)  # text and the content of braces, alternating
    if any("{" in text or "}" in text for text in parts[::2]):
        raise ValueError(f"{pattern[:_SHOWN]} has a brace without its partner, or within others: write it out")
    choices = [_choices(part, pattern) if i % 2 else [part] for i, part in enumerate(parts)]
    if prod(map(len, choices)) > _MAX_SHARDS:
        raise ValueError(
            f"{pattern[:_SHOWN]} stands for over {_MAX_SHARDS:,} shards: pack more records into each, or name fewer"
        )
    return list(map("".join, product(*choices)))


def _choices(content: str, pattern: str) -> Sequence[str]:
    if "," in content:
        return content.split(",")
    match = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", content)
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(
            f"{pattern[:_SHOWN]}: {{{content[:_SHOWN]}}} is neither a range of numbers, as {{000..009}}, nor a choice,"
            " as {train,val}"
        )
    numbers = range(int(match[1]), int(match[2]) + 1)[: _MAX_SHARDS + 1]
    return [str(number).zfill(len(match[1])) for number in numbers]


def _from_hub(source: str, progress: Progress) -> list[Path]:
    match = _HUB.fullmatch(source)
    if not match:
        raise ValueError(f"{source} is no hf://datasets/OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME/PATH.tar")
    require_extra("hub", "huggingface_hub", source)
    from huggingface_hub import hf_hub_download

    repository, revision, path = match["repository"], match["revision"], match["path"] or ""
    try:
        names = expand(path) if path.endswith(SUFFIX) else _tar_files(repository, revision, path)
        local = [hf_hub_download(repository, name, repo_type="dataset", revision=revision) for name in progress(names)]
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FileNotFoundError(f"{source} is not available from the hub ({type(error).__name__}: {reason})") from error
    if not local:
        raise ValueError(f"{source} holds no .tar files: name a data set of shards, or another folder of it")
    return [Path(file) for file in local]


def _tar_files(repository: str, revision: str | None, folder: str) -> list[str]:
    from huggingface_hub import HfApi

    names = map(PurePosixPath, HfApi().list_repo_files(repository, repo_type="dataset", revision=revision))
    found = [name for name in names if name.suffix == SUFFIX and name.is_relative_to(folder)]
    return [str(name) for name in sorted(found, key=lambda name: (name.parent, natural_key(name)))]
