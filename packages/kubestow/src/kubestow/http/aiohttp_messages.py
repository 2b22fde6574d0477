"""Requests from and responses to aiohttp.

Bodies are limited in size and time while they are read; a response is given up when the client stops reading.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

from aiohttp import ClientConnectionResetError, web

from kubestow.errors import KubestowError
from kubestow.http.messages import HTTPRequest, HTTPResponse, PeerCertificate, StatusError

#: Seconds without progress in sending a response before the connection is closed.
_STALL_SECONDS = 60.0
#: Long bodies with more bytes than this are gzipped for clients that accept it.
_MIN_GZIP_SIZE = 128 * 1024
_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kubestow"}


class BodyTooLarge(KubestowError):
    """The body of a request exceeds the limit."""


# -- requests ----------------------------------------------------------------------------------------------------------


def parse(incoming: web.BaseRequest) -> HTTPRequest:
    """The request, with the client certificate of its connection."""
    headers: dict[str, list[str]] = {}
    for name, value in incoming.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    query: dict[str, list[str]] = {}
    for name, value in incoming.rel_url.query.items():
        query.setdefault(name, []).append(value)
    return HTTPRequest(incoming.method, incoming.rel_url.path, query, headers, peer_certificate(incoming))


def peer_certificate(incoming: web.BaseRequest) -> PeerCertificate | None:
    """The certificate that the client has presented and TLS has verified; None without one."""
    connection = incoming.get_extra_info("ssl_object")
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if not der:
        return None
    subject: dict[str, list[str]] = {}
    for relative_name in connection.getpeercert().get("subject", ()):
        for attribute, value in relative_name:
            subject.setdefault(attribute, []).append(value)
    common_name = subject.get("commonName", [""])[-1]
    return PeerCertificate(common_name, tuple(subject.get("organizationName", ())), der)


async def read_body(
    incoming: web.BaseRequest, *, max_size: int, seconds: float, received: Callable[[int], None] = lambda size: None
) -> bytes:
    """The body of a request; ``received`` is called with the number of bytes of each part.

    Raises BodyTooLarge for more than ``max_size`` bytes, and TimeoutError if it takes more than ``seconds``.
    """
    if (incoming.content_length or 0) > max_size:
        raise BodyTooLarge(f"the request exceeds {max_size} bytes")
    chunks: list[bytes] = []
    size = 0

    def add(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)
        if size > max_size:
            raise BodyTooLarge(f"the request exceeds {max_size} bytes")
        received(len(chunk))
        chunks.append(chunk)

    if incoming.content.is_eof():  # a small body arrives together with the headers
        add(incoming.content.read_nowait())
    else:
        async with asyncio.timeout(seconds):
            async for chunk in incoming.content.iter_any():
                add(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


# -- responses ---------------------------------------------------------------------------------------------------------


def whole(response: HTTPResponse) -> web.Response:
    """A complete response."""
    return web.Response(status=response.status, body=response.body, headers=_headers(response))


async def send(incoming: web.BaseRequest, response: HTTPResponse) -> web.StreamResponse:
    """Send a response without a stream: large ones are gzipped for clients that accept it, long ones sent in chunks."""
    if response.chunks is not None:
        return await _send_chunks(incoming, response, response.chunks)
    if len(response.body) > _MIN_GZIP_SIZE and _accepts_gzip(incoming):
        return await _send_chunks(incoming, response, iter((response.body,)))
    return whole(response)


async def _send_chunks(
    incoming: web.BaseRequest, response: HTTPResponse, chunks: Iterator[bytes]
) -> web.StreamResponse:
    """Other requests are served between two chunks."""
    first, second = next(chunks, b""), next(chunks, None)
    if second is None and len(first) <= _MIN_GZIP_SIZE:
        return whole(HTTPResponse(response.status, first, response.content_type, response.headers))
    outgoing = web.StreamResponse(status=response.status, headers=_headers(response))
    gzip = zlib.compressobj(level=1, wbits=31) if _accepts_gzip(incoming) else None
    if gzip is not None:
        outgoing.headers["Content-Encoding"] = "gzip"
        outgoing.headers["Vary"] = "Accept-Encoding"
    try:
        await outgoing.prepare(incoming)
        chunk: bytes | None = first
        while chunk is not None:
            # zlib releases the GIL, so compression runs beside the event loop.
            encoded = await asyncio.to_thread(gzip.compress, chunk) if gzip is not None else chunk
            async with asyncio.timeout(_STALL_SECONDS):
                await outgoing.write(encoded)
            chunk, second = second, next(chunks, None)
            await asyncio.sleep(0)
        if gzip is not None:
            await outgoing.write(gzip.flush())
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # the client has gone
    except TimeoutError:
        abort(incoming)
    return outgoing


async def send_stream(
    incoming: web.BaseRequest,
    response: HTTPResponse,
    *,
    before_part: Callable[[], Awaitable[None]] | None = None,
    on_progress: Callable[[], None] | None = None,
) -> web.StreamResponse:
    """Send a response with a stream until it ends, or the client has gone or stops reading.

    ``before_part`` is awaited before each part; its StatusError ends the connection. ``on_progress`` is called after
    each part.
    """
    assert response.stream is not None
    outgoing = web.StreamResponse(status=response.status, headers=_headers(response))
    outgoing.enable_chunked_encoding()
    try:
        async with aclosing(response.stream) as stream:
            await outgoing.prepare(incoming)
            async for part in stream:
                if not part:
                    continue
                if before_part is not None:
                    await before_part()
                async with asyncio.timeout(_STALL_SECONDS):
                    await outgoing.write(part)
                if on_progress is not None:
                    on_progress()
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # clients end a watch by closing the connection
    except (TimeoutError, StatusError):
        abort(incoming)
    return outgoing


def abort(incoming: web.BaseRequest) -> None:
    """Close the connection of a request at once."""
    if incoming.transport is not None:
        incoming.transport.abort()


def _headers(response: HTTPResponse) -> dict[str, str]:
    headers = _HEADERS | response.headers
    if response.content_type:
        headers["Content-Type"] = response.content_type
    return headers


def _accepts_gzip(incoming: web.BaseRequest) -> bool:
    return "gzip" in incoming.headers.get("Accept-Encoding", "")
