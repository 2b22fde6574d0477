"""Requests for some paths, forwarded to another process of this cluster over a Unix socket.

As kube-apiserver does for aggregated APIs, this server authenticates and authorizes the request first. Neither
credentials nor a body are passed on, and only GET and HEAD are forwarded. Responses are passed on part by part, as
streams need it.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import ClientConnectionResetError, web
from yarl import URL

from kubestow_devcluster.apiserver import statuses

__all__ = ["ForwardedPaths", "PathForwarder"]

_PASSED_ON = ("Accept", "Accept-Encoding", "If-None-Match", "Sec-Fetch-Site")
#: Headers that are about one connection and not about the response.
_HOP_BY_HOP = frozenset({"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"})
#: Seconds to connect, and seconds in which a client has to read a part.
_CONNECT_TIMEOUT, _STALL_TIMEOUT = 5.0, 60.0
#: A part of the path of a file: without escapes, and not ``..``.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class ForwardedPaths:
    """The ``root`` path and everything below it, and the ``socket`` that requests for them are forwarded to.

    Clients need no credentials for the root itself and for what is below ``public``: files without data.
    """

    root: str
    public: str
    socket: Path

    def __contains__(self, path: str) -> bool:
        return path == self.root or path.startswith(f"{self.root}/")

    def is_public(self, path: str) -> bool:
        """Whether a path, which is among these, may be read without credentials."""
        names = path.removeprefix(self.public).split("/")
        return path == self.root or (path.startswith(self.public) and all(map(_FILE_NAME.fullmatch, names)))


class PathForwarder:
    """Forwards requests; :meth:`close` ends those in progress."""

    def __init__(self, paths: ForwardedPaths) -> None:
        self.paths = paths
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, incoming: web.BaseRequest) -> web.StreamResponse:
        """Send the response of the other process. Raises a StatusError: 405 for a write, 503 without a response."""
        if incoming.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        headers = {name: value for name in _PASSED_ON if (value := incoming.headers.get(name)) is not None}
        # The path as it was authorized, not normalized.
        url = URL(f"http://localhost{incoming.rel_url.raw_path_qs}", encoded=True)
        try:
            async with self._connected().request(
                incoming.method, url, headers=headers, allow_redirects=False, skip_auto_headers=("Accept-Encoding",)
            ) as response:
                return await _pass_on(incoming, response)
        except (aiohttp.ClientConnectionError, OSError):
            raise statuses.StatusError(503, "ServiceUnavailable", "the scheduler is not running", details={}) from None

    async def close(self) -> None:
        """Close the connections to the other process."""
        if self._session is not None:
            await self._session.close()

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(self.paths.socket), limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def _pass_on(incoming: web.BaseRequest, response: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
    outgoing = web.StreamResponse(status=response.status, headers=headers)
    if response.content_length is None:
        outgoing.enable_chunked_encoding()
    else:
        outgoing.content_length = response.content_length
    try:
        await outgoing.prepare(incoming)
        async for part in response.content.iter_any():
            async with asyncio.timeout(_STALL_TIMEOUT):
                await outgoing.write(part)
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # the client has gone
    except (TimeoutError, aiohttp.ClientError):  # either side stopped in the middle
        if incoming.transport is not None:
            incoming.transport.abort()
    return outgoing
