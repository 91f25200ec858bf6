"""Files from the web: each is kept in the cache once it is known to be whole, by its checksum or as a tar file."""

import hashlib
import http.client
import json
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import IO, Any

from axial_transformers.data.config import DataConfig
from axial_transformers.data.shards.tar import check_whole
from axial_transformers.progress import Progress
from axial_transformers.storage.caches import cache_folder, only_one_process
from axial_transformers.storage.files import errors_name, written_whole
from axial_transformers.storage.typed_json import from_json, read_object, to_json

WEB = ("http://", "https://")

_PATIENCE = 60  # seconds without a byte
_ATTEMPTS = 5  # in a row of which none brought anything
_PAUSE = 1.0  # seconds before the second attempt, twice as many before the third, ...
_PASSING = (408, 416, 425, 429, 500, 502, 503, 504)  # HTTP statuses of faults that may pass
_CHUNK = 1 << 20
_HUNDREDTHS = 100

Error = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


class DownloadError(OSError):
    """A file could not be downloaded, and trying again does not help; the message names the address."""


def download(
    addresses: Sequence[str], options: DataConfig, progress: Progress = iter, checksums: Mapping[str, str] | None = None
) -> list[Path]:
    """Local copies of files in the web, downloaded unless the cache has them; progress is in hundredths of a file.

    Args:
        checksums: by address, the SHA-256 or MD5 in hexadecimal of a file, which then need not be a tar file.

    Raises:
        OSError: one could not be downloaded, is not what its checksum says or no whole tar file, or all exceed the
            options' limits.
    """
    downloads = _Downloads(addresses, options, checksums or {})
    for _ in progress(downloads):
        pass
    return downloads.paths


class _Unfit(DownloadError):
    """The body of an answer is no tar file, or not what its checksum says."""


@dataclass(frozen=True, kw_only=True)
class _Record:
    """About a copy in the cache."""

    validator: str
    """ETag, or time of change, by which the server knows whether the rest of a file is that of its beginning; or ""."""
    size: int = -1
    time: int = -1
    """Time of change of the copy, in nanoseconds."""
    checksum: str = ""
    """SHA-256; "" while the copy is not whole."""


class _Copy:
    """The place of a file's copy in the cache."""

    def __init__(self, address: str, expected: str) -> None:
        key = hashlib.sha256((address + expected).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = PurePosixPath(address.partition("?")[0]).name
        self.expected = expected
        self.folder = cache_folder() / "downloads" / key
        self.path = self.folder / (name if expected or name.endswith(".tar") else f"{name.strip('.')}.tar")
        self.partial, self._about = self.folder / "partial", self.folder / "about.json"

    @property
    def record(self) -> _Record:
        """The record of the copy; empty where it is missing or damaged."""
        try:
            return from_json(_Record, read_object(self._about, "the record of a download"), self._about)
        except (ValueError, OSError):
            return _Record(validator="")

    def write(self, record: _Record) -> None:
        with written_whole(self._about) as aside:
            aside.write_text(json.dumps(to_json(record)), encoding="utf-8")

    def is_whole(self) -> bool:
        """Tests for a copy that has not changed since it was downloaded: it is read only where its time has changed."""
        if not self.path.is_file():
            return False
        state, record = self.path.stat(), self.record
        return state.st_size == record.size and (
            state.st_mtime_ns == record.time or _digest(self.path) == record.checksum
        )

    def arrived(self) -> int:
        """Number of bytes of the part that is there and can be continued; any other part is removed."""
        if not self.record.validator:
            self.discard()
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def discard(self) -> None:
        """Removes the part."""
        self.partial.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)

    def finish(self, address: str) -> None:
        """Makes the part, of which nothing is missing, the copy.

        Raises:
            DownloadError: it is not what its checksum says, or is no whole tar file.
        """
        (self._check_sum if self.expected else self._check_tar)(address)
        state = self.partial.stat()
        self.write(
            _Record(
                validator=self.record.validator,
                size=state.st_size,
                time=state.st_mtime_ns,
                checksum=_digest(self.partial),
            )
        )
        with written_whole(self.path) as aside:
            self.partial.replace(aside)

    def _check_sum(self, address: str) -> None:
        found = _digest(self.partial, "md5" if len(self.expected) == 32 else "sha256")
        if found != self.expected:
            raise _Unfit(f"{address} has the checksum {found}, not {self.expected}: it is another file, or has changed")

    def _check_tar(self, address: str) -> None:
        with self.partial.open("rb") as file:
            _check_head(address, file.read(tarfile.BLOCKSIZE))
        try:
            check_whole(self.partial)
        except ValueError as error:
            raise _Unfit(str(error).replace(str(self.partial), address)) from error


