"""The secure port while the event loop of its component is busy: probes are answered, everything else waits."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator

import pytest

from core_tests.hang_limit import HANG_LIMIT
from core_tests.serving.harness import ALLOW_ALL, secure_port
from kubestow.http.messages import HTTPResponse, PathMux
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.process import LOOP_ALLOWANCE, LoopThread, WallClock, run_on, stream_from
from kubestow.serving.secure_server import SecureServer


class FastClock(WallClock):
    """The system's clock, set forward by ``ahead`` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def get(server: SecureServer, path: str) -> tuple[int, str]:
    """Send a request and wait for its response, which blocks the event loop of this test."""
    context = ssl.create_default_context(cadata=server.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    url = f"https://localhost:{server.port}{path}"
    try:
        with urllib.request.urlopen(url, context=context, timeout=HANG_LIMIT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/livez?verbose", "/livez/event-loop", "/metrics/slis"])
async def test_probes_are_answered_while_the_event_loop_is_blocked(path: str) -> None:
    async with secure_port() as server:
        status, _ = get(server.serving, path)
        assert status == 200


async def test_readiness_is_answered_while_the_event_loop_is_blocked() -> None:
    async with secure_port() as server:
        status, text = get(server.serving, "/readyz")
        assert status == 500
        assert "[-]sched-handler-sync failed" in text
        assert "[+]event-loop ok" in text


async def test_an_event_loop_that_is_blocked_for_longer_than_its_allowance_is_dead() -> None:
    clock = FastClock()
    async with secure_port(clock=clock) as server:
        clock.ahead = LOOP_ALLOWANCE - 5.0
        assert get(server.serving, "/livez") == (200, "ok")
        clock.ahead = LOOP_ALLOWANCE + 1.0
        for endpoint in ("healthz", "livez", "readyz"):
            assert get(server.serving, f"/{endpoint}")[0] == 500
        status, text = get(server.serving, "/livez/event-loop")
        assert (status, text[:64]) == (500, "internal server error: no sign of life of the event loop for 46 ")
        server.heartbeat.beat()
        assert get(server.serving, "/livez") == (200, "ok")


async def test_other_handlers_run_on_the_event_loop_of_the_component() -> None:
    threads = []

    def handle(request: object) -> HTTPResponse:
        threads.append(threading.get_ident())
        return HTTPResponse.text("ok")

    mux = PathMux(paths={"/configz": handle}, prefixes={}, deletions={})
    async with SecureServer(ALLOW_ALL, mux, SchedulerMetrics(), clock=WallClock()) as server:
        assert await asyncio.to_thread(get, server, "/configz") == (200, "ok")
    assert threads == [threading.get_ident()]


async def test_a_stream_of_another_thread_is_read_and_closed_there() -> None:
    async with LoopThread("other") as other:
        threads: list[int] = []
        closed = threading.Event()

        async def stream() -> AsyncGenerator[bytes, None]:
            try:
                for number in range(3):
                    threads.append(threading.get_ident())
                    yield str(number).encode()
                await asyncio.Event().wait()
            finally:
                threads.append(threading.get_ident())
                closed.set()

        parts = stream_from(other.loop, stream())
        assert [await anext(parts) for _ in range(3)] == [b"0", b"1", b"2"]
        waiting = asyncio.create_task(anext(parts))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert closed.is_set()
        assert set(threads) == {await run_on(other.loop, ident())}
        assert not await other.run(tasks_left())

        idle = stream_from(other.loop, stream())
        closed.clear()
        await anext(idle)
        await idle.aclose()
        assert closed.is_set()


async def ident() -> int:
    """The thread of the event loop."""
    return threading.get_ident()


async def tasks_left() -> list[str]:
    """The tasks of the event loop but this one."""
    return [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
