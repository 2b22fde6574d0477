"""Failover over HTTP: the leader is killed while pods are being created, and the standby goes on.

    .venv/bin/python benchmarks/failover.py [--nodes 1000] [--pods 10000]

Embedded API server, two schedulers that share a Lease, and a submitter, each a process of its own. The leader is killed
(SIGKILL) when a third of the pods are bound. A watch beside them sees every change of every pod. Printed are the times
until the standby led and until its first binding, and whether any pod was moved, lost, or bound beyond a node's room;
the exit status is 1 if so. Figures: docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from end_to_end import create, node, pod
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.demo.apiserver_process import apiserver_process
from kubestow.wall_clock import WallClock

PODS_PER_NODE = 40  # by CPU
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


@dataclass
class Witness:
    """Watches all pods and remembers where each was bound, and when the last binding was seen."""

    transport: Transport
    nodes: dict[str, str] = field(default_factory=dict)
    bound_at: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Until cancelled."""
        rest = b""
        path = f"{PODS}?watch=true&resourceVersion=0&timeoutSeconds=3600"
        async with self.transport.stream(path, silence=600.0) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._see(msgspec.json.decode(line))
                self.news.set()

    def _see(self, event: dict[str, Any]) -> None:
        if event["type"] not in ("ADDED", "MODIFIED"):
            self.wrong.append(f"the witness was told {event['type']}")
            return
        name, there = event["object"]["metadata"]["name"], event["object"]["spec"].get("nodeName", "")
        before = self.nodes.get(name, "")
        if before and there != before:
            self.wrong.append(f"pod {name} was on {before} and is on {there or 'no node'}")
        if there and not before:
            self.bound_at.append(time.monotonic())
        self.nodes[name] = there

    async def until_bound(self, count: int) -> None:
        """Return when so many pods are bound."""
        while len(self.bound_at) < count:
            self.news.clear()
            await self.news.wait()

    def verdict(self, pods: int) -> list[str]:
        """What went wrong."""
        used = Counter(self.nodes.values())
        overfull = [f"{name} has {count} pods" for name, count in used.items() if count > PODS_PER_NODE and name]
        lost = pods - sum(1 for there in self.nodes.values() if there)
        return [*self.wrong, *overfull, *([f"{lost} pods are not bound"] if lost else [])]


async def scheduler(url: str) -> asyncio.subprocess.Process:
    """A candidate, once it knows who leads."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kubestow", "run", "--master", url, "--secure-port=0", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    while b"New leader elected" not in await process.stderr.readline():
        pass
    asyncio.get_running_loop().create_task(_drained(process.stderr))
    return process


async def _drained(stream: asyncio.StreamReader) -> None:
    """Read what nobody reads, so that the writer never waits."""
    while await stream.read(65536):
        pass


async def new_leader(transport: Transport, old: str) -> str:
    """Wait until the lease names another than the old leader."""
    while True:
        lease = msgspec.json.decode(await transport.request("GET", LEASE))
        holder: str = lease["spec"].get("holderIdentity", "")
        if holder not in ("", old):
            return holder
        await asyncio.sleep(0.05)


async def measure(nodes: int, pods: int) -> int:
    """Run once and print; the exit status."""
    async with (
        apiserver_process() as url,
        Transport(await load_credentials(master=url), clock=WallClock()) as transport,
    ):
        await create(transport, "/api/v1/nodes", [node(number) for number in range(nodes)])
        witness = Witness(transport)
        watching = asyncio.create_task(witness.watch())
        leader, standby = await scheduler(url), await scheduler(url)
        old = await new_leader(transport, "")
        creating = asyncio.create_task(create(transport, PODS, [pod(number) for number in range(pods)]))
        await witness.until_bound(pods // 3)
        os.kill(leader.pid, signal.SIGKILL)
        killed = time.monotonic()
        before = len(witness.bound_at)
        await new_leader(transport, old)
        led = time.monotonic() - killed
        after = sum(1 for seen in witness.bound_at if seen < killed + 1.0)
        await creating
        await witness.until_bound(pods)
        first = witness.bound_at[after] - killed
        print(f"{pods:,} pods on {nodes:,} nodes; the leader was killed after {before:,} bindings")
        print(f"the standby led {led:.1f} s later, and bound its first pod after {first:.1f} s;")
        print(f"all pods were bound {witness.bound_at[-1] - killed:.1f} s after the kill")
        standby.terminate()
        status = await standby.wait()
        watching.cancel()
        verdict = witness.verdict(pods)
        print("\n".join(verdict) or f"every pod was bound once and none was lost; the new leader ended with {status}")
        return 1 if verdict or status else 0


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=10_000)
    options = arguments.parse_args()
    sys.exit(asyncio.run(measure(options.nodes, options.pods)))


if __name__ == "__main__":
    main()
