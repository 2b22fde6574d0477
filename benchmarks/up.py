"""``kubestow up`` as a whole: a Deployment fills the cluster, with the scheduler in a process of its own.

    python benchmarks/up.py [--nodes 5000] [--pods 1000,50000]
    python benchmarks/up.py --nodes 300 --pods 2000 --churn 60 --every 10
    python benchmarks/up.py --nodes 500 --pods 50000 --rejected

Each size runs in a new cluster. Printed are the CPU time from the start until the cluster is ready, the CPU time per
pod from the creation of the Deployment until all pods are available, and the resident memory of each process. CPU time
is comparable between machines under different load. ``--churn`` scales the Deployment down to half and up again for as
many minutes, with events that expire after a minute, and prints the memory and the CPU time each minute; ``--every`` is
the least number of seconds between two changes of scale. ``--rejected`` measures instead what pods cost that fit on no
node: CPU time and memory of each process per pod, until nothing happens any more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MIB = 2**20


class Cluster:
    """A running ``kubestow up``; the processes are the server's and the scheduler's."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.processes = {"server": pid, "scheduler": max(map(int, children))}

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far."""
        return {name: _cpu(pid) for name, pid in self.processes.items()}

    def memory(self) -> dict[str, float]:
        """Resident memory of each process, in MiB."""
        pages = {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for name, pid in self.processes.items()}
        return {name: count * os.sysconf("SC_PAGE_SIZE") / MIB for name, count in pages.items()}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(nodes: int, *arguments: str) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as directory:
        files = ("--kubeconfig-out", f"{directory}/out", "--kubeconfig", f"{directory}/context")
        command = [sys.executable, "-m", "kubestow", "up", "--port", "0", "--no-dashboard", "--nodes", str(nodes)]
        command += ["--scheduler-process", "true", *files, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            url = line.split()[-1] if line.startswith("serving") else url
            if line.strip() == "ready":
                break
        try:
            yield Cluster(url, process.pid)
        finally:
            process.terminate()
            process.wait()


async def _scale(session: aiohttp.ClientSession, replicas: int) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    body = msgspec.json.encode({"spec": {"replicas": replicas}})
    async with session.patch(f"{DEPLOYMENTS}/web", data=body, headers=headers) as response:
        response.raise_for_status()


async def _available(session: aiohttp.ClientSession, replicas: int) -> None:
    """Wait until the Deployment has so many pods, all of them available."""
    while True:
        async with session.get(f"{DEPLOYMENTS}/web") as response:
            status = (await response.json()).get("status", {})
        if status.get("availableReplicas") == status.get("replicas") == replicas:
            return
        await asyncio.sleep(1)


async def _idle(cluster: Cluster) -> None:
    """Wait until the processes use less than a tenth of a core together."""
    before = sum(cluster.cpu().values())
    while True:
        await asyncio.sleep(5)
        now = sum(cluster.cpu().values())
        if now - before < 0.5:
            return
        before = now


def _deployment(replicas: int, cpu: str = "100m") -> dict[str, Any]:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def _figures(values: dict[str, float], unit: str) -> str:
    return ", ".join(f"{name} {value:.0f} {unit}" for name, value in values.items())


async def _measure(nodes: int, pods: int, churn_minutes: float, every: float) -> None:
    with running(nodes, *(("--event-ttl", "1m") if churn_minutes else ())) as cluster:
        start = cluster.cpu()
        print(f"{nodes} nodes, ready: {_figures({name: 1000 * cpu for name, cpu in start.items()}, 'ms CPU')}")
        async with aiohttp.ClientSession(cluster.url) as session:
            began = time.monotonic()
            async with session.post(DEPLOYMENTS, json=_deployment(pods)) as response:
                response.raise_for_status()
            await _available(session, pods)
            per_pod = {name: 1e6 * (cpu - start[name]) / pods for name, cpu in cluster.cpu().items()}
            print(f"{pods} pods in {time.monotonic() - began:.0f} s: {_figures(per_pod, 'µs CPU per pod')}")
            print(f"memory: {_figures(cluster.memory(), 'MiB')}", flush=True)
            await _churn(cluster, session, pods, churn_minutes, every)


async def _measure_rejected(nodes: int, pods: int) -> None:
    with running(nodes) as cluster:
        await _idle(cluster)
        cpu, memory = cluster.cpu(), cluster.memory()
        async with aiohttp.ClientSession(cluster.url) as session:
            async with session.post(DEPLOYMENTS, json=_deployment(pods, cpu="1000")) as response:
                response.raise_for_status()
            await _idle(cluster)
        per_pod = {name: 1e6 * (used - cpu[name]) / pods for name, used in cluster.cpu().items()}
        grown = {name: MIB * (mib - memory[name]) / pods for name, mib in cluster.memory().items()}
        print(
            f"{pods} rejected pods: {_figures(per_pod, 'µs CPU per pod')}; {_figures(grown, 'bytes per pod')}",
            flush=True,
        )


async def _churn(cluster: Cluster, session: aiohttp.ClientSession, pods: int, minutes: float, every: float) -> None:
    began, cycles = time.monotonic(), 0
    while time.monotonic() - began < minutes * 60:
        reported = time.monotonic()
        while time.monotonic() - reported < 60:
            for replicas in (pods // 2, pods):
                pause = asyncio.create_task(asyncio.sleep(every))
                await _scale(session, replicas)
                await _available(session, replicas)
                await pause
            cycles += 1
        passed = (time.monotonic() - began) / 60
        figures = f"{_figures(cluster.memory(), 'MiB')}; {_figures(cluster.cpu(), 's CPU')}"
        print(f"{passed:.1f} min, {cycles * (pods // 2)} pods: {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", default="1000,50000")
    parser.add_argument("--churn", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--every", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--rejected", action="store_true")
    options = parser.parse_args()
    for pods in map(int, options.pods.split(",")):
        if options.rejected:
            asyncio.run(_measure_rejected(options.nodes, pods))
        else:
            asyncio.run(_measure(options.nodes, pods, options.churn, options.every))


if __name__ == "__main__":
    main()
