"""The development cluster: its API server, its controllers and kubelets, and ``kubestow up`` as a whole."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness import Row, Rows
from benchmarks.measurement import cpu_seconds, isolated, resident, resident_mb
from kubestow import gc_tuning
from kubestow_devcluster.apiserver.kinds.object_fields import update_pod_condition
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster
from kubestow_devcluster.component_base.stored_objects import node_name_of
from kubestow_devcluster.component_base.watch_loop import WatchLoop


@contextmanager
def _started(*command: str) -> Iterator[tuple[str, int]]:
    """The URL and the process number of a server of kubestow, once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubestow", *command, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    url = ""
    for line in process.stdout:
        url = line.split()[-1] if "http://" in line else url
        if line.strip() == "ready":
            break
    try:
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


# -- the API server ----------------------------------------------------------------------------------------------------

_CONNECTIONS = 32
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
_POD_LIST = "/api/v1/namespaces/default/pods"


async def apiserver(
    pods: int = 50_000, watchers: int = 100, events: int = 3000, events_per_second: int = 1000, data_dir: str = ""
) -> AsyncIterator[Row]:
    """The embedded API server: creates, binds, lists, watches, start-up, memory.

    The server runs in its own process, the clients in this one, over loopback. Rates are in elapsed time. CPU time is
    that of the server process per operation; it is comparable between machines under different load. ``--data-dir`` is
    a new directory for the cluster's data.
    """
    began = perf_counter()
    with _started("apiserver", "--no-simulate", *(("--data-dir", data_dir) if data_dir else ())) as (url, pid):
        yield "start to ready", {"s": perf_counter() - began}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector, auto_decompress=False) as session:
            before = resident(pid)
            bodies = [_pod(number) for number in range(pods)]
            yield "creates", await _rate(pid, pods, lambda n: _post(session, _POD_LIST, bodies[n]))
            yield "binds", await _rate(pid, pods, lambda n: _post(session, *_binding(n)))
            size = len(await (await session.get(_POD_LIST, headers=_HEADERS)).read()) / pods
            grown = (resident(pid) - before) / pods
            yield "memory", {"bytes per pod": grown, "bytes of JSON": size}
            for encoding in ("identity", "gzip"):
                cpu, began = cpu_seconds(pid), perf_counter()
                headers = _HEADERS | {"Accept-Encoding": encoding}
                async with session.get("/api/v1/pods", headers=headers) as response:
                    size = len(await response.read())
                figures = {"s": perf_counter() - began, "s of CPU": cpu_seconds(pid) - cpu, "MB": size / 1e6}
                yield f"list of {pods:,} ({encoding})", figures
            yield f"{watchers} watchers", await _watch(session, pid, watchers, events, events_per_second)
    began = perf_counter()
    with _started("apiserver", "--nodes", "5000"):
        yield "start with 5,000 nodes", {"s": perf_counter() - began}


def _pod(number: int) -> bytes:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    containers = [{"name": "c", "image": "registry.k8s.io/pause:3.10.1", "resources": resources}]
    metadata = {"name": f"pod-{number:06d}", "labels": {"app": f"app-{number % 50}"}}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    )


