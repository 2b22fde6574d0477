"""The server of a history as a process, behind real connections and on a real disk.

The faults of a process are real: SIGKILL, SIGSTOP, and a file size limit for a full disk, at which writes fail in the
middle. Its clock, how long a commit takes, and the end of its watch history are set from outside over a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import aiohttp
import msgspec

from kubestow_devcluster.apiserver.server.api_server import wall_clock
from kubestow_devcluster.apiserver.storage.database import Database, StorageFailed
from kubestow_devcluster.cluster import DevCluster
from tests.histories import crashes
from tests.histories.checks import check
from tests.histories.clients import Clients, Interrupted
from tests.histories.history import History, Violation
from tests.histories.watch_streams import newest_seen

#: Seconds until a request without an answer counts as lost.
_REQUEST_TIMEOUT = 60.0
#: How often a running server has another fault, in seconds.
_FAULT_INTERVAL = 0.15


class Setting(NamedTuple):
    """What a running server is told: seconds of a commit, seconds that its clock is wrong, or events to drop."""

    name: Literal["commit", "clock", "compact"]
    value: float


class _SlowDatabase(Database):
    """A database whose commits take a while longer."""

    seconds = 0.0

    def commit(self, resource_version: int) -> None:
        time.sleep(self.seconds)
        super().commit(resource_version)


def _serve(directory: str, pipe: Connection) -> None:
    """The program of the process; it ends with SIGTERM, or when its disk fails."""
    offset = timedelta()

    def clock() -> datetime:
        return wall_clock() + offset

    async def serve() -> None:
        database = _SlowDatabase(Path(directory))
        async with DevCluster(database=database, kubelets=False, clock=clock) as server:

            def read_setting() -> None:
                nonlocal offset
                try:
                    name, value = pipe.recv()
                except EOFError:
                    asyncio.get_running_loop().remove_reader(pipe.fileno())
                    return
                if name == "commit":
                    database.seconds = value
                elif name == "clock":
                    offset = timedelta(seconds=value)
                else:
                    server.store.compact(max(0, server.store.resource_version - int(value)))

            loop = asyncio.get_running_loop()
            loop.add_reader(pipe.fileno(), read_setting)
            failed, stopped = asyncio.create_task(server.failed()), asyncio.Event()
            loop.add_signal_handler(signal.SIGTERM, stopped.set)
            pipe.send(server.url)
            await asyncio.wait((failed, asyncio.create_task(stopped.wait())), return_when=asyncio.FIRST_COMPLETED)
            failed.cancel()

    with contextlib.suppress(StorageFailed):
        asyncio.run(serve())


class ServerProcess:
    """A running server."""

    def __init__(self, url: str, process: BaseProcess, pipe: Connection, session: aiohttp.ClientSession) -> None:
        self._url, self._process, self._pipe, self._session = url, process, pipe, session
        #: Answers with the code 500.
        self.failures: list[str] = []

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Raises Interrupted if the connection ends, or the disk of the server has failed."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        try:
            async with self._session.request(method, f"{self._url}{path}", data=content, headers=headers) as response:
                answered = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Interrupted from None
        if response.status == 500:
            self.failures.append(answered.decode())
            raise Interrupted
        return response.status, msgspec.json.decode(answered)

    async def watch(self, path: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """Raises Interrupted."""
        try:
            async with self._session.get(f"{self._url}{path}") as response:
                if response.status == 500:
                    self.failures.append(await response.text())
                    raise Interrupted
                async for line in response.content:
                    yield msgspec.json.decode(line)
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Interrupted from None

    def set(self, setting: Setting) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(tuple(setting))

    def signal(self, number: signal.Signals) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def fill_disk(self, size: int) -> None:
        """No file of the process may grow beyond ``size`` bytes."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # it has ended
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def wait(self) -> None:
        await asyncio.to_thread(self._process.join)


@asynccontextmanager
async def running_server(directory: Path) -> AsyncIterator[ServerProcess]:
    """A server on a directory; it is killed on exit."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kubestow_devcluster.cluster", __name__])
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(str(directory), its))
    process.start()
    its.close()
    try:
        url = await asyncio.to_thread(ours.recv)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT)) as session:
            yield ServerProcess(url, process, ours, session)
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()
        ours.close()


async def _disturb(server: ServerProcess, random: Random) -> None:
    """Slow commits down, set the clock, drop old events and stop the process for a moment, until cancelled."""
    while True:
        await asyncio.sleep(random.uniform(0, 2 * _FAULT_INTERVAL))
        match random.choice(("commit", "clock", "compact", "pause")):
            case "commit":
                server.set(Setting("commit", random.choice((0.0, 0.01, 0.3))))
            case "clock":
                server.set(Setting("clock", random.choice((0, -86_400, -60, 60, 86_400))))
            case "compact":
                server.set(Setting("compact", random.randrange(60)))
            case "pause":
                server.signal(signal.SIGSTOP)
                try:
                    await asyncio.sleep(random.uniform(0, 0.2))
                finally:
                    server.signal(signal.SIGCONT)


End = Literal["kill", "power", "full disk", "stop"]
#: How a process ends, by how often.
_ENDS: tuple[End, ...] = ("kill", "kill", "kill", "power", "power", "full disk", "stop")


def draw_ends(seed: int, count: int) -> list[End]:
    return Random(seed).choices(_ENDS, k=count)


async def record(directory: Path, seed: int, ends: Sequence[End]) -> tuple[History, list[Violation]]:
    """A history over processes on one directory, one for each of ``ends`` and one more, and all rules that it breaks.

    ``seed`` draws the requests and the faults; what comes of them depends on time.
    """
    random = Random(seed)
    clients, violations = Clients(random, writers=6), list[Violation]()
    for end in ends:
        async with running_server(directory) as server:
            if random.random() < 0.3:
                await clients.catch_up(server)
            disturbance = asyncio.create_task(_disturb(server, random))
            running = asyncio.create_task(clients.run(server, seconds=_REQUEST_TIMEOUT))
            await asyncio.sleep(random.uniform(0.1, 1.5))
            disturbance.cancel()
            await asyncio.gather(disturbance, return_exceptions=True)
            if end == "full disk":
                size = (directory / crashes.LOG).stat().st_size
                server.fill_disk(size + random.randrange(20_000))
                # The log may still have room from before; then the disk is full at once.
                await asyncio.sleep(random.uniform(0, 1))
                server.fill_disk(0)
                await server.wait()
            else:
                server.signal(signal.SIGTERM if end == "stop" else signal.SIGKILL)
                await server.wait()
            await running
            if server.failures and end != "full disk":
                violations.append(Violation("requests fail only if the disk does", server.failures[0]))
        clients.interrupt()
        if end == "power":
            crashes.tear_log(directory, random, seen=newest_seen(clients.history))
    async with running_server(directory) as server:
        await clients.catch_up(server)
    return clients.history, violations + clients.violations + check(clients.history)
