"""What strangers say costs bounded time and memory, and tells them nothing."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

import pytest

from kubestow.serving import listener as server
from kubestow.serving.options import TLSOptions
from tests.serving.ports import OPEN, port, raw


@pytest.mark.parametrize(
    "said",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        b"NONSENSE\r\n\r\n",
        b"\x00\xff\x00\xff" * 100 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: nine\r\n\r\n",
    ],
    ids=["long line", "long header", "many headers", "no HTTP", "bytes", "bad length"],
)
async def test_what_is_no_request_is_refused_in_a_word(said: bytes) -> None:
    async with port() as at:
        heard = await raw(at, said)
        assert heard.startswith(b"HTTP/1.") and b" 400 " in heard.splitlines()[0]
        assert b"Traceback" not in heard and b".py" not in heard
        assert len(heard) < 10_000 + len(said)
        assert (await at.get("/livez")).status == 200


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/../../etc/passwd", "//etc/passwd", "/configz/../x"],
)
async def test_there_are_no_files_behind_the_paths(path: str) -> None:
    async with port() as at:
        heard = await raw(at, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert b" 404 " in heard.splitlines()[0]
        assert b'"reason":"NotFound"' in heard


async def test_a_body_is_not_waited_for() -> None:
    async with port() as at:
        said = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nonly this"
        assert b" 405 " in (await raw(at, said)).splitlines()[0]


async def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_REQUEST", 0.05)
    async with port() as at:
        assert await raw(at, b"GET /livez HTTP/1.1\r\nHost: ") == b""
        assert await raw(at, b"") == b""


async def test_who_speaks_no_tls_is_cut_off() -> None:
    async with port() as at:
        reader, writer = await asyncio.open_connection("localhost", at.serving.port)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()
        assert (await at.get("/livez")).status == 200


async def test_versions_of_tls_before_the_wanted_one_are_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with port(replace(OPEN, tls=TLSOptions(min_version="VersionTLS13"))) as at:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("localhost", at.serving.port, ssl=context)
        assert (await at.get("/livez")).status == 200


async def test_more_connections_than_there_may_be_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with port() as at:
        opened = [await asyncio.open_connection("localhost", at.serving.port, ssl=context) for _ in range(2)]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection("localhost", at.serving.port, ssl=context)
            opened.append((reader, writer))
            await reader.readexactly(1)
        for _, writer in opened:
            writer.close()


async def test_a_defect_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with port() as at:
        monkeypatch.setattr(at.observability, "scrape", lambda accept: 1 / 0)
        told = await at.get("/metrics")
    assert told.status == 500
    assert "ZeroDivision" not in told.text and "Traceback" not in told.text
    assert "ZeroDivisionError" in caplog.text
