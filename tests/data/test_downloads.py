"""Downloads of shards: what is no whole tar file never enters the cache, whatever a server does."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import numpy as np
import pytest

from axial_transformers import data
from axial_transformers.data.shards import downloads, shard_files
from tests.shard_writer import pictures, write

VALUES = np.random.default_rng(0).integers(0, 256, (5, 40, 40, 3), dtype=np.uint8)


class Server:
    """A server on this machine; `answer` is called with the handler of each request."""

    def __init__(self, answer) -> None:
        self.answer, self.requests = answer, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(dict(self.headers))
                outer.answer(self)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/train.tar"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(downloads, "_PAUSE", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def serve():
    servers = []

    def start(answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for each in servers:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture
def tar(tmp_path) -> bytes:
    return write(tmp_path / "train.tar", pictures(VALUES)).read_bytes()


def reply(handler, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
    handler.send_response(status)
    for key, value in headers.items():
        handler.send_header(key.replace("_", "-"), value)
    if length is None or length >= 0:
        handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


def copies(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            lambda h, _: reply(h, b"\n<!DOCTYPE html><title>Log in</title>"),
            "is a web page, perhaps one to",
        ),
        (lambda h, tar: reply(h, gzip.compress(tar)), "is packed with gzip"),
        (lambda h, tar: reply(h, gzip.compress(tar), Content_Encoding="gzip"), "is packed with gzip"),
        (lambda h, _: reply(h, b""), "is not a whole, uncompressed tar file"),
        (lambda h, _: reply(h, b"short"), "is not a whole, uncompressed tar file"),
        (lambda h, tar: reply(h, tar[:3000], length=-1), "is not a whole, uncompressed tar file"),
        (lambda h, tar: reply(h, tar[:512] + b"j" * 2048), "is not a whole"),
        (lambda h, tar: reply(h, tar[:3000], length=len(tar)), r"could not be downloaded \(3,000 of .* bytes came"),
        (lambda h, tar: reply(h, tar, length=10**15), "exceeds the 200 GB"),
        (lambda h, tar: reply(h, b"", 404), r"could not be downloaded \(HTTP Error 404"),
        (lambda h, tar: reply(h, b"", 503), r"could not be downloaded \(HTTP Error 503"),
        (lambda h, tar: reply(h, b"", 302, Location="file:///etc/passwd"), "leads to file:.*not followed"),
        (lambda h, tar: reply(h, b"", 302, Location="ftp://127.0.0.1/train.tar"), "leads to ftp://.*not followed"),
        (lambda h, tar: reply(h, b"", 302, Location=h.path), "redirects"),
        (lambda h, tar: h.wfile.write(b"hello\n"), "could not be downloaded"),
        (lambda h, tar: None, "could not be downloaded"),
    ],
)
def test_what_is_no_whole_tar_file_is_named_and_not_kept(serve, tar, cache, answer, says):
    server = serve(lambda handler: answer(handler, tar))
    with pytest.raises(OSError, match=says) as caught:
        data.load(server.address)
    assert str(caught.value).startswith(server.address)
    assert "\n" not in str(caught.value)
    assert not copies(cache)


def test_a_redirect_must_not_give_up_encryption():
    request = httpx2.Request("GET", "https://host/a.tar")
    answer = httpx2.Response(302, headers={"Location": "http://host/a.tar"}, request=request)
    with pytest.raises(OSError, match="leads to http://host"):
        downloads._check_redirect(answer)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/a.tar", "http://127.0.0.1:99999/a.tar", "http://ü ü/a.tar"])
def test_an_address_that_leads_nowhere_is_named(address):
    with pytest.raises(OSError, match=f"^{address} could not be downloaded"):
        data.load(address)


def test_a_fault_that_passes_is_tried_again(serve, tar):
    server = serve(lambda h: reply(h, b"", 503) if len(server.requests) < 3 else reply(h, tar))
    examples = data.load(server.address, split="all")
    np.testing.assert_array_equal(examples.values[:], VALUES)
    assert examples.names[0] == "train.tar/0000.png"
    assert len(server.requests) == 3


def in_parts(h, tar: bytes, size: int, etag: str = '"one"') -> None:
    """Answers as a server that continues downloads, but ends the connection after so many bytes."""
    start = int(h.headers.get("Range", "bytes=0-")[6:-1]) if h.headers.get("If-Range") == etag else 0
    rest = tar[start:]
    known = {"Content_Range": f"bytes {start}-{len(tar) - 1}/{len(tar)}"} if start else {}
    reply(h, rest[:size], 206 if start else 200, len(rest), ETag=etag, Accept_Ranges="bytes", **known)


def test_a_download_is_continued_also_by_another_process(serve, tar):
    server = serve(lambda h: in_parts(h, tar, 4000) if len(server.requests) < 3 else reply(h, b"", 404))
    with pytest.raises(OSError, match="404"):
        data.load(server.address)
    server.answer = lambda h: in_parts(h, tar, 4000)
    np.testing.assert_array_equal(data.load(server.address, split="all").values[:], VALUES)
    starts = [int(request.get("Range", "bytes=0-")[6:-1]) for request in server.requests]
    assert starts == [0, 4000, 8000, *range(8000, len(tar), 4000)]


def test_a_file_that_changes_meanwhile_is_begun_again(serve, tar, tmp_path):
    other = write(tmp_path / "other.tar", pictures(255 - VALUES)).read_bytes()
    server = serve(lambda h: in_parts(h, tar, 4000) if len(server.requests) < 2 else in_parts(h, other, 10**9, '"two"'))
    np.testing.assert_array_equal(data.load(server.address, split="all").values[:], 255 - VALUES)


def test_a_copy_in_the_cache_is_not_fetched_again(serve, tar):
    server = serve(lambda h: reply(h, tar))
    copies = [copy for _ in range(2) for copy in shard_files(server.address)]
    assert [copy.read_bytes() for copy in copies] == [tar, tar]
    assert len(server.requests) == 1


def test_size_and_time_are_bounded_also_where_none_is_stated(serve, tar, cache, monkeypatch):
    def endless(h) -> None:
        reply(h, tar, length=-1)
        while not h.wfile.closed:
            h.wfile.write(bytes(1 << 16))

    server = serve(endless)
    monkeypatch.setattr(downloads, "MAX_BYTES", 10**6)
    with pytest.raises(OSError, match=rf"^{server.address} exceeds the 0.001 GB"):
        data.load(server.address)

    def slow(h) -> None:
        reply(h, tar[:600], length=len(tar))
        time.sleep(2)

    server = serve(slow)
    start = time.monotonic()
    monkeypatch.setattr(downloads, "MAX_SECONDS", 0.2)
    with pytest.raises(OSError, match=rf"^{server.address} could not be downloaded"):
        data.load(server.address)
    assert time.monotonic() - start < 1.9


def test_progress_is_in_hundredths_of_files(serve, tar):
    server, seen = serve(lambda h: reply(h, tar)), []

    def progress(items):
        seen.append(len(items))
        for item in items:
            seen[0] -= 1
            yield item

    for _ in range(2):
        files = shard_files(server.address.replace("train", "{a,b,c}"), progress=progress)
        assert [file.name for file in files] == ["a.tar", "b.tar", "c.tar"]
    assert seen == [-300, 300]