def _binding(number: int) -> tuple[str, bytes]:
    """The path and body of a binding."""
    name = f"pod-{number:06d}"
    target = {"kind": "Node", "name": "n"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return f"{_POD_LIST}/{name}/binding", msgspec.json.encode(binding)


async def _post(session: aiohttp.ClientSession, path: str, data: bytes) -> bytes:
    async with session.post(path, data=data, headers=_HEADERS) as response:
        assert response.status == 201, await response.text()
        return await response.read()


async def _rate(pid: int, count: int, act: Callable[[int], Awaitable[Any]]) -> dict[str, float]:
    """What so many operations cost, on some connections at the same time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await act(number)

    cpu, began = cpu_seconds(pid), perf_counter()
    await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
    took, spent = perf_counter() - began, cpu_seconds(pid) - cpu
    return {"/s": count / took, "µs of CPU each": spent / count * 1e6}


async def _watch(
    session: aiohttp.ClientSession, pid: int, watchers: int, events: int, per_second: int
) -> dict[str, float]:
    """Patch one node ``events`` times at a constant rate; every watcher counts the events it receives."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    path = "/api/v1/nodes"
    version = msgspec.json.decode(await _post(session, path, msgspec.json.encode(node)))["metadata"]["resourceVersion"]
    latest = [0.0] * watchers

    async def follow(number: int) -> None:
        received = 0
        async with session.get(f"{path}?watch=1&resourceVersion={version}", headers=_HEADERS) as response:
            async for part in response.content.iter_any():
                received += part.count(b"\n")
                if received >= events:
                    latest[number] = perf_counter()
                    return

    following = [asyncio.create_task(follow(number)) for number in range(watchers)]
    await asyncio.sleep(0.5)
    cpu, began = cpu_seconds(pid), perf_counter()
    patch_headers = _HEADERS | {"Content-Type": "application/merge-patch+json"}
    for number in range(events):
        await asyncio.sleep(max(0.0, began + number / per_second - perf_counter()))
        patch = b'{"metadata":{"annotations":{"n":"%d"}}}' % number
        async with session.patch(f"{path}/n", data=patch, headers=patch_headers) as response:
            await response.read()
    written = perf_counter()
    await asyncio.wait_for(asyncio.gather(*following), 60)
    return {
        "events/s": events / (written - began),
        "ms until the last has all": (max(latest) - written) * 1e3,
        "µs of CPU per delivery": (cpu_seconds(pid) - cpu) / events / watchers * 1e6,
    }


# -- controllers and kubelets ------------------------------------------------------------------------------------------


def controllers(
    nodes: int = 5000, pods: Sequence[int] = (1000, 20_000), budget: bool = False, job: bool = False
) -> Rows:
    """The controllers and kubelets of a development cluster: pods per CPU second, by the size of a Deployment or Job.

    Each size runs in a process of its own: a Deployment is created, its pods are bound to the nodes in turn, and the
    clock stops when all are available. API server, controllers and kubelets share the process; there is no scheduler
    and no network. ``--budget`` adds a PodDisruptionBudget of the pods. ``--job`` creates an indexed Job instead, half
    of whose pods run in parallel for a second each, and stops when it is complete. CPU time is comparable between
    machines under different load; that of creating the nodes is not counted.
    """
    for number in pods:
        seconds = isolated(_rollout_seconds, nodes, number, budget, job)
        yield f"{nodes} nodes, {number} pods", {"pods per CPU second": number / seconds, "s of CPU": seconds}


def _rollout_seconds(nodes: int, pods: int, with_budget: bool, as_job: bool) -> float:
    gc_tuning.raise_thresholds()
    return asyncio.run(_roll_out(nodes, pods, with_budget=with_budget, as_job=as_job))


async def _roll_out(nodes: int, pods: int, *, with_budget: bool, as_job: bool) -> float:
    """CPU seconds from the creation of the Deployment or Job until its pods are available or have succeeded."""
    async with DevCluster(nodes=nodes, controller_manager=ControllerManagerOptions()) as server:
        registry, labels = server.registry, {"app": "web"}

        def create(resource: str, spec: dict[str, Any]) -> None:
            kind = registry.scheme[resource]
            registry.create(kind, "default", kind.struct.read({"metadata": {"name": "web"}, "spec": spec}, []))

        binder = asyncio.create_task(_Binder(server).run())
        await asyncio.sleep(2)  # until the nodes are ready
        if with_budget:
            create("poddisruptionbudgets.policy", {"minAvailable": "50%", "selector": {"matchLabels": labels}})
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
        template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        if as_job:
            resource, count = "jobs.batch", "succeeded"
            template["spec"]["restartPolicy"] = "Never"
            parallel = {"completions": pods, "parallelism": max(1, pods // 2), "completionMode": "Indexed"}
            spec = {**parallel, "template": template}
        else:
            resource, count = "deployments.apps", "availableReplicas"
            spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
        began = process_time()
        create(resource, spec)
        kind, collection = registry.scheme[resource], server.store.collection(resource)
        while True:
            await asyncio.sleep(0.1)
            stored = collection.get("default/web")
            if stored is not None and kind.decode(stored)["status"].get(count) == pods:
                binder.cancel()
                return process_time() - began


class _Binder(WatchLoop):
    """Binds every pod to the next node."""

    name = "binder"

    def __init__(self, server: DevCluster) -> None:
        super().__init__(server.store)
        self._registry = server.registry
        self._nodes = itertools.cycle([node.name for node in server.store.collection("nodes").snapshot()])

    def relist(self) -> None:
        self.list_and_watch("pods")

    @property
    def next_deadline(self) -> float | None:
        return None

    def handle_event(self, resource: str, event: Any) -> None:
        if event.type == "DELETED" or node_name_of(event.object):
            return
        pods = self._registry.scheme["pods"]
        pod = pods.decode(event.object)
        pod["spec"]["nodeName"] = next(self._nodes)
        update_pod_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, self._registry.now())
        self._registry.commit(pods, pod)

    def process_pending(self) -> None:
        pass


# -- kubestow up -------------------------------------------------------------------------------------------------------

_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def up(
    nodes: int = 5000,
    pods: Sequence[int] = (1000, 50_000),
    churn: float = 0.0,
    every: float = 0.0,
    rejected: bool = False,
) -> AsyncIterator[Row]:
    """``kubestow up`` as a whole: a Deployment fills the cluster, with the scheduler in a process of its own.

    Each size runs in a new cluster: the CPU time from the start until the cluster is ready, the CPU time per pod from
    the creation of the Deployment until all pods are available, and the resident memory of each process. CPU time is
    comparable between machines under different load. ``--churn`` scales the Deployment down to half and up again for as
    many minutes, with events that expire after a minute, and prints the memory and the CPU time each minute;
    ``--every`` is the least number of seconds between two changes of scale. ``--rejected`` measures instead what pods
    cost that fit on no node: CPU time and memory of each process per pod, until nothing happens any more.
    """
    for number in pods:
        with tempfile.TemporaryDirectory() as directory:
            files = ("--kubeconfig-out", f"{directory}/out", "--kubeconfig", f"{directory}/context")
            flags = ("--no-dashboard", "--nodes", str(nodes), "--scheduler-process", "true", *files)
            with _started("up", *flags, *(("--event-ttl", "1m") if churn else ())) as (url, pid):
                async with aiohttp.ClientSession(url) as session:
                    cluster = _Cluster(session, pid)
                    rows = cluster.reject(number) if rejected else cluster.fill(nodes, number, churn, every)
                    async for row in rows:
                        yield row


class _Cluster:
    """A running ``kubestow up``; the processes are the server's and the scheduler's."""

    def __init__(self, session: aiohttp.ClientSession, pid: int) -> None:
        self._session = session
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._processes = {"server": pid, "scheduler": max(map(int, children))}

    def _cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far."""
        return {name: cpu_seconds(pid) for name, pid in self._processes.items()}

    def _memory(self) -> dict[str, float]:
        """Resident memory of each process, in MiB."""
        return {name: resident_mb(pid) for name, pid in self._processes.items()}

    async def fill(self, nodes: int, pods: int, churn_minutes: float, every: float) -> AsyncIterator[Row]:
        """Fill the cluster with a Deployment, and scale it."""
        start = self._cpu()
        yield f"{nodes} nodes, ready", _by_process("ms of CPU, {}", {name: 1e3 * cpu for name, cpu in start.items()})
        began = monotonic()
        await self._deploy(pods)
        await self._available(pods)
        per_pod = {name: 1e6 * (cpu - start[name]) / pods for name, cpu in self._cpu().items()}
        yield f"{pods} pods", {"s": monotonic() - began, **_by_process("µs of CPU per pod, {}", per_pod)}
        yield "memory", _by_process("MiB, {}", self._memory())
        began, cycles = monotonic(), 0
        while monotonic() - began < churn_minutes * 60:
            reported = monotonic()
            while monotonic() - reported < 60:
                for replicas in (pods // 2, pods):
                    pause = asyncio.create_task(asyncio.sleep(every))
                    await self._scale(replicas)
                    await self._available(replicas)
                    await pause
                cycles += 1
            figures = {**_by_process("MiB, {}", self._memory()), **_by_process("s of CPU, {}", self._cpu())}
            yield f"{(monotonic() - began) / 60:.1f} min, {cycles * (pods // 2)} pods", figures

    async def reject(self, pods: int) -> AsyncIterator[Row]:
        """Create a Deployment of pods that fit on no node."""
        await self._idle()
        cpu, memory = self._cpu(), self._memory()
        await self._deploy(pods, cpu="1000")
        await self._idle()
        per_pod = {name: 1e6 * (used - cpu[name]) / pods for name, used in self._cpu().items()}
        grown = {name: 2**20 * (mib - memory[name]) / pods for name, mib in self._memory().items()}
        yield (
            f"{pods} rejected pods",
            {**_by_process("µs of CPU per pod, {}", per_pod), **_by_process("bytes per pod, {}", grown)},
        )

    async def _deploy(self, replicas: int, cpu: str = "100m") -> None:
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
        async with self._session.post(_DEPLOYMENTS, json=body) as response:
            response.raise_for_status()

    async def _scale(self, replicas: int) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        async with self._session.patch(f"{_DEPLOYMENTS}/web", data=body, headers=headers) as response:
            response.raise_for_status()

    async def _available(self, replicas: int) -> None:
        """Wait until the Deployment has so many pods, all of them available."""
        while True:
            async with self._session.get(f"{_DEPLOYMENTS}/web") as response:
                status = (await response.json()).get("status", {})
            if status.get("availableReplicas") == status.get("replicas") == replicas:
                return
            await asyncio.sleep(1)

    async def _idle(self) -> None:
        """Wait until the processes use less than a tenth of a core together."""
        before = sum(self._cpu().values())
        while True:
            await asyncio.sleep(5)
            now = sum(self._cpu().values())
            if now - before < 0.5:
                return
            before = now


def _by_process(unit: str, values: dict[str, float]) -> dict[str, float]:
    return {unit.format(name): value for name, value in values.items()}
