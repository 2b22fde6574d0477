"""End to end over HTTP: embedded API server, scheduler and submitter in separate processes.

    .venv/bin/python benchmarks/end_to_end.py [--nodes 1000] [--pods 5000] [--rate PODS/S] [-- --flight-record=FOLDER]

Prints pods per second from the first creation to the last binding, and the CPU time of the scheduler process per bound
pod. Pods are created while the scheduler binds, as in scheduler_perf; with ``--rate``, at a constant rate, and printed
is also the time from the request that creates a pod until a watch of the submitter shows it bound. Results:
docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

import msgspec

from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.process import WallClock
from kubestow_lab.demo.apiserver_process import apiserver_process

CONCURRENCY = 16


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Peak resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def node(number: int) -> bytes:
    """A node of scheduler_perf's default size."""
    name = f"node-{number:05}"
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "capacity": allocatable,
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def pod(number: int) -> bytes:
    """A pod of scheduler_perf's default template."""
    resources = {"requests": {"cpu": "100m", "memory": "500Mi"}}
    containers = [{"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": resources}]
    return msgspec.json.encode({"metadata": {"name": f"pod-{number}"}, "spec": {"containers": containers}})


class _Metadata(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Object


async def create(transport: Transport, path: str, bodies: list[bytes]) -> None:
    """POST all bodies with limited concurrency."""
    queue = iter(bodies)

    async def work() -> None:
        for body in queue:
            await transport.request("POST", path, body)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def create_at_rate(transport: Transport, bodies: list[bytes], rate: float) -> list[float]:
    """Create pods at a constant rate; the seconds from each creation until a watch shows the pod bound."""
    sent: dict[str, float] = {}
    bound: dict[str, float] = {}

    async def watch() -> None:
        path = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%21%3D"
        buffer = b""
        async with transport.stream(path, idle_timeout=60) as chunks:
            watching.set()
            async for chunk in chunks:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    bound.setdefault(msgspec.json.decode(line, type=_Event).object.metadata.name, time.perf_counter())
                if len(bound) == len(bodies):
                    return

    async def create_one(number: int) -> None:
        sent[f"pod-{number}"] = time.perf_counter()
        await transport.request("POST", "/api/v1/namespaces/default/pods", bodies[number])

    watching = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await watching.wait()
        began = time.perf_counter()
        for number in range(len(bodies)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            tasks.create_task(create_one(number))
    return [bound[name] - sent[name] for name in sent]


async def all_bound(transport: Transport) -> float:
    """Wait until all pods are bound; the time of the last check."""
    while True:
        seen = time.perf_counter()
        unbound = await transport.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")
        if not msgspec.json.decode(unbound)["items"]:
            return seen
        await asyncio.sleep(0.05)


async def measure(nodes: int, pods: int, rate: float, flags: list[str]) -> None:
    """Run the measurement and print the results."""
    async with (
        apiserver_process() as url,
        Transport(await load_credentials(master=url), clock=WallClock()) as transport,
    ):
        await create(transport, "/api/v1/nodes", [node(number) for number in range(nodes)])
        scheduler = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "kubestow",
                "run",
                "--master",
                url,
                "--leader-elect=false",
                "--secure-port=0",
                *flags,
            ),
            stderr=asyncio.subprocess.PIPE,
        )
        assert scheduler.stderr is not None
        await scheduler.stderr.readuntil(b'"Scheduling"')
        cpu = cpu_seconds(scheduler.pid)
        began = time.perf_counter()
        bodies = [pod(number) for number in range(pods)]
        if rate:
            latencies = await create_at_rate(transport, bodies, rate)
            quantiles = statistics.quantiles(latencies, n=100)
            p50, p99 = quantiles[49] * 1000, quantiles[98] * 1000
            print(f"creation to bound at {rate:,.0f} pods/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        else:
            await create(transport, "/api/v1/namespaces/default/pods", bodies)
        created = time.perf_counter() - began
        seconds = await all_bound(transport) - began
        spent = (cpu_seconds(scheduler.pid) - cpu) / pods
        print(f"{pods:,} pods on {nodes:,} nodes: {pods / seconds:,.0f} pods/s bound ({seconds:.2f} s,")
        print(f"  of which {created:.2f} s until all were created)")
        print(f"scheduler: {spent * 1000:.2f} ms CPU per bound pod, {memory_mb(scheduler.pid):.0f} MB peak")
        scheduler.terminate()
        await scheduler.wait()


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=5000)
    arguments.add_argument("--rate", type=float, default=0, help="pods created per second; 0: as fast as possible")
    arguments.add_argument("flags", nargs="*", help="flags of the scheduler, after --")
    options = arguments.parse_args()
    asyncio.run(measure(options.nodes, options.pods, options.rate, options.flags))


if __name__ == "__main__":
    main()
