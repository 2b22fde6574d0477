"""Requests from and responses to aiohttp."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from aiohttp import ClientConnectionResetError, web

from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, PeerCertificate

__all__ = ["parse", "send_stream", "whole"]

_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kubestow"}


def parse(incoming: web.BaseRequest) -> HTTPRequest:
    """The request, with the client certificate of its connection."""
    headers: dict[str, list[str]] = {}
    for name, value in incoming.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    query: dict[str, list[str]] = {}
    for name, value in incoming.rel_url.query.items():
        query.setdefault(name, []).append(value)
    return HTTPRequest(incoming.method, incoming.rel_url.path, query, headers, _certificate(incoming))


def _certificate(incoming: web.BaseRequest) -> PeerCertificate | None:
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


def whole(response: HTTPResponse) -> web.Response:
    """A complete response."""
    return web.Response(status=response.status, body=response.body, headers=_headers(response))


async def send_stream(
    incoming: web.BaseRequest, response: HTTPResponse, on_progress: Callable[[], None] = lambda: None
) -> web.StreamResponse:
    """Send a response with a stream until it ends or the client has gone; ``on_progress`` is called for each part."""
    assert response.stream is not None
    outgoing = web.StreamResponse(status=response.status, headers=_headers(response))
    outgoing.enable_chunked_encoding()
    try:
        async with aclosing(response.stream) as stream:
            await outgoing.prepare(incoming)
            async for part in stream:
                await outgoing.write(part)
                on_progress()
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # the client has gone
    return outgoing


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {**_HEADERS, **response.headers, "Content-Type": response.content_type}
