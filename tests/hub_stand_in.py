"""A stand-in of the Hugging Face hub: as much of its HTTP interface as huggingface_hub calls, on the loopback."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"


@dataclass
class Repository:
    private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})

    def files(self, revision: str) -> dict[str, bytes] | None:
        commits = {commit(files): files for files in self.branches.values()}
        return (commits | self.branches).get(revision)


def commit(files: dict[str, bytes]) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


class Hub(ThreadingHTTPServer):
    """Repositories by name, and the requests that came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Refusal(Exception):
    def __init__(self, status: int, code: str = "", message: str = "", **more: str) -> None:
        self.status, self.code, self.message, self.more = status, code, message, more


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        try:
            self.answer(200, *self.route(path, body))
        except Refusal as refusal:
            self.answer(refusal.status, {"error": refusal.message, **refusal.more}, refusal.code)

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def route(self, path: str, body: bytes) -> tuple[Any, ...]:
        match path.strip("/").split("/"):
            case ["api", "repos", "create"]:
                return self.create(json.loads(body))
            case ["api", "validate-yaml"]:
                assert json.loads(body)["content"].startswith("---\n")
                return ({"errors": [], "warnings": []},)
            case ["api", "models", owner, name, *rest]:
                return self.model(f"{owner}/{name}", rest, body)
            case [owner, name, "info", "lfs", "objects", "batch"]:
                self.repository(f"{owner}/{name}".removesuffix(".git"), writes=True)
                objects = json.loads(body)["objects"]
                actions = {
                    each["oid"]: {"upload": {"href": f"{self.server.address}/lfs/{each['oid']}"}} for each in objects
                }
                return ({"objects": [{**each, "actions": actions[each["oid"]]} for each in objects]},)
            case ["lfs", oid]:
                assert hashlib.sha256(body).hexdigest() == oid
                self.server.large[oid] = body
                return ({},)
            case [owner, name, "resolve", revision, file]:
                files = self.files(f"{owner}/{name}", revision)
                if file not in files:
                    raise Refusal(404, "EntryNotFound")
                return files[file], "", commit(files)
        raise Refusal(404, message=f"the stand-in has no {path}")

    def create(self, wanted: dict[str, Any]) -> tuple[Any, ...]:
        self.require_token()
        name = f"{wanted['organization']}/{wanted['name']}"
        if name in self.server.repositories:
            raise Refusal(409, url=f"{self.server.address}/{name}")
        private = wanted.get("visibility") == "private" or bool(wanted.get("private"))
        self.server.repositories[name] = Repository(private)
        return ({"url": f"{self.server.address}/{name}"},)

    def model(self, name: str, rest: list[str], body: bytes) -> tuple[Any, ...]:
        match rest:
            case [] | ["revision", _]:
                files = self.files(name, rest[-1] if rest else "main")
                siblings = [{"rfilename": file} for file in files]
                private = self.server.repositories[name].private
                return ({"id": name, "sha": commit(files), "private": private, "siblings": siblings},)
            case ["tree", revision]:
                files = self.files(name, revision)
                return ([{"type": "file", "path": file, "size": len(files[file]), "oid": "0" * 40} for file in files],)
            case ["branch", branch]:
                branches = self.repository(name, writes=True).branches
                if branch in branches:
                    raise Refusal(409)
                branches[branch] = dict(branches["main"])
                return ({},)
            case ["preupload", _]:
                self.repository(name, writes=True)
                files = json.loads(body)["files"]
                modes = ["lfs" if file["path"].endswith(".safetensors") else "regular" for file in files]
                return (
                    {
                        "files": [
                            {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
                            for file, mode in zip(files, modes, strict=True)
                        ]
                    },
                )
            case ["commit", branch]:
                files = self.repository(name, writes=True).branches[branch]
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                    if line["key"] == "lfsFile":
                        files[value["path"]] = self.server.large[value["oid"]]
                oid = commit(files)
                return ({"commitUrl": f"{self.server.address}/{name}/commit/{oid}", "commitOid": oid},)
        raise Refusal(404, message=f"the stand-in has no {rest}")

    def repository(self, name: str, writes: bool = False) -> Repository:
        found = self.server.repositories.get(name)
        if writes or self.headers.get("Authorization"):
            self.require_token()
        if found is None or (found.private and not self.headers.get("Authorization")):
            raise Refusal(404, "RepoNotFound", "Repository not found")
        return found

    def files(self, name: str, revision: str) -> dict[str, bytes]:
        found = self.repository(name).files(revision)
        if found is None:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def require_token(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, message="Invalid credentials in Authorization header")

    def answer(self, status: int, content: Any, code: str = "", sha: str = "") -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        for name, value in {"X-Error-Code": code, "X-Repo-Commit": sha}.items():
            if value:
                self.send_header(name, value)
        if status >= 400:
            self.send_header("X-Error-Message", content["error"])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""
