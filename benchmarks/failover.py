"""Failover over HTTP: the leader is killed while pods are created, and the standby takes over.

    .venv/bin/python benchmarks/failover.py [--nodes 1000] [--pods 10000]

Embedded API server, two schedulers that share a Lease, and a submitter run in separate processes. The leader is killed
(SIGKILL) when a third of the pods are bound. A watch records every change of every pod. Prints the times until the
standby leads and until its first binding, and whether any pod was moved, lost, or bound to a full node; the exit status
is then 1. Results: docs/performance.md.
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
from kubestow.process import WallClock
from kubestow_lab.demo.apiserver_process import apiserver_process

PODS_PER_NODE = 40  # by CPU
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


@dataclass
class BindingRecorder:
    """Watches all pods and records their nodes and the times of the bindings."""

    transport: Transport
    nodes: dict[str, str] = field(default_factory=dict)
    bound_at: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Watch until cancelled."""
        rest = b""
        path = f"{PODS}?watch=true&resourceVersion=0&timeoutSeconds=3600"
        async with self.transport.stream(path, silence=600.0) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._handle(msgspec.json.decode(line))
                self.changed.set()

    def _handle(self, event: dict[str, Any]) -> None:
        if event["type"] not in ("ADDED", "MODIFIED"):
            self.errors.append(f"unexpected watch event {event['type']}")
            return
        name, node_name = event["object"]["metadata"]["name"], event["object"]["spec"].get("nodeName", "")
        before = self.nodes.get(name, "")
        if before and node_name != before:
            self.errors.append(f"pod {name} was moved from {before} to {node_name or 'no node'}")
        if node_name and not before:
            self.bound_at.append(time.monotonic())
        self.nodes[name] = node_name

    async def wait_bound(self, count: int) -> None:
        """Wait until ``count`` pods are bound."""
        while len(self.bound_at) < count:
            self.changed.clear()
            await self.changed.wait()

    def all_errors(self, pods: int) -> list[str]:
        """The errors: moved pods, overcommitted nodes and unbound pods."""
        used = Counter(self.nodes.values())
        overcommitted = [f"{name} has {count} pods" for name, count in used.items() if count > PODS_PER_NODE and name]
        unbound = pods - sum(1 for node_name in self.nodes.values() if node_name)
        return [*self.errors, *overcommitted, *([f"{unbound} pods are not bound"] if unbound else [])]


async def scheduler(url: str) -> asyncio.subprocess.Process:
    """Start a scheduler and wait until it has observed the leader."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kubestow", "run", "--master", url, "--secure-port=0", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    while b"New leader elected" not in await process.stderr.readline():
        pass
    asyncio.get_running_loop().create_task(_drain(process.stderr))
    return process


async def _drain(stream: asyncio.StreamReader) -> None:
    """Discard output, so that the writer never blocks."""
    while await stream.read(65536):
        pass


async def new_leader(transport: Transport, old: str) -> str:
    """Wait until the holder of the lease is not ``old``; the new holder."""
    while True:
        lease = msgspec.json.decode(await transport.request("GET", LEASE))
        holder: str = lease["spec"].get("holderIdentity", "")
        if holder not in ("", old):
            return holder
        await asyncio.sleep(0.05)


async def measure(nodes: int, pods: int) -> int:
    """Run the measurement and print the results; the exit status."""
    async with (
        apiserver_process() as url,
        Transport(await load_credentials(master=url), clock=WallClock()) as transport,
    ):
        await create(transport, "/api/v1/nodes", [node(number) for number in range(nodes)])
        recorder = BindingRecorder(transport)
        watching = asyncio.create_task(recorder.watch())
        leader, standby = await scheduler(url), await scheduler(url)
        old = await new_leader(transport, "")
        creating = asyncio.create_task(create(transport, PODS, [pod(number) for number in range(pods)]))
        await recorder.wait_bound(pods // 3)
        os.kill(leader.pid, signal.SIGKILL)
        killed = time.monotonic()
        before = len(recorder.bound_at)
        await new_leader(transport, old)
        led = time.monotonic() - killed
        after = sum(1 for bound_at in recorder.bound_at if bound_at < killed + 1.0)
        await creating
        await recorder.wait_bound(pods)
        first = recorder.bound_at[after] - killed
        print(f"{pods:,} pods on {nodes:,} nodes; the leader was killed after {before:,} bindings")
        print(f"the standby led {led:.1f} s later, and bound its first pod after {first:.1f} s;")
        print(f"all pods were bound {recorder.bound_at[-1] - killed:.1f} s after the kill")
        standby.terminate()
        status = await standby.wait()
        watching.cancel()
        errors = recorder.all_errors(pods)
        print("\n".join(errors) or f"every pod was bound exactly once; the new leader exited with status {status}")
        return 1 if errors or status else 0


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=10_000)
    options = arguments.parse_args()
    sys.exit(asyncio.run(measure(options.nodes, options.pods)))


if __name__ == "__main__":
    main()