class _Downloads:
    """Downloads as an iterable of hundredths of files, within limits for all of them together."""

    def __init__(self, addresses: Sequence[str], options: DataConfig, checksums: Mapping[str, str]) -> None:
        self.addresses, self.paths = addresses, list[Path]()
        self.options, self.checksums = options, checksums
        self.bytes_left = int(options.download_limit * 1e9)
        self.deadline = time.monotonic() + 60 * options.download_timeout

    def __len__(self) -> int:
        return _HUNDREDTHS * len(self.addresses)

    def __iter__(self) -> Iterator[None]:
        for address in self.addresses:
            shown, copy = 0, _Copy(address, self.checksums.get(address, ""))
            with only_one_process(copy.folder):
                if not copy.is_whole():
                    for share in self._fetched(address, copy):
                        now = min(int(_HUNDREDTHS * share), _HUNDREDTHS)
                        yield from [None] * (now - shown)
                        shown = max(now, shown)
                self.bytes_left -= copy.path.stat().st_size
            self._check_size(address, 0)
            self.paths.append(copy.path)
            yield from [None] * (_HUNDREDTHS - shown)

    def _fetched(self, address: str, copy: _Copy) -> Iterator[float]:
        """Downloads a file, yielding the share of it that has come."""
        failures = 0
        while True:
            before = copy.arrived()
            try:
                yield from self._attempt(address, copy, before)
                copy.finish(address)
                return
            except _Unfit:
                copy.discard()
                raise
            except (*Error, ValueError) as error:  # ValueError: an address with other letters than those of addresses
                failures = 1 if copy.arrived() > before else failures + 1
                pause = _PAUSE * 2 ** (failures - 1)
                if failures == _ATTEMPTS or not _may_pass(error) or time.monotonic() + pause > self.deadline:
                    reason = " ".join(str(error).split())[:300] or type(error).__name__
                    raise OSError(f"{address} could not be downloaded ({reason}): try again, or correct it") from error
                time.sleep(pause)

    def _attempt(self, address: str, copy: _Copy, start: int) -> Iterator[float]:
        known = copy.record.validator
        wanted = {"Range": f"bytes={start}-", "If-Range": known} if start else {}
        left = max(1.0, min(_PATIENCE, self.deadline - time.monotonic()))
        try:
            answer = _OPENER.open(urllib.request.Request(address, headers=wanted), timeout=left)
        except urllib.error.HTTPError as error:
            if error.code == 416:
                copy.discard()
            raise
        with answer:
            validator = _validator(answer.headers)
            if start and answer.status == 206:
                if validator != known or not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    copy.discard()
                    raise ConnectionError("the file has changed meanwhile")
            else:
                start = 0
                copy.discard()
                copy.folder.mkdir(parents=True, exist_ok=True)
                if validator:
                    copy.write(_Record(validator=validator))
            if address not in self.checksums:  # which are of the bytes that come
                _check_headers(address, answer.headers)
            total = None if answer.length is None else start + answer.length
            self._check_size(address, total or start)
            _check_space(address, copy.folder, answer.length or 0)
            with copy.partial.open("ab" if start else "wb") as file:
                yield from self._received(address, answer, file, total)

    def _received(
        self, address: str, answer: http.client.HTTPResponse, file: IO[bytes], total: int | None
    ) -> Iterator[float]:
        """Appends an answer to a file."""
        size, head = file.tell(), b""
        checked = size > 0 or address in self.checksums
        while total is None or size < total:
            chunk = answer.read1(_CHUNK if total is None else min(_CHUNK, total - size))
            if not checked:
                head += chunk[: tarfile.BLOCKSIZE]
                if checked := len(head) >= tarfile.BLOCKSIZE:
                    _check_head(address, head)
            if not chunk:
                break
            with errors_name(file.name):
                file.write(chunk)
            size += len(chunk)
            self._check_size(address, size)
            self._check_time()
            yield size / total if total else 0.0
        if total is not None and size < total:
            raise ConnectionError(f"{size:,} of {total:,} bytes came")

    def _check_size(self, address: str, size: int) -> None:
        """Raises DownloadError where a file of that size exceeds the limits."""
        if size > self.bytes_left and address in self.checksums:
            limit = f"{self.options.download_limit:g} GB"
            raise DownloadError(f"{address} is another file: those that are meant have at most {limit} together")
        if size > self.bytes_left:
            raise DownloadError(
                f"{address} exceeds the {self.options.download_limit:g} GB that a source may download: raise"
                " download_limit (--data.download-limit)"
            )

    def _check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError(
                f"all downloads together may take {self.options.download_timeout:g} minutes: raise download_timeout,"
                " --data.download-timeout"
            )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the web only, and none that gives up encryption."""

    def redirect_request(
        self, request: urllib.request.Request, fp: Any, code: int, message: str, headers: Any, address: str
    ) -> urllib.request.Request | None:
        if not address.startswith("https://" if request.full_url.startswith("https://") else WEB):
            raise DownloadError(
                f"{request.full_url} leads to {address[:200]}, which is not followed: give that address"
            )
        return super().redirect_request(request, fp, code, message, headers, address)


_OPENER = urllib.request.build_opener(_Redirects)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _PASSING
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, (OSError, http.client.HTTPException)) and not isinstance(
        reason, (ValueError, http.client.InvalidURL)
    )


def _validator(headers: Message) -> str:
    """The ETag or the time of change, with which a download can be continued; "" where the server continues none."""
    if "Content-Range" not in headers and headers.get("Accept-Ranges") != "bytes":
        return ""
    etag = headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _check_headers(address: str, headers: Message) -> None:
    if (packed := headers.get("Content-Encoding", "identity")) != "identity":
        raise DownloadError(f"{address} came packed ({packed[:20]}), which was not asked for: download it by hand")


def _check_space(address: str, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DownloadError(f"{address} has {size:,} bytes more, and {folder} has room for {free:,}: make room there")


def _check_head(address: str, head: bytes) -> None:
    """Raises DownloadError unless a file begins as a tar file."""
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        kinds = {
            "a web page, perhaps one to log in": head.lstrip().startswith(b"<"),
            "packed with gzip": head.startswith(b"\x1f\x8b"),
            "empty": not head,
        }
        kind = next((kind for kind, found in kinds.items() if found), f"no tar file ({error})")
        raise _Unfit(f"{address} is {kind}: shards are uncompressed tar files; correct the address") from error


def _digest(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
