"""Requests that Studio refuses: those of other sites' pages, and more bytes than it stores.

Browsers name the site of a page in the header Origin. With DNS rebinding, they name it in the header Host.
"""

import re
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r"[\d.]+|\[[\da-f:.]+\]")  # another site can make a name lead here, but no address


class RequestLimits:
    """An ASGI middleware that passes on only what the page itself asks.

    Args:
        names: names of this machine, beside its addresses.
        folder: where uploads are stored.
        most: bytes of the folder and of open requests.
    """

    def __init__(self, app: Any, names: tuple[str, ...], folder: Path, most: int) -> None:
        self._app, self._names, self._folder, self._most, self._coming = app, names, folder, most, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        size = int(headers.get("content-length", 0))
        if scope["type"] == "http" and (refusal := self._refusal(headers, size)):
            await send({"type": "http.response.start", "status": refusal[0], "headers": []})
            await send({"type": "http.response.body", "body": refusal[1].encode()})
            return
        self._coming += size
        try:
            await self._app(scope, receive, send)
        finally:
            self._coming -= size

    def _refusal(self, headers: dict[str, str], size: int) -> tuple[int, str] | None:
        host = headers.get("host", "")
        name = re.sub(r":\d+$", "", host.lower())
        if name not in self._names and not ADDRESS.fullmatch(name):
            return 403, "open Studio at the address that it prints, or start it with this name as --host"
        if headers.get("origin", f"://{host}").partition("://")[2] != host:
            return 403, "Studio answers its own page only"
        stored = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file()) if size else 0
        if "transfer-encoding" in headers or size + stored + self._coming > self._most:
            return (
                413,
                f"uploads together are at most {self._most // 10**6} MB, and are removed after an hour",
            )
        return None
