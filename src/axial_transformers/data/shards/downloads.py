"""Files from the web, cached once they are known to be whole, by their checksum or as a tar file."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

import httpx2

from axial_transformers.data.shards.tar import members
from axial_transformers.progress import Progress
from axial_transformers.storage.files import cache_folder, errors_name, written_whole
from axial_transformers.storage.locks import only_one_process

MAX_BYTES = 200 * 10**9
MAX_SECONDS = 24 * 3600.0

_PATIENCE = 60.0  # seconds without a byte
_ATTEMPTS = 5  # in a row of which none brought anything
_PAUSE = 1.0  # seconds before the second attempt, twice as many before the third, ...
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses of faults that may pass
_HUNDREDTHS = 100


class DownloadError(OSError):
    """A file could not be downloaded, and trying again does not help."""


class _PassingError(Exception):
    """Trying again may help."""


class _UnfitError(DownloadError):
    """What came is no tar file, or does not match its checksum."""


def download(
    addresses: Sequence[str],
    progress: Progress = iter,
    checksums: Mapping[str, str] | None = None,
    most_bytes: int | None = None,
) -> list[Path]:
    """Return local copies of files in the web, from the cache if possible.

    Args:
        progress: wraps hundredths of files.
        checksums: by address, SHA-256 or MD5; such a file need not be a tar file.
    """
    downloads = _Downloads(addresses, checksums or {}, most_bytes or MAX_BYTES)
    for _ in progress(downloads):
        pass
    return downloads.paths


class _Copy:
    def __init__(self, address: str, expected: str) -> None:
        key = hashlib.sha256((address + expected).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = PurePosixPath(address.partition("?")[0]).name
        self.address, self.expected = address, expected
        self.folder = cache_folder() / "downloads" / key
        self.path = self.folder / (name if expected or name.endswith(".tar") else f"{name.strip('.')}.tar")
        self.partial, self._validator = self.folder / "partial", self.folder / "validator"

    @property
    def validator(self) -> str:
        return self._validator.read_text(encoding="utf-8", errors="replace") if self._validator.is_file() else ""

    def begin(self, validator: str) -> None:
        """Begin a new part; the validator "" means that it cannot be continued."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.discard()
        if validator:
            self._validator.write_text(validator, encoding="utf-8")

    def arrived(self) -> int:
        """Return the bytes of a part to continue; remove any other part."""
        if not self.validator:
            self.discard()
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self._validator.unlink(missing_ok=True)

    def finish(self) -> None:
        """Check the part, and make it the copy."""
        if self.expected:
            with self.partial.open("rb") as file:
                algorithm = "sha256" if len(self.expected) == 64 else "md5"
                found = hashlib.file_digest(file, algorithm).hexdigest()
            if found != self.expected:
                raise _UnfitError(
                    f"{self.address} has the checksum {found}, not {self.expected}: it is another file, or has changed"
                )
        else:
            try:
                for _ in members(self.partial):
                    pass
            except ValueError as error:
                raise _UnfitError(str(error).replace(str(self.partial), self.address)) from error
        with written_whole(self.path) as aside:
            self.partial.replace(aside)
        self.discard()

    def check_head(self, head: bytes) -> None:
        """Raise DownloadError for what cannot be a tar file."""
        for kind, start in {"a web page, perhaps one to log in": b"<", "packed with gzip": b"\x1f\x8b"}.items():
            if head.lstrip().startswith(start):
                raise _UnfitError(f"{self.address} is {kind}: shards are uncompressed tar files; correct the address")


