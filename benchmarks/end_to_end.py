"""Whole processes over HTTP: API server, schedulers and submitter side by side. Results: docs/performance.md."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import quantiles
from time import monotonic, perf_counter
from typing import Any

import msgspec

from benchmarks.clusters import HOSTNAME, real_node, real_pod
from benchmarks.harness import Row
from benchmarks.measurement import cpu_seconds, peak_mb
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.client.watch_decoding import LineSplitter
from kubestow.process import WallClock
from kubestow_lab.apiserver_process import apiserver_process

_CONCURRENCY = 16
_NODES, _PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def embedded_server() -> AsyncIterator[tuple[str, Transport]]:
    """The URL of an embedded API server in another process, and a client of it."""
    async with (
        apiserver_process() as url,
        Transport(await load_credentials(master=url), clock=WallClock()) as transport,
    ):
        yield url, transport


async def kubestow_scheduler(url: str, *flags: str, ready: bytes = b'"Scheduling"') -> asyncio.subprocess.Process:
    """A scheduler in another process, once its log says that it is ready; the rest of the log is to be read."""
    command = (sys.executable, "-m", "kubestow", "run", "--master", url, "--secure-port=0", *flags)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    await process.stderr.readuntil(ready)
    return process


async def drain(stream: asyncio.StreamReader) -> None:
    """Discard output, so that the writer never blocks."""
    while await stream.read(65536):
        pass


def _node(number: int) -> bytes:
    """A node of scheduler_perf's default size."""
    name = f"node-{number:05}"
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.json.encode({"metadata": {"name": name, "labels": {HOSTNAME: name}}, "status": status})


def _pod(number: int) -> bytes:
    """A pod of scheduler_perf's default template."""
    resources = {"requests": {"cpu": "100m", "memory": "500Mi"}}
    containers = [{"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": resources}]
    return _encoded(f"pod-{number}", {"containers": containers})


def _encoded(name: str, spec: dict[str, Any]) -> bytes:
    """An object of any kind."""
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})


async def _create(transport: Transport, path: str, bodies: Sequence[bytes]) -> None:
    """POST all bodies with limited concurrency."""
    queue = iter(bodies)

    async def work() -> None:
        for body in queue:
            await transport.request("POST", path, body)

    await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))


async def _all_bound(transport: Transport) -> float:
    """Wait until all pods are bound; the time of the last check."""
    while True:
        seen = perf_counter()
        unbound = await transport.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")
        if not msgspec.json.decode(unbound)["items"]:
            return seen
        await asyncio.sleep(0.05)


# -- end to end --------------------------------------------------------------------------------------------------------


async def end_to_end(
    nodes: int = 1000, pods: int = 5000, rate: float = 0.0, flags: Sequence[str] = ()
) -> AsyncIterator[Row]:
    """Pods bound per second over HTTP, with embedded API server, scheduler and submitter in separate processes.

    Pods per second from the first creation to the last binding, and the CPU time of the scheduler process per bound
    pod. Pods are created while the scheduler binds, as in scheduler_perf; with ``--rate``, so many per second, and
    printed is also the time from the request that creates a pod until a watch of the submitter shows it bound. Flags of
    the scheduler follow ``--``, such as ``-- --flight-record=FOLDER``.
    """
    async with embedded_server() as (url, transport):
        await _create(transport, _NODES, [_node(number) for number in range(nodes)])
        scheduler = await kubestow_scheduler(url, "--leader-elect=false", *flags)
        assert scheduler.stderr is not None
        draining = asyncio.create_task(drain(scheduler.stderr))
        cpu, began = cpu_seconds(scheduler.pid), perf_counter()
        bodies = [_pod(number) for number in range(pods)]
        if rate:
            latencies = quantiles(await _create_at_rate(transport, bodies, rate), n=100)
            figures = {"ms p50": latencies[49] * 1e3, "ms p99": latencies[98] * 1e3}
            yield f"creation to bound at {rate:,.0f} pods/s", figures
        else:
            await _create(transport, _PODS, bodies)
        created = perf_counter() - began
        seconds = await _all_bound(transport) - began
        spent = (cpu_seconds(scheduler.pid) - cpu) / pods
        figures = {
            "pods/s bound": pods / seconds,
            "s": seconds,
            "s until all were created": created,
            "ms of the scheduler's CPU per pod": spent * 1e3,
            "MB at most": peak_mb(scheduler.pid),
        }
        yield f"{pods:,} pods on {nodes:,} nodes", figures
        scheduler.terminate()
        await scheduler.wait()
        await draining


