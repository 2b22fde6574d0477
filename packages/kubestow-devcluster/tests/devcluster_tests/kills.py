"""Crash consistency: kills a server under load repeatedly, and checks that no acknowledged write is lost.

    python -m devcluster_tests.kills --kills 1000

Each round starts a server on the same directory, compares its state with what clients of the previous rounds know,
runs writers that create, update and delete objects and a watcher that follows them, and kills the server with SIGKILL
at a random time. A write without a response can have happened or not; every acknowledged or watched write must have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import click
import msgspec

PATH = "/api/v1/namespaces/default/configmaps"
WRITERS = 16
#: Seconds of load before a kill, at most.
MAX_LOAD = 0.3

Object = dict[str, Any]


@dataclass
class Tally:
    kills: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    watched: int = 0


@dataclass
class Ledger:
    """What clients know: the acknowledged objects, the pending writes, and the newest resourceVersion seen."""

    known: dict[str, Object] = field(default_factory=dict)
    #: Name -> the value that a pending write sets; None for a delete.
    pending: dict[str, str | None] = field(default_factory=dict)
    #: Name -> the resourceVersion of the last watch event.
    watched: dict[str, int] = field(default_factory=dict)
    newest: int = 0

    def record_version(self, resource_version: str) -> None:
        self.newest = max(self.newest, int(resource_version))

    def acknowledge(self, name: str, obj: Object | None) -> None:
        """Record the response to the pending write of an object; None for a delete."""
        del self.pending[name]
        if obj is None:
            del self.known[name]
        else:
            self.known[name] = obj
            self.record_version(obj["metadata"]["resourceVersion"])

    def check(self, found: dict[str, Object], resource_version: str) -> None:
        """Compare the state after a restart with the ledger, and continue from that state."""
        assert int(resource_version) >= self.newest, f"the version went from {self.newest} back to {resource_version}"
        for name in self.known.keys() | found.keys():
            self._check_object(name, found.get(name))
        for name, version in self.watched.items():
            exists = name in found and int(found[name]["metadata"]["resourceVersion"]) >= version
            is_deleted = name not in found and (name not in self.known or self.pending.get(name, "") is None)
            assert exists or is_deleted, f"{name} was watched at {version} and is lost"
        self.known, self.pending, self.watched = found, {}, {}
        self.record_version(resource_version)

    def _check_object(self, name: str, found: Object | None) -> None:
        if found == self.known.get(name):
            return
        assert name in self.pending, f"{name} was acknowledged as {self.known.get(name)} and is {found}"
        value = None if found is None else found["data"]["value"]
        assert value == self.pending[name], f"{name} is {found}, which was never written"


def _serve(directory: str, ready: Connection) -> None:
    from kubestow_devcluster.apiserver.storage.database import Database
    from kubestow_devcluster.cluster import DevCluster

    async def serve() -> None:
        async with DevCluster(database=Database(Path(directory)), kubelets=False) as server:
            ready.send(server.url)
            await server.failed()

    asyncio.run(serve())


class _Round:
    """The clients of one server process."""

    def __init__(self, session: aiohttp.ClientSession, ledger: Ledger, random: Random, tally: Tally) -> None:
        self._session, self._ledger, self._random, self._tally = session, ledger, random, tally

    async def check(self) -> None:
        async with self._session.get(PATH) as response:
            listed = await response.json()
        found = {one["metadata"]["name"]: one for one in listed["items"]}
        self._ledger.check(found, listed["metadata"]["resourceVersion"])

    async def write(self, writer: int) -> None:
        """Write until the server is killed. Writers do not share names."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while True:
                await self._write_object(f"w{writer}-{self._random.randrange(12)}")
                self._tally.acknowledged += 1

    async def _write_object(self, name: str) -> None:
        ledger, session, value = self._ledger, self._session, f"{self._random.getrandbits(64):x}"
        new = {"metadata": {"name": name}, "data": {"value": value, "ballast": "x" * self._random.randrange(3000)}}
        if name not in ledger.known:
            ledger.pending[name] = value
            request = session.post(PATH, json=new)
        elif self._random.random() < 0.3:
            ledger.pending[name] = None
            request = session.delete(f"{PATH}/{name}")
        else:
            ledger.pending[name] = value
            request = session.put(f"{PATH}/{name}", json=new)
        async with request as response:
            body = await response.json()
            assert response.status in (200, 201), body
        body.pop("kind"), body.pop("apiVersion")
        ledger.acknowledge(name, body if "data" in body else None)

    async def watch(self) -> None:
        path = f"{PATH}?watch=1&resourceVersion={self._ledger.newest}"
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session.get(path) as response:
                async for line in response.content:
                    self._record(msgspec.json.decode(line))

    def _record(self, event: Object) -> None:
        metadata = event["object"]["metadata"]
        self._ledger.record_version(metadata["resourceVersion"])
        self._tally.watched += 1
        if event["type"] == "DELETED":
            self._ledger.watched.pop(metadata["name"], None)
        else:
            self._ledger.watched[metadata["name"]] = int(metadata["resourceVersion"])


@asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[tuple[str, multiprocessing.process.BaseProcess]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kubestow_devcluster.apiserver", __name__])
    receiver, sender = context.Pipe()
    process = context.Process(target=_serve, args=(str(directory), sender))
    process.start()
    sender.close()
    try:
        yield await asyncio.to_thread(receiver.recv), process
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()
        receiver.close()


async def kill_repeatedly(directory: Path, kills: int, *, seed: int) -> Tally:
    """Raises AssertionError when a write is lost, or the state was never written."""
    random, ledger, tally = Random(seed), Ledger(), Tally()
    for number in range(kills + 1):
        async with _server(directory) as (url, process), aiohttp.ClientSession(url) as session:
            clients = _Round(session, ledger, random, tally)
            await clients.check()
            if number == kills:
                return tally
            tasks = [asyncio.create_task(clients.write(writer)) for writer in range(WRITERS)]
            tasks.append(asyncio.create_task(clients.watch()))
            await asyncio.sleep(random.uniform(0, MAX_LOAD))
            process.kill()
            await asyncio.gather(*tasks)
        tally.kills += 1
        tally.unacknowledged += len(ledger.pending)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a server under load and check that no write is lost.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        tally = asyncio.run(kill_repeatedly(Path(directory), arguments.kills, seed=arguments.seed))
    click.echo(
        f"{tally.kills} kills in {time.perf_counter() - start:.0f} s: {tally.acknowledged:,} writes acknowledged,"
        f" {tally.unacknowledged:,} interrupted, {tally.watched:,} events watched; nothing lost"
    )


if __name__ == "__main__":
    main()