class _Downloads:
    def __init__(self, addresses: Sequence[str], checksums: Mapping[str, str], most_bytes: int) -> None:
        self.paths, self._most_bytes, self._bytes_left = list[Path](), most_bytes, most_bytes
        self._copies = [_Copy(address, checksums.get(address, "")) for address in addresses]
        self._deadline = time.monotonic() + MAX_SECONDS

    def __len__(self) -> int:
        return _HUNDREDTHS * len(self._copies)

    def __iter__(self) -> Iterator[None]:
        hooks = {"response": [_check_redirect]}
        unpacked = {"Accept-Encoding": "identity"}
        with httpx2.Client(follow_redirects=True, event_hooks=hooks, headers=unpacked) as client:
            for copy in self._copies:
                with only_one_process(copy.folder):
                    yield from _in_hundredths(() if copy.path.is_file() else self._fetched(client, copy))
                    self._check_size(copy, copy.path.stat().st_size)
                    self._bytes_left -= copy.path.stat().st_size
                self.paths.append(copy.path)

    def _fetched(self, client: httpx2.Client, copy: _Copy) -> Iterator[float]:
        failures = 0
        while True:
            before = copy.arrived()
            try:
                yield from self._attempt(client, copy, before)
                copy.finish()
                return
            except _UnfitError:
                copy.discard()
                raise
            except (httpx2.HTTPError, httpx2.InvalidURL, _PassingError) as error:
                failures = 1 if copy.arrived() > before else failures + 1
                pause = _PAUSE * 2 ** (failures - 1)
                if failures == _ATTEMPTS or not _may_pass(error) or time.monotonic() + pause > self._deadline:
                    reason = " ".join(str(error).split())[:300] or type(error).__name__
                    raise OSError(
                        f"{copy.address} could not be downloaded ({reason}): try again, or correct it"
                    ) from error
                time.sleep(pause)

    def _attempt(self, client: httpx2.Client, copy: _Copy, start: int) -> Iterator[float]:
        known = copy.validator
        wanted = {"Range": f"bytes={start}-", "If-Range": known} if start else {}
        patience = max(1.0, min(_PATIENCE, self._deadline - time.monotonic()))
        with client.stream("GET", copy.address, headers=wanted, timeout=patience) as answer:
            if answer.status_code == 416:
                copy.discard()
                raise _PassingError("the file has become shorter meanwhile")
            if not answer.is_success:
                failed = _PassingError if answer.status_code in _PASSING else httpx2.HTTPError
                raise failed(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
            validator = _validator(answer.headers)
            if start and answer.status_code == 206:
                if validator != known or not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    copy.discard()
                    raise _PassingError("the file has changed meanwhile")
            else:
                start = 0
                copy.begin(validator)
            length = answer.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else None
            self._check_size(copy, total or start)
            with copy.partial.open("ab" if start else "wb") as file:
                yield from self._received(copy, answer, file, total)

    def _received(self, copy: _Copy, answer: httpx2.Response, file: IO[bytes], total: int | None) -> Iterator[float]:
        size = file.tell()
        try:
            for chunk in answer.iter_raw():
                if not size and not copy.expected:
                    copy.check_head(chunk)
                with errors_name(file.name):
                    file.write(chunk)
                size += len(chunk)
                self._check_size(copy, size)
                if time.monotonic() > self._deadline:
                    raise DownloadError(f"{copy.address} could not be downloaded in {MAX_SECONDS / 3600:g} hours")
                yield size / total if total else 0.0
        except httpx2.RemoteProtocolError as error:
            came = f"{size:,} of {total:,} bytes came" if total else f"the connection ended after {size:,} bytes"
            raise _PassingError(came) from error

    def _check_size(self, copy: _Copy, size: int) -> None:
        if size > self._bytes_left:
            limit = f"the {self._most_bytes / 1e9:g} GB that its source may have together"
            raise DownloadError(f"{copy.address} exceeds {limit}: it is another file, or too large to be downloaded")


def _in_hundredths(shares: Iterable[float]) -> Iterator[None]:
    shown = 0
    for share in shares:
        now = min(int(_HUNDREDTHS * share), _HUNDREDTHS)
        yield from [None] * (now - shown)
        shown = max(now, shown)
    yield from [None] * (_HUNDREDTHS - shown)


def _check_redirect(answer: httpx2.Response) -> None:
    if answer.has_redirect_location:
        target = answer.url.join(answer.headers["Location"])
        if target.scheme != "https" and (target.scheme != "http" or answer.url.scheme == "https"):
            raise DownloadError(f"{answer.url} leads to {str(target)[:200]}, which is not followed: give that address")


def _may_pass(error: Exception) -> bool:
    may_pass = isinstance(error, _PassingError | httpx2.TransportError)
    return may_pass and not isinstance(error, httpx2.UnsupportedProtocol)


def _validator(headers: httpx2.Headers) -> str:
    if "Content-Range" not in headers and headers.get("Accept-Ranges") != "bytes":
        return ""
    etag = headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
