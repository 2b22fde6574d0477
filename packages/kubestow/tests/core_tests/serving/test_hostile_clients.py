"""Malformed, slow and excessive clients: bounded time and memory, and responses without internals."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

import pytest

from core_tests.hang_limit import HANG_LIMIT
from core_tests.serving.harness import ALLOW_ALL, secure_port
from kubestow.http.messages import HTTPRequest, HTTPResponse, PathMux
from kubestow.http.tls import TLSOptions
from kubestow.serving import secure_server


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        b"INVALID\r\n\r\n",
        b"\x00\xff\x00\xff" * 100 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: nine\r\n\r\n",
    ],
    ids=["long line", "long header", "many headers", "no HTTP", "bytes", "bad length"],
)
async def test_a_malformed_request_gets_a_short_response(sent: bytes) -> None:
    async with secure_port() as server:
        received = await server.send_raw(sent)
        assert received.startswith(b"HTTP/1.") and b" 400 " in received.splitlines()[0]
        assert b"Traceback" not in received and b".py" not in received
        assert len(received) < 10_000 + len(sent)
        assert (await server.get("/livez")).status == 200


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/../../etc/passwd", "//etc/passwd", "/configz/../x"],
)
async def test_paths_are_not_looked_up_in_the_file_system(path: str) -> None:
    async with secure_port() as server:
        received = await server.send_raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert b" 404 " in received.splitlines()[0]
        assert b'"reason":"NotFound"' in received


async def test_a_request_body_is_not_read() -> None:
    async with secure_port() as server:
        sent = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nonly this"
        assert b" 405 " in (await server.send_raw(sent)).splitlines()[0]


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_server, "_LIMITS", replace(secure_server._LIMITS, request_seconds=0.05))
    async with secure_port() as server:
        assert await server.send_raw(b"GET /livez HTTP/1.1\r\nHost: ") == b""
        assert await server.send_raw(b"") == b""


async def test_a_connection_without_tls_is_closed() -> None:
    async with secure_port() as server:
        reader, writer = await asyncio.open_connection("localhost", server.serving.port)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(HANG_LIMIT):
            await reader.read()
        writer.close()
        assert (await server.get("/livez")).status == 200


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_tls_versions_below_the_minimum_are_rejected() -> None:
    context = _unverified()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with secure_port(replace(ALLOW_ALL, tls=TLSOptions(min_version="VersionTLS13"))) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("localhost", server.serving.port, ssl=context)
        assert (await server.get("/livez")).status == 200


async def test_health_checks_succeed_while_idle_connections_fill_the_port() -> None:
    context = _unverified()
    async with secure_port() as server:
        opened = [
            await asyncio.open_connection("127.0.0.1", server.serving.port, ssl=context)
            for _ in range(secure_server._LIMITS.maximum)
        ]
        assert (await server.get("/livez")).status == 200
        for _, writer in opened:
            writer.close()


async def test_health_checks_succeed_while_connections_without_a_handshake_fill_the_port() -> None:
    async with secure_port() as server:
        opened = [
            await asyncio.open_connection("127.0.0.1", server.serving.port)
            for _ in range(secure_server._LIMITS.maximum + 10)
        ]
        assert (await server.get("/livez")).status == 200
        closed, _ = opened[0]
        assert await closed.read() == b"", "the longest idle connection gives way"
        for _, writer in opened:
            writer.close()


async def test_health_checks_succeed_while_slow_requests_fill_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_server, "_LIMITS", replace(secure_server._LIMITS, per_peer=3))
    release, started, handle = asyncio.Event(), asyncio.Semaphore(0), PathMux.handle

    async def slow(mux: PathMux, request: HTTPRequest) -> HTTPResponse:  # in this event loop, but for health checks
        if request.path == "/metrics":
            started.release()
            await release.wait()
        return await handle(mux, request)

    monkeypatch.setattr(PathMux, "handle", slow)
    async with secure_port() as server:
        requests = [asyncio.create_task(server.get("/metrics")) for _ in range(3)]
        for _ in requests:
            await started.acquire()
        health, other = await server.get("/livez"), await server.get("/configz")
        release.set()
        assert [(await request).status for request in requests] == [200, 200, 200]
    assert health.status == 200
    assert other.status == 503 and "too many requests" in other.text


async def test_internal_errors_are_logged_and_not_sent_to_the_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with secure_port() as server:
        monkeypatch.setattr(server.observability, "scrape", lambda accept: 1 / 0)
        reply = await server.get("/metrics")
    assert reply.status == 500
    assert "ZeroDivision" not in reply.text and "Traceback" not in reply.text
    assert "ZeroDivisionError" in caplog.text
