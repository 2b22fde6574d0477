"""One request: what is sent, what comes back, how failures are told."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.rate_limiter import RateLimit
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.version import VERSION
from tests.client.clocks import HeldClock, LeapingClock
from tests.client.scripted_server import ScriptedServer, answer, disconnect, failure


async def test_a_request_carries_our_name_and_the_body_as_given(server: ScriptedServer, transport: Transport) -> None:
    server.answers("POST", "/api/v1/things", answer(201, {"kind": "Thing"}))
    assert await transport.request("POST", "/api/v1/things?dryRun=All", b'{"a":1}') == b'{"kind": "Thing"}'
    (asked,) = server.asked
    assert asked.text == '{"a":1}'
    assert asked.query == {"dryRun": "All"}
    assert asked.headers["User-Agent"] == f"kubestow/{VERSION}"
    assert asked.headers["Content-Type"] == asked.headers["Accept"] == "application/json"


async def test_percent_encoding_in_a_path_is_left_as_it_is(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/api/v1/pods", answer())
    await transport.request("GET", "/api/v1/pods?fieldSelector=status.phase%21%3DFailed%2Ca%3Db")
    assert server.asked[0].query == {"fieldSelector": "status.phase!=Failed,a=b"}


async def test_requests_one_after_the_other_share_a_connection(server: ScriptedServer, transport: Transport) -> None:
    ports: set[object] = set()

    async def remember_port(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return await answer()(request)

    server.answers("GET", "/x", *[remember_port] * 3)
    for _ in range(3):
        await transport.request("GET", "/x")
    assert len(ports) == 1


async def test_a_failure_status_is_told_in_its_own_words(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/x", failure(409, "Conflict", "pod b1 is already assigned"))
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert str(caught.value) == "pod b1 is already assigned"


async def test_a_failure_of_something_in_between_keeps_its_code(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/x", answer(502, b"<html>\n upstream is gone</html>"))
    with pytest.raises(APIError, match="502 Bad Gateway: <html> upstream is gone") as caught:
        await transport.request("GET", "/x")
    assert caught.value.code == 502


async def test_a_redirect_is_not_followed(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/x", answer(302, Location="/y"))
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert caught.value.code == 302


async def test_a_server_that_asks_for_patience_is_asked_again(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    server.answers("GET", "/x", failure(429, "TooManyRequests", Retry_After="2"), answer(200, {"ok": True}))
    assert await transport.request("GET", "/x") == b'{"ok": true}'
    assert clock.slept == [2.0]


@pytest.mark.parametrize("seconds", ["3600", "9" * 400])
async def test_nobody_is_waited_for_longer_than_a_minute(
    server: ScriptedServer, transport: Transport, clock: LeapingClock, seconds: str
) -> None:
    server.answers("GET", "/x", failure(503, "Service Unavailable", Retry_After=seconds), answer(200, {"ok": True}))
    await transport.request("GET", "/x")
    assert clock.slept == [60.0]


async def test_patience_ends_after_ten_retries(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    server.answers("GET", "/x", *[failure(503, "ServiceUnavailable", Retry_After="1")] * 20)
    with pytest.raises(APIError) as caught:
        await transport.request("GET", "/x")
    assert caught.value.retry_after == 1.0
    assert len(server.asked) == 11


async def test_what_is_refused_after_a_failure_that_may_have_done_it_is_in_doubt(
    server: ScriptedServer, transport: Transport
) -> None:
    lost = failure(500, "InternalError", Retry_After="1")
    server.answers("POST", "/x", lost, *[failure(429, "TooManyRequests", Retry_After="1")] * 10)
    with pytest.raises(APIError) as caught:
        await transport.request("POST", "/x", b"{}")
    assert (caught.value.code, caught.value.in_doubt) == (429, True)


async def test_what_is_refused_at_once_is_in_no_doubt(server: ScriptedServer, transport: Transport) -> None:
    server.answers("POST", "/x", *[failure(429, "TooManyRequests", Retry_After="1")] * 11)
    with pytest.raises(APIError) as caught:
        await transport.request("POST", "/x", b"{}")
    assert (caught.value.code, caught.value.in_doubt) == (429, False)


async def test_a_refused_connection_names_server_and_problem(clock: LeapingClock) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with Transport(Credentials(url), clock=clock) as transport:
        with pytest.raises(Unreachable, match=f"^{url}: connection refused$"):
            await transport.request("GET", "/x")


async def test_a_connection_closed_without_an_answer_is_unreachable(
    server: ScriptedServer, transport: Transport
) -> None:
    server.answers("POST", "/x", disconnect)
    with pytest.raises(Unreachable, match="closed the connection without an answer"):
        await transport.request("POST", "/x", b"{}")
    assert len(server.asked) == 1  # a POST is not repeated by itself


async def test_an_answer_that_does_not_come_is_unreachable(server: ScriptedServer, clock: LeapingClock) -> None:
    async with Transport(Credentials(server.url), clock=clock, timeout=0.05) as transport:
        with pytest.raises(Unreachable, match="no answer in time"):
            await transport.request("GET", "/never")


async def test_a_silent_stream_is_unreachable(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/watch", server.watch(b"{}\n"))
    received = []
    with pytest.raises(Unreachable, match="no answer in time"):
        async with transport.stream("/watch", silence=0.05) as chunks:
            async for chunk in chunks:
                received.append(chunk)  # noqa: PERF401 - the chunks before the failure count
    assert received == [b"{}\n"]


async def test_a_stream_refused_is_an_api_error(server: ScriptedServer, transport: Transport) -> None:
    server.answers("GET", "/watch", failure(410, "Expired"))
    with pytest.raises(APIError, match="no"):
        async with transport.stream("/watch", silence=1):
            pass


async def test_the_rate_limit_lets_a_burst_pass_and_then_spaces_requests(clock: LeapingClock) -> None:
    limit = RateLimit(qps=10, burst=3, clock=clock)
    for _ in range(3):
        await limit.wait()
    assert clock.slept == []
    await limit.wait()
    await limit.wait()
    assert clock.slept == pytest.approx([0.1, 0.1])


async def test_those_who_wait_for_the_rate_limit_are_served_one_by_one(held_clock: HeldClock) -> None:
    limit = RateLimit(qps=10, burst=1, clock=held_clock)
    waiting = [asyncio.create_task(limit.wait()) for _ in range(4)]
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False, False]
    await held_clock.advance(0.1)
    assert [task.done() for task in waiting] == [True, True, False, False]
    await held_clock.advance(0.2)
    assert all(task.done() for task in waiting)
