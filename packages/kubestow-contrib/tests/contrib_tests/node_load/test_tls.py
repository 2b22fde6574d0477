"""Whose certificates a source of metrics trusts."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubestow.client.http_json import JSONServer
from kubestow.errors import Unreachable
from kubestow.http.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority.generate("test")


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """An HTTPS server with a certificate of the authority."""
    AUTHORITY.issue_server_certificate(["127.0.0.1"]).write(tmp_path / "tls.crt", tmp_path / "tls.key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def test_an_authority_in_a_file_is_trusted(url: str, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.crt"
    authorities.write_bytes(AUTHORITY.certificate)
    assert await JSONServer(url, ca_file=str(authorities)).get("/a", {}) == {"path": "/a"}


async def test_nothing_is_verified_if_that_is_insecure(url: str) -> None:
    assert await JSONServer(url, insecure=True).get("/a", {}) == {"path": "/a"}


@pytest.mark.parametrize("content", [None, b"", b"no certificate", CertificateAuthority.generate("other").certificate])
async def test_an_unknown_certificate_is_not_trusted(url: str, tmp_path: Path, content: bytes | None) -> None:
    authorities = tmp_path / "ca.crt"
    if content is not None:
        authorities.write_bytes(content)
    with pytest.raises(Unreachable):
        await JSONServer(url, ca_file=str(authorities)).get("/a", {})
    with pytest.raises(Unreachable):
        await JSONServer(url).get("/a", {})
