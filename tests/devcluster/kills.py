"""Killing the server under load, over and over, and looking for what it had promised.

    python -m tests.devcluster.kills --kills 1000

Each round starts a server on the same directory, checks that it holds exactly what the rounds before were told, lets
writers create, change and delete objects, and a watcher follow them, and ends the server with SIGKILL at a random
moment. A write without an answer may have happened or not; everything that was answered, or seen by the watcher, has.
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

__all__ = ["Ledger", "Tally", "kill_over_and_over"]

PATH = "/api/v1/namespaces/default/configmaps"
WRITERS = 16
#: Seconds of load before a kill, at most.
LONGEST = 0.3

Object = dict[str, Any]


@dataclass
class Tally:
    kills: int = 0
    answered: int = 0
    unanswered: int = 0
    seen: int = 0


@dataclass
class Ledger:
    """What clients know: objects as last answered, writes still without an answer, and the newest version seen."""

    known: dict[str, Object] = field(default_factory=dict)
    #: By name, the value an unanswered write would give the object; None where it would be gone.
    unanswered: dict[str, str | None] = field(default_factory=dict)
    watched: dict[str, int] = field(default_factory=dict)
    newest: int = 0

    def saw(self, version: str) -> None:
        self.newest = max(self.newest, int(version))

    def answered(self, name: str, found: Object | None) -> None:
        del self.unanswered[name]
        if found is None:
            del self.known[name]
        else:
            self.known[name] = found
            self.saw(found["metadata"]["resourceVersion"])

    def check(self, found: dict[str, Object], version: str) -> None:
        """Hold the state of a server that has started again to what is known, then go on from that state."""
        assert int(version) >= self.newest, f"the version went back from {self.newest} to {version}"
        for name in self.known.keys() | found.keys():
            self._check_one(name, found.get(name))
        for name, seen in self.watched.items():
            there = name in found and int(found[name]["metadata"]["resourceVersion"]) >= seen
            gone = name not in found and (name not in self.known or self.unanswered.get(name, "") is None)
            assert there or gone, f"{name} was watched at {seen} and is lost"
        self.known, self.unanswered, self.watched = found, {}, {}
        self.saw(version)

    def _check_one(self, name: str, found: Object | None) -> None:
        if found == self.known.get(name):
            return
        assert name in self.unanswered, f"{name} was answered as {self.known.get(name)} and is {found}"
        value = None if found is None else found["data"]["value"]
        assert value == self.unanswered[name], f"{name} is {found}, which nobody wrote"


def _serve(directory: str, ready: Connection) -> None:
    from kubestow.devcluster.apiserver.storage.database import Database
    from kubestow.devcluster.cluster import DevCluster

    async def serve() -> None:
        async with DevCluster(database=Database(Path(directory)), kubelets=False) as server:
            ready.send(server.url)
            await server.failed()

    asyncio.run(serve())


class _Round:
    def __init__(self, session: aiohttp.ClientSession, ledger: Ledger, random: Random, tally: Tally) -> None:
        self._session, self._ledger, self._random, self._tally = session, ledger, random, tally

    async def check(self) -> None:
        async with self._session.get(PATH) as response:
            listed = await response.json()
        found = {one["metadata"]["name"]: one for one in listed["items"]}
        self._ledger.check(found, listed["metadata"]["resourceVersion"])

    async def write(self, writer: int) -> None:
        """Write until the server is gone; each writer has names of its own."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while True:
                name = f"w{writer}-{self._random.randrange(12)}"
                await self._write_one(name)
                self._tally.answered += 1

    async def _write_one(self, name: str) -> None:
        ledger, session, value = self._ledger, self._session, f"{self._random.getrandbits(64):x}"
        written = {"metadata": {"name": name}, "data": {"value": value, "ballast": "x" * self._random.randrange(3000)}}
        if name not in ledger.known:
            ledger.unanswered[name] = value
            request = session.post(PATH, json=written)
        elif self._random.random() < 0.3:
            ledger.unanswered[name] = None
            request = session.delete(f"{PATH}/{name}")
        else:
            ledger.unanswered[name] = value
            request = session.put(f"{PATH}/{name}", json=written)
        async with request as response:
            answer = await response.json()
            assert response.status in (200, 201), answer
        answer.pop("kind"), answer.pop("apiVersion")
        ledger.answered(name, answer if "data" in answer else None)

    async def watch(self) -> None:
        path = f"{PATH}?watch=1&resourceVersion={self._ledger.newest}"
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session.get(path) as response:
                async for line in response.content:
                    await self._observe(line)

    async def _observe(self, line: bytes) -> None:
        event = msgspec.json.decode(line)
        identity = event["object"]["metadata"]
        self._ledger.saw(identity["resourceVersion"])
        self._tally.seen += 1
        if event["type"] == "DELETED":
            self._ledger.watched.pop(identity["name"], None)
        else:
            self._ledger.watched[identity["name"]] = int(identity["resourceVersion"])


@asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[tuple[str, multiprocessing.process.BaseProcess]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kubestow.devcluster.apiserver", __name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(directory), theirs))
    process.start()
    theirs.close()
    try:
        yield await asyncio.to_thread(ours.recv), process
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()
        ours.close()


async def kill_over_and_over(directory: Path, kills: int, *, seed: int) -> Tally:
    """Raises AssertionError when anything is missing, has gone back, or was made up."""
    random, ledger, tally = Random(seed), Ledger(), Tally()
    for number in range(kills + 1):
        async with _server(directory) as (url, process), aiohttp.ClientSession(url) as session:
            one = _Round(session, ledger, random, tally)
            await one.check()
            if number == kills:
                return tally
            tasks = [asyncio.create_task(one.write(writer)) for writer in range(WRITERS)]
            tasks.append(asyncio.create_task(one.watch()))
            await asyncio.sleep(random.uniform(0, LONGEST))
            process.kill()
            await asyncio.gather(*tasks)
        tally.kills += 1
        tally.unanswered += len(ledger.unanswered)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a server under load and look for what is missing.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        tally = asyncio.run(kill_over_and_over(Path(directory), arguments.kills, seed=arguments.seed))
    click.echo(
        f"{tally.kills} kills in {time.perf_counter() - began:.0f} s: {tally.answered:,} writes answered,"
        f" {tally.unanswered:,} cut short, {tally.seen:,} events seen; nothing missing"
    )


if __name__ == "__main__":
    main()
