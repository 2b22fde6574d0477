"""The embedded API server: creates, binds, lists, watches, start-up, memory.

    python benchmarks/apiserver.py [--pods 50000] [--watchers 100] [--data-dir NEW]

The server runs in its own process, the clients in this one, over loopback. Rates are in wall-clock time. ``cpu`` is the
CPU time of the server process per operation; it is comparable between machines under different load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

CONNECTIONS = 32
HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}


@dataclass
class ServerProcess:
    url: str
    pid: int
    started_in: float

    def cpu(self) -> float:
        """CPU time so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Resident memory, in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(*arguments: str) -> Iterator[ServerProcess]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "kubestow", "apiserver", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = ""
    for line in process.stdout:
        url = line.split()[-1] if "http://" in line else url
        if line.strip() == "ready":
            break
    try:
        yield ServerProcess(url, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()


def pod(number: int) -> bytes:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    containers = [{"name": "c", "image": "registry.k8s.io/pause:3.10.1", "resources": resources}]
    metadata = {"name": f"pod-{number:06d}", "labels": {"app": f"app-{number % 50}"}}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    )


async def in_parallel(count: int, act: Callable[[int], Awaitable[None]]) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await act(number)

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))


async def rate(name: str, server: ServerProcess, count: int, act: Callable[[int], Awaitable[None]]) -> None:
    cpu, began = server.cpu(), time.perf_counter()
    await in_parallel(count, act)
    took, spent = time.perf_counter() - began, server.cpu() - cpu
    print(f"{name:<28} {count / took:>9,.0f} /s   cpu {spent / count * 1e6:>6.0f} us each")


async def creates_and_binds(session: aiohttp.ClientSession, server: ServerProcess, pods: int) -> None:
    bodies = [pod(number) for number in range(pods)]
    path = f"{server.url}/api/v1/namespaces/default/pods"

    async def create(number: int) -> None:
        async with session.post(path, data=bodies[number], headers=HEADERS) as response:
            assert response.status == 201, await response.text()
            await response.read()

    async def bind(number: int) -> None:
        name = f"pod-{number:06d}"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": "n"},
        }
        data = msgspec.json.encode(binding)
        async with session.post(f"{path}/{name}/binding", data=data, headers=HEADERS) as response:
            assert response.status == 201, await response.text()
            await response.read()

    before = server.memory()
    await rate("creates", server, pods, create)
    await rate("binds", server, pods, bind)
    size = len(await (await session.get(path, headers=HEADERS)).read()) / pods
    print(f"{'memory':<28} {(server.memory() - before) / pods:>9,.0f} bytes per pod of {size:,.0f} bytes of JSON")


async def list_all(session: aiohttp.ClientSession, server: ServerProcess, pods: int) -> None:
    for encoding in ("identity", "gzip"):
        cpu, began = server.cpu(), time.perf_counter()
        headers = HEADERS | {"Accept-Encoding": encoding}
        async with session.get(f"{server.url}/api/v1/pods", headers=headers) as response:
            size = len(await response.read())
        took = time.perf_counter() - began
        name = f"list of {pods:,} ({encoding})"
        print(f"{name:<28} {took:>9.2f} s    cpu {server.cpu() - cpu:.2f} s, {size / 1e6:.0f} MB")


async def watches(
    session: aiohttp.ClientSession, server: ServerProcess, watchers: int, events: int, per_second: int
) -> None:
    """Patch one node ``events`` times at a constant rate; every watcher counts the events it receives."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    path = f"{server.url}/api/v1/nodes"
    async with session.post(path, data=msgspec.json.encode(node), headers=HEADERS) as response:
        version = (await response.json())["metadata"]["resourceVersion"]
    counts = [0] * watchers
    latest = [0.0] * watchers

    async def follow(number: int) -> None:
        async with session.get(f"{path}?watch=1&resourceVersion={version}", headers=HEADERS) as response:
            async for part in response.content.iter_any():
                counts[number] += part.count(b"\n")
                if counts[number] >= events:
                    latest[number] = time.perf_counter()
                    return

    following = [asyncio.create_task(follow(number)) for number in range(watchers)]
    await asyncio.sleep(0.5)
    cpu, began = server.cpu(), time.perf_counter()
    patch_headers = HEADERS | {"Content-Type": "application/merge-patch+json"}
    for number in range(events):
        scheduled = began + number / per_second
        if (wait := scheduled - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        patch = b'{"metadata":{"annotations":{"n":"%d"}}}' % number
        async with session.patch(f"{path}/n", data=patch, headers=patch_headers) as response:
            await response.read()
    written = time.perf_counter()
    await asyncio.wait_for(asyncio.gather(*following), 60)
    spent = server.cpu() - cpu
    name = f"{watchers} watchers"
    print(
        f"{name:<28} {events / (written - began):>9,.0f} events/s, the last reached all"
        f" {(max(latest) - written) * 1000:.0f} ms later, cpu {spent / events / watchers * 1e6:.1f} us per delivery"
    )


async def run(arguments: argparse.Namespace) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    data_dir = ("--data-dir", arguments.data_dir) if arguments.data_dir else ()
    with serving("--no-simulate", *data_dir) as server:
        print(f"{'start to ready':<28} {server.started_in:>9.2f} s")
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            await creates_and_binds(session, server, arguments.pods)
            await list_all(session, server, arguments.pods)
            await watches(session, server, arguments.watchers, arguments.events, arguments.events_per_second)
    with serving("--nodes", "5000") as server:
        print(f"{'start with 5,000 nodes':<28} {server.started_in:>9.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks of the embedded API server.")
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--events-per-second", type=int, default=1000)
    parser.add_argument("--data-dir", help="a new directory for the cluster's data")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
