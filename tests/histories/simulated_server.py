"""The server of a history in virtual time, on one thread: the same seed gives the same history.

It is the API handler, the registry, the store and the database of the embedded API server with its group commit; only
connections are simulated. Its disk is slow and can fill up, its clock jumps, requests and answers take time on their
way, and the ready callbacks of the event loop run in an order that is drawn. A crash leaves a copy of the files at that
moment to the next server.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow.testing.virtual_time import VirtualClock
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders
from kubestow_devcluster.apiserver.kinds.kind import Scheme
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.resources.minor_versions import kinds_of_minor
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator, ServiceAccountTokens
from kubestow_devcluster.apiserver.security.authorization import AlwaysAllow
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.apiserver.storage.database import Database, GroupCommit
from kubestow_devcluster.cluster import create_system_objects
from kubestow_lab.fault_simulation.event_loop import ShuffledLoop
from tests.histories import crashes
from tests.histories.checks import check
from tests.histories.clients import Clients, Interrupted
from tests.histories.history import History, Violation
from tests.histories.watch_streams import newest_seen

T = TypeVar("T")


class SlowDisk(ShuffledLoop):
    """An event loop on which work for a thread, which is waiting for the disk, takes virtual time."""

    #: Seconds that the disk takes, at most.
    disk_seconds = 0.005

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        async def work() -> T:
            await asyncio.sleep(self._random.uniform(0, self.disk_seconds))
            return func(*args)

        return self.create_task(work())


class FailingDatabase(Database):
    """A database whose disk can fill up: in a transaction, at its end, or after it has been written."""

    failure = ""

    def write(self, writes: Any, resource_version: int) -> None:
        if self.failure == "write":
            pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
            self._connection.execute(f"PRAGMA max_page_count = {pages}")
        super().write(writes, resource_version)

    def commit(self, resource_version: int) -> None:
        if self.failure == "commit":
            raise sqlite3.OperationalError("database or disk is full")
        if self.failure == "answer":
            # The transaction is on the disk, and the error comes afterwards.
            self._connection.execute("COMMIT")
            raise sqlite3.OperationalError("disk I/O error")
        super().commit(resource_version)


#: Seconds that a request or an answer is on its way, at most.
_NETWORK_SECONDS = 0.004
#: How often a running server has another fault, in seconds.
_FAULT_INTERVAL = 0.05


class SimulatedServer:
    """One process of the server, until :meth:`crash` or :meth:`stop`."""

    def __init__(self, directory: Path, random: Random, clock: Callable[[], datetime]) -> None:
        self._directory, self._random = directory, random
        self._database = FailingDatabase(directory)
        served, hub_kinds = kinds_of_minor(DEFAULT_MINOR, None)
        scheme = Scheme(served, minor=DEFAULT_MINOR, hub_kinds=hub_kinds)
        self.store = self._database.load(scheme.selectable_fields())
        self._group_commit = GroupCommit(self.store, self._database)
        registry = Registry(self.store, scheme, clock=clock, random=random)
        create_system_objects(registry)
        tokens = ServiceAccountTokens(self.store, clock)
        self._api = APIHandler(
            registry, RequestAuthenticator({}, tokens, client_certificates=False), AlwaysAllow(), tokens
        )
        self._group_commit.start()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handlers: set[asyncio.Task[Any]] = set()
        #: Answers with the code 500.
        self.failures: list[str] = []

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Raises Interrupted if the server ends or its disk has failed."""
        response = await self._answer(method, path, body, content_type)
        content = response.body if response.chunks is None else b"".join(response.chunks)
        return response.status, msgspec.json.decode(content)

    async def watch(self, path: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """Raises Interrupted."""
        response = await self._answer("GET", path)
        assert response.stream is not None
        async with aclosing(response.stream) as stream:
            while True:
                handler = self._start(self._next_part(stream))
                try:
                    part = await self._unless_ended(handler)
                finally:
                    handler.cancel()
                    await asyncio.wait([handler])
                if part is None:
                    return
                await self._travel()
                for line in part.splitlines():
                    yield msgspec.json.decode(line)

    async def crash(self, directory: Path) -> None:
        """End at once; what is in the files by now is in ``directory`` afterwards."""
        crashes.copy_files(self._directory, directory)
        self._database.failure = "commit"
        self._database.close()
        await self._end()

    async def stop(self) -> None:
        """End as after SIGTERM."""
        await self._end()
        await self._group_commit.stop()

    def fill_disk(self, failure: str) -> None:
        """From now on a commit fails: in ``write``, in ``commit``, or with its ``answer``."""
        self._database.failure = failure

    async def _end(self) -> None:
        self._ended.set_result(None)
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = ""
    ) -> HTTPResponse:
        route, _, query = path.partition("?")
        content = b"" if body is None else msgspec.json.encode(body)
        headers = RequestHeaders(content_type=content_type)
        request = Request(method, route, dict(parse_qsl(query, keep_blank_values=True)), headers, content)
        response = await self._unless_ended(self._start(self._handle(request)))
        await self._travel()
        if response.status == 500:
            self.failures.append(response.body.decode())
            raise Interrupted
        return response

    async def _handle(self, request: Request) -> HTTPResponse:
        await asyncio.sleep(self._random.uniform(0, _NETWORK_SECONDS))
        response = await self._api.handle(request)
        try:
            await self._group_commit.wait_durable()
        except StatusError as error:
            return HTTPResponse.error(error)
        return response

    async def _next_part(self, stream: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next part of a watch, once it is durable; None at its end."""
        part = await anext(stream, None)
        try:
            await self._group_commit.wait_durable()
        except StatusError:
            raise Interrupted from None
        return part

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work of the server, which goes on when the client of a request gives up."""
        handler = asyncio.create_task(work)
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        return handler

    async def _unless_ended(self, handler: asyncio.Task[T]) -> T:
        """The result of work of the server. Raises Interrupted."""
        await asyncio.wait((handler, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            raise Interrupted
        return handler.result()

    async def _travel(self) -> None:
        """The way of an answer to its client."""
        await asyncio.sleep(self._random.uniform(0, _NETWORK_SECONDS))
        if self._ended.done():
            raise Interrupted


class JumpingClock:
    """Virtual time that jumps."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = VirtualClock(loop)
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return self._clock.now() + self.offset


async def _disturb(server: SimulatedServer, clock: JumpingClock, random: Random) -> None:
    """Slow the disk down, set the clock and drop old events, until cancelled."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SlowDisk)
    while True:
        await asyncio.sleep(random.uniform(0, 2 * _FAULT_INTERVAL))
        match random.choice(("disk", "clock", "compaction")):
            case "disk":
                loop.disk_seconds = random.choice((0.0005, 0.005, 0.2))
            case "clock":
                clock.offset += timedelta(seconds=random.choice((-86_400, -60, 60, 86_400)))
            case "compaction":
                server.store.compact(max(0, server.store.resource_version - random.randrange(30)))


async def _run(directory: Path, random: Random, crash_count: int) -> tuple[Clients, list[Violation]]:
    loop = asyncio.get_running_loop()
    clock, clients, violations = JumpingClock(loop), Clients(random), list[Violation]()
    for number in range(crash_count):
        server = SimulatedServer(directory / str(number), random, clock)
        disturbance = asyncio.create_task(_disturb(server, clock, random))
        following = directory / str(number + 1)
        seconds = random.uniform(0.05, 0.5)
        end = random.choice(("kill", "kill", "power", "power", "full disk", "stop"))
        running = asyncio.create_task(clients.run(server, seconds=10.0 if end in ("kill", "power") else seconds))
        if end in ("kill", "power"):
            await asyncio.sleep(seconds)
        elif end == "full disk":
            server.fill_disk(random.choice(("write", "commit", "answer")))
            await running
        else:
            await running
            await clients.catch_up(server)
        if end == "stop":
            await server.stop()
            crashes.copy_files(directory / str(number), following)
        else:
            await server.crash(following)
        disturbance.cancel()
        await running
        clients.interrupt()
        if end == "power":
            crashes.tear_log(following, random, seen=newest_seen(clients.history))
        if server.failures and end != "full disk":
            violations.append(Violation("requests fail only if the disk does", server.failures[0]))
    server = SimulatedServer(directory / str(crash_count), random, clock)
    await clients.catch_up(server)
    await server.stop()
    return clients, violations


def simulate(directory: Path, seed: int, *, crash_count: int = 4) -> tuple[History, list[Violation]]:
    """The history of a seed, with so many crashes, and all rules that it breaks."""
    random = Random(seed)
    with asyncio.Runner(loop_factory=lambda: SlowDisk(random)) as runner:
        clients, violations = runner.run(_run(directory, random, crash_count))
    return clients.history, violations + clients.violations + check(clients.history)