class _Metadata(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Object


async def _create_at_rate(transport: Transport, bodies: list[bytes], rate: float) -> list[float]:
    """Create pods at a constant rate; the seconds from each creation until a watch shows the pod bound."""
    sent: dict[str, float] = {}
    bound: dict[str, float] = {}
    watching = asyncio.Event()

    async def watch() -> None:
        splitter = LineSplitter()
        path = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%21%3D"
        async with transport.stream(path, idle_timeout=60) as chunks:
            watching.set()
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    bound.setdefault(msgspec.json.decode(line, type=_Event).object.metadata.name, perf_counter())
                if len(bound) == len(bodies):
                    return

    async def create_one(number: int) -> None:
        sent[f"pod-{number}"] = perf_counter()
        await transport.request("POST", _PODS, bodies[number])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await watching.wait()
        began = perf_counter()
        for number in range(len(bodies)):
            await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
            tasks.create_task(create_one(number))
    return [bound[name] - sent[name] for name in sent]


# -- a shared claim ----------------------------------------------------------------------------------------------------


async def shared_claim(pods: int = 256, nodes: int = 8) -> AsyncIterator[Row]:
    """Many pods that share one ResourceClaim, over HTTP: every binding cycle adds its pod to the claim's status.

    API server and scheduler run in separate processes. The first pod allocates the claim, the others reserve it; the
    API allows 256 reservations. The time from the first creation to the last binding, the CPU time of the scheduler
    process, and the writes of claims that failed.
    """
    containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": "shared"}]}}]
    sharing = {"containers": containers, "resourceClaims": [{"name": "shared", "resourceClaimName": "shared"}]}
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    device = {"driver": "example.com", "pool": pool, "allNodes": True, "devices": [{"name": "d0"}]}
    request = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}
    async with embedded_server() as (url, transport):
        await _create(transport, _NODES, [_node(number) for number in range(nodes)])
        for path, body in (
            ("deviceclasses", _encoded("any", {})),
            ("resourceslices", _encoded("slice", device)),
            ("namespaces/default/resourceclaims", _encoded("shared", {"devices": {"requests": [request]}})),
        ):
            await transport.request("POST", f"/apis/resource.k8s.io/v1/{path}", body)
        scheduler = await kubestow_scheduler(url, "--leader-elect=false")
        assert scheduler.stderr is not None
        log = asyncio.create_task(scheduler.stderr.read())
        cpu, began = cpu_seconds(scheduler.pid), perf_counter()
        await _create(transport, _PODS, [_encoded(f"pod-{number}", sharing) for number in range(pods)])
        seconds = await _all_bound(transport) - began
        spent = cpu_seconds(scheduler.pid) - cpu
        scheduler.terminate()
        await scheduler.wait()
        conflicts = (await log).count(b"the object has been modified")
        figures = {"s until all are bound": seconds, "s of the scheduler's CPU": spent, "conflicts logged": conflicts}
        yield f"{pods} pods share a claim", figures


# -- failover ----------------------------------------------------------------------------------------------------------

_PODS_PER_NODE = 40  # by CPU
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


