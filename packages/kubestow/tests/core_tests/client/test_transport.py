"""Requests and streams: what is sent, what is returned, and how failures are reported."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web
from multidict import CIMultiDict

from core_tests.client.clocks import AutoAdvancingClock, ManualClock
from core_tests.client.scripted_server import ScriptedServer, disconnect, failure, response
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import RateLimit, ReadOnlyTransport, TokenBucketRateLimiter, Transport
from kubestow.errors import APIError, Unreachable
from kubestow.version import VERSION


async def test_a_request_carries_the_user_agent_and_the_body(server: ScriptedServer, transport: Transport) -> None:
    server.respond("POST", "/api/v1/things", response(201, {"kind": "Thing"}))
    assert await transport.request("POST", "/api/v1/things?dryRun=All", b'{"a":1}') == b'{"kind": "Thing"}'
    (request,) = server.requests
    assert request.text == '{"a":1}'
    assert request.query == {"dryRun": "All"}
    assert request.headers["User-Agent"] == f"kubestow/{VERSION}"
    assert request.headers["Content-Type"] == request.headers["Accept"] == "application/json"


async def test_header_values_are_sent_as_utf8(server: ScriptedServer, clock: AutoAdvancingClock) -> None:
    server.respond("GET", "/x", response())
    credentials = Credentials(server.url, headers=CIMultiDict({"Impersonate-User": "Zoë 山"}))
    async with Transport(credentials, clock=clock) as transport:
        await transport.request("GET", "/x")
    assert server.requests[0].headers["Impersonate-User"] == "Zoë 山"


async def test_a_header_that_could_contain_another_is_never_sent(
    server: ScriptedServer, clock: AutoAdvancingClock
) -> None:
    credentials = Credentials(server.url, headers=CIMultiDict({"Impersonate-User": "me\r\nX: y"}))
    async with Transport(credentials, clock=clock) as transport:
        for _ in range(2):
            with pytest.raises(Unreachable, match="Impersonate-User contains a character that is not printable"):
                await transport.request("GET", "/x")
    assert not server.requests


async def test_percent_encoding_in_a_path_is_preserved(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/api/v1/pods", response())
    await transport.request("GET", "/api/v1/pods?fieldSelector=status.phase%21%3DFailed%2Ca%3Db")
    assert server.requests[0].query == {"fieldSelector": "status.phase!=Failed,a=b"}


async def test_sequential_requests_share_a_connection(server: ScriptedServer, transport: Transport) -> None:
    ports: set[object] = set()

    async def record_port(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return await response()(request)

    server.respond("GET", "/x", *[record_port] * 3)
    for _ in range(3):
        await transport.request("GET", "/x")
    assert len(ports) == 1


async def test_a_failure_status_becomes_an_api_error(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/x", failure(409, "Conflict", "pod b1 is already assigned"))
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert str(caught.value) == "pod b1 is already assigned"


async def test_a_failure_of_a_proxy_keeps_its_code(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/x", response(502, b"<html>\n upstream is down</html>"))
    with pytest.raises(APIError, match="502 Bad Gateway: <html> upstream is down") as caught:
        await transport.request("GET", "/x")
    assert caught.value.code == 502


async def test_a_redirect_is_not_followed(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/x", response(302, Location="/y"))
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert caught.value.code == 302


async def test_retry_after_is_respected(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", "/x", failure(429, "TooManyRequests", Retry_After="2"), response(200, {"ok": True}))
    assert await transport.request("GET", "/x") == b'{"ok": true}'
    assert clock.slept == [2.0]


@pytest.mark.parametrize("seconds", ["3600", "9" * 400])
async def test_retry_after_is_limited_to_a_minute(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, seconds: str
) -> None:
    server.respond("GET", "/x", failure(503, "Service Unavailable", Retry_After=seconds), response(200, {"ok": True}))
    await transport.request("GET", "/x")
    assert clock.slept == [60.0]


async def test_a_request_is_retried_ten_times(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", "/x", *[failure(503, "ServiceUnavailable", Retry_After="1")] * 20)
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert caught.value.retry_after == 1.0
    assert len(server.requests) == 11


async def test_a_rejection_after_a_failure_that_may_have_taken_effect_is_in_doubt(
    server: ScriptedServer, transport: Transport
) -> None:
    lost = failure(500, "InternalError", Retry_After="1")
    server.respond("POST", "/x", lost, *[failure(429, "TooManyRequests", Retry_After="1")] * 10)
    with pytest.raises(APIError) as caught:
        await transport.request("POST", "/x", b"{}")
    assert (caught.value.code, caught.value.in_doubt) == (429, True)


async def test_a_rejection_of_every_try_is_not_in_doubt(server: ScriptedServer, transport: Transport) -> None:
    server.respond("POST", "/x", *[failure(429, "TooManyRequests", Retry_After="1")] * 11)
    with pytest.raises(APIError) as caught:
        await transport.request("POST", "/x", b"{}")
    assert (caught.value.code, caught.value.in_doubt) == (429, False)


async def test_the_error_of_a_refused_connection_names_server_and_problem(clock: AutoAdvancingClock) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with Transport(Credentials(url), clock=clock) as transport:
        with pytest.raises(Unreachable, match=f"^{url}: connection refused$"):
            await transport.request("GET", "/x")


async def test_a_connection_closed_before_the_response_is_unreachable(
    server: ScriptedServer, transport: Transport
) -> None:
    server.respond("POST", "/x", disconnect)
    with pytest.raises(Unreachable, match="connection closed before a response"):
        await transport.request("POST", "/x", b"{}")
    assert len(server.requests) == 1  # a POST is not retried


async def test_a_timeout_is_unreachable(server: ScriptedServer, clock: AutoAdvancingClock) -> None:
    async with Transport(Credentials(server.url), clock=clock, timeout=0.05) as transport:
        with pytest.raises(Unreachable, match="request timed out"):
            await transport.request("GET", "/never")


async def test_an_idle_stream_is_unreachable(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/watch", server.watch(b"{}\n"))
    received = []
    with pytest.raises(Unreachable, match="request timed out"):
        async with transport.stream("/watch", idle_timeout=0.05) as chunks:
            async for chunk in chunks:
                received.append(chunk)  # noqa: PERF401 - the chunks before the failure count
    assert received == [b"{}\n"]


async def test_a_rejected_stream_is_an_api_error(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", "/watch", failure(410, "Expired"))
    with pytest.raises(APIError, match="no"):
        async with transport.stream("/watch", idle_timeout=1):
            pass


async def test_the_rate_limiter_spaces_requests_after_the_burst(clock: AutoAdvancingClock) -> None:
    limiter = TokenBucketRateLimiter(RateLimit(10, 3), clock=clock)
    for _ in range(3):
        await limiter.wait()
    assert clock.slept == []
    await limiter.wait()
    await limiter.wait()
    assert clock.slept == pytest.approx([0.1, 0.1])


async def test_waiters_of_the_rate_limiter_are_served_in_order(manual_clock: ManualClock) -> None:
    limiter = TokenBucketRateLimiter(RateLimit(10, 1), clock=manual_clock)
    waiting = [asyncio.create_task(limiter.wait()) for _ in range(4)]
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False, False]
    await manual_clock.advance(0.1)
    assert [task.done() for task in waiting] == [True, True, False, False]
    await manual_clock.advance(0.2)
    assert all(task.done() for task in waiting)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "get", "OPTIONS"])
async def test_a_read_only_transport_sends_nothing_but_gets(
    server: ScriptedServer, clock: AutoAdvancingClock, method: str
) -> None:
    server.respond("GET", "/x", response())
    async with ReadOnlyTransport(Credentials(server.url), clock=clock) as transport:
        await transport.request("GET", "/x")
        for body in (None, b"{}"):
            with pytest.raises(ValueError, match="this client only reads"):
                await transport.request(method, "/x", body)
        with pytest.raises(ValueError, match="this client only reads"):
            await transport.request("GET", "/x", b"{}")
    assert [request.method for request in server.requests] == ["GET"]
