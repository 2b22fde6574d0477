"""End to end over HTTP: embedded API server, scheduler and submitter in separate processes.

    .venv/bin/python benchmarks/end_to_end.py [--nodes 1000] [--pods 5000] [-- --flight-record=FOLDER]

Prints pods per second from the first creation to the last binding, and the CPU time of the scheduler process per bound
pod. Pods are created while the scheduler binds, as in scheduler_perf. Results: docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.demo.apiserver_process import apiserver_process
from kubestow.wall_clock import WallClock

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


async def create(transport: Transport, path: str, bodies: list[bytes]) -> None:
    """POST all bodies with limited concurrency."""
    queue = iter(bodies)

    async def work() -> None:
        for body in queue:
            await transport.request("POST", path, body)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def all_bound(transport: Transport) -> float:
    """Wait until all pods are bound; the time of the last check."""
    while True:
        seen = time.perf_counter()
        unbound = await transport.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")
        if not msgspec.json.decode(unbound)["items"]:
            return seen
        await asyncio.sleep(0.05)


async def measure(nodes: int, pods: int, flags: list[str]) -> None:
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
        await create(transport, "/api/v1/namespaces/default/pods", [pod(number) for number in range(pods)])
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
    arguments.add_argument("flags", nargs="*", help="flags of the scheduler, after --")
    options = arguments.parse_args()
    asyncio.run(measure(options.nodes, options.pods, options.flags))


if __name__ == "__main__":
    main()