async def failover(nodes: int = 1000, pods: int = 10_000) -> AsyncIterator[Row]:
    """Failover over HTTP: the leader is killed while pods are created, and the standby takes over.

    Embedded API server, two schedulers that share a Lease, and a submitter run in separate processes. The leader is
    killed (SIGKILL) when a third of the pods are bound. A watch records every change of every pod. The times until the
    standby leads and until its first binding; if any pod was moved, lost, or bound to a full node, the exit status is
    1.
    """
    async with embedded_server() as (url, transport):
        await _create(transport, _NODES, [_node(number) for number in range(nodes)])
        bindings = _Bindings(transport)
        watching = asyncio.create_task(bindings.watch())
        schedulers = [await kubestow_scheduler(url, ready=b"New leader elected") for _ in range(2)]
        draining = [asyncio.create_task(drain(process.stderr)) for process in schedulers]
        leader, standby = schedulers
        old = await _new_leader(transport, "")
        creating = asyncio.create_task(_create(transport, _PODS, [_pod(number) for number in range(pods)]))
        await bindings.wait_bound(pods // 3)
        os.kill(leader.pid, signal.SIGKILL)
        killed, before = monotonic(), len(bindings.bound_at)
        await _new_leader(transport, old)
        led = monotonic() - killed
        after = sum(1 for bound_at in bindings.bound_at if bound_at < killed + 1.0)
        await creating
        await bindings.wait_bound(pods)
        figures = {
            "bindings before": before,
            "s until the standby leads": led,
            "s until its first binding": bindings.bound_at[after] - killed,
            "s until all are bound": bindings.bound_at[-1] - killed,
        }
        yield f"{pods:,} pods on {nodes:,} nodes, the leader is killed", figures
        standby.terminate()
        status = await standby.wait()
        watching.cancel()
        await asyncio.gather(*draining, leader.wait())
        problems = [*bindings.problems(pods), *([f"the new leader exited with status {status}"] if status else [])]
        yield "every pod is bound exactly once", {"": "; ".join(problems) or "yes"}
        if problems:
            sys.exit(1)


@dataclass
class _Bindings:
    """Watches all pods and records their nodes and the times of the bindings."""

    transport: Transport
    nodes: dict[str, str] = field(default_factory=dict)
    bound_at: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Watch until cancelled."""
        splitter = LineSplitter()
        path = f"{_PODS}?watch=true&resourceVersion=0&timeoutSeconds=3600"
        async with self.transport.stream(path, idle_timeout=600.0) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    self._handle(msgspec.json.decode(line))
                self.changed.set()

    def _handle(self, event: dict[str, Any]) -> None:
        if event["type"] not in ("ADDED", "MODIFIED"):
            self.errors.append(f"unexpected watch event {event['type']}")
            return
        name, node_name = event["object"]["metadata"]["name"], event["object"]["spec"].get("nodeName", "")
        before = self.nodes.get(name, "")
        if before and node_name != before:
            self.errors.append(f"{name} moved from {before} to {node_name or 'no node'}")
        if node_name and not before:
            self.bound_at.append(monotonic())
        self.nodes[name] = node_name

    async def wait_bound(self, count: int) -> None:
        """Wait until ``count`` pods are bound."""
        while len(self.bound_at) < count:
            self.changed.clear()
            await self.changed.wait()

    def problems(self, pods: int) -> list[str]:
        """Moved pods, overcommitted nodes and unbound pods."""
        used = Counter(self.nodes.values())
        overcommitted = [f"{name} has {count} pods" for name, count in used.items() if count > _PODS_PER_NODE and name]
        unbound = pods - sum(1 for node_name in self.nodes.values() if node_name)
        return [*self.errors, *overcommitted, *([f"{unbound} pods are not bound"] if unbound else [])]


async def _new_leader(transport: Transport, old: str) -> str:
    """Wait until the holder of the lease is not ``old``; the new holder."""
    while True:
        lease = msgspec.json.decode(await transport.request("GET", _LEASE))
        holder: str = lease["spec"].get("holderIdentity", "")
        if holder not in ("", old):
            return holder
        await asyncio.sleep(0.05)


# -- start -------------------------------------------------------------------------------------------------------------

_BATCH = 500
_END = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)
_WATCH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def startup(nodes: int = 5000, pods: int = 150_000, flags: Sequence[str] = ()) -> AsyncIterator[Row]:
    """The start of ``kubestow run`` on a large cluster: CPU time and memory until it schedules.

    The server is a process that answers each watch with the objects of its kind and then keeps it open: nodes and bound
    pods, with the fields of real ones and of 200 workloads. The CPU time of the scheduler's process, imports included,
    its peak resident memory and the elapsed time, in which the server has its part. Flags of the scheduler follow
    ``--``.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listening, nodes, pods), daemon=True)
    server.start()
    began = perf_counter()
    scheduler = await kubestow_scheduler(
        f"http://127.0.0.1:{listening.getsockname()[1]}", "--leader-elect=false", *flags
    )
    figures = {
        "s of CPU": cpu_seconds(scheduler.pid),
        "MB at most": peak_mb(scheduler.pid),
        "s elapsed": perf_counter() - began,
    }
    scheduler.kill()
    await scheduler.wait()
    server.terminate()
    yield f"{nodes:,} nodes and {pods:,} pods", figures


def _objects(path: str, nodes: int, pods: int) -> Iterator[bytes]:
    """The objects of the resource at a path."""
    if path == _NODES:
        return (real_node(number) for number in range(nodes))
    if path == "/api/v1/pods":
        return (real_pod(number, nodes) for number in range(pods))
    return iter(())


def _serve(listening: socket.socket, nodes: int, pods: int) -> None:
    """Answer watches until the process is terminated."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path, _, query = head.split(b" ", 2)[1].decode().partition("?")
                if "watch=" not in query:
                    writer.write(_EMPTY)
                    continue
                writer.write(_WATCH)
                lines = (b'{"type":"ADDED","object":%b}\n' % each for each in _objects(path, nodes, pods))
                while batch := b"".join(line for _, line in zip(range(_BATCH), lines, strict=False)):
                    writer.write(b"%x\r\n%b\r\n" % (len(batch), batch))
                    await writer.drain()
                writer.write(b"%x\r\n%b\n\r\n" % (len(_END) + 1, _END))

    async def run() -> None:
        async with await asyncio.start_server(respond, sock=listening) as server:
            await server.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
