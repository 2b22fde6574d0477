"""The client of the API server alone."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from benchmarks.harness import Row, Rows
from benchmarks.measurement import measured
from kubestow import gc_tuning
from kubestow.api.core import Pod
from kubestow.api.meta import ObjectMeta, decode
from kubestow.client.object_requests import PodClient
from kubestow.client.reflector import Reflector
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.client.watch_decoding import LineSplitter, ListPage, ObjectDecoder, WatchLine
from kubestow.http.certificates import CertificateAuthority
from kubestow.process import WallClock
from kubestow.process import run as run_on_loop
from kubestow.scheduling.interfaces import ObjectReference, Resource

_PODS = Resource("/api/v1", "pods", "Pod", Pod)
_IN_FLIGHT = 32


def client(bindings: int = 12_800, burst: int = 1000, listed: int = 50_000, watched: int = 20_000) -> Rows:
    """The client: CPU time per binding, watch events per second, and the initial list of a large cluster.

    Servers run in separate processes and send prepared responses, so that the CPU time is that of the client alone; it
    varies by some 10 % between runs. The event loop is that of ``kubestow run``.
    """
    yield _decode_watch(watched)
    yield _decode_list(listed)
    yield from _run_against(_binding_response(), partial(_bind, bindings))
    server_tls, client_tls = _tls()
    yield from _run_against(_binding_response(), partial(_bind_bursts, burst, client_tls), tls=server_tls)
    yield from _run_against(_watch_response(listed), partial(_list_streaming, listed))


def _pod(number: int) -> dict[str, Any]:
    """A pod of some 2.2 kB, with fields of real pods that scheduling does not read."""
    name = f"web-{number:06}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    fields = {f"f:field{i}": {".": {}, "f:inner": {}} for i in range(20)}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"0baec05a-3bb9-4980-be8d-{number:012}",
        "resourceVersion": str(1000 + number),
        "labels": {"app": "web", "pod-template-hash": "5f6d8b7c9", "tier": "front"},
        "ownerReferences": [owner],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields}],
    }
    container = {
        "name": "web",
        "image": "registry.example/web:1.2.3",
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    tolerations = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    spec = {
        "containers": [container],
        "nodeName": f"node-{number % 5000}",
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    }
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "conditions": [condition], "podIP": "10.0.0.1", "qosClass": "Burstable"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def _watch_stream(count: int) -> bytes:
    """A streaming list of ``count`` pods with its final bookmark."""
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [{"type": "ADDED", "object": _pod(number)} for number in range(count)]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in [*lines, {"type": "BOOKMARK", "object": end}])


class _Server(asyncio.Protocol):
    """Sends the same response to every request."""

    response = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            _, _, length = self._received[:end].lower().partition(b"content-length: ")
            size = end + 4 + int(length.split(b"\r\n", 1)[0] or 0)
            if len(self._received) < size:
                return
            self._received = self._received[size:]
            self._transport.write(self.response)


def _serve(listening: socket.socket, response: bytes, tls: ssl.SSLContext | None) -> None:
    _Server.response = response

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(_Server, sock=listening, ssl=tls)
        await server.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(forever())


def _binding_response() -> bytes:
    body = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
    head = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _watch_response(count: int) -> bytes:
    stream = _watch_stream(count)
    chunks = (stream[start : start + 2**15] for start in range(0, len(stream), 2**15))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


async def _bind(count: int, url: str) -> list[Row]:
    """POST bindings with many requests in flight."""
    async with Transport(Credentials(url), clock=WallClock()) as transport:
        pods = PodClient(transport)

        async def work(count: int) -> None:
            for number in range(count):
                await pods.bind(ObjectReference("Pod", "default", f"web-{number}", "0baec05a-3bb9"), "node-1")

        await asyncio.gather(*(work(10) for _ in range(_IN_FLIGHT)))
        with measured() as spent:
            await asyncio.gather(*(work(count // _IN_FLIGHT) for _ in range(_IN_FLIGHT)))
    figures = {"µs of CPU each": spent.cpu / count * 1e6, "bindings/s": count / spent.elapsed}
    return [(f"bindings, {_IN_FLIGHT} in flight", figures)]


async def _bind_bursts(count: int, tls: ssl.SSLContext, url: str) -> list[Row]:
    """POST bindings over TLS, many at the same time, with no connection open before the first burst."""
    rows = []
    async with Transport(Credentials(url, tls=tls), clock=WallClock()) as transport:
        pods = PodClient(transport)
        for name in ("first", "second"):
            subjects = [ObjectReference("Pod", "default", f"web-{number}", "0baec05a-3bb9") for number in range(count)]
            with measured() as spent:
                await asyncio.gather(*(pods.bind(subject, "node-1") for subject in subjects))
            rows.append((f"{name} burst of {count:,} bindings over TLS", {"µs of CPU each": spent.cpu / count * 1e6}))
    return rows


class _Complete(Exception):
    """The list is complete."""


class _Counter:
    def __init__(self, expected: int) -> None:
        self._expected = expected

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        assert len(objects) == self._expected
        raise _Complete

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """Never called."""

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        self.fail(f"{metadata.namespace}/{metadata.name}", problem)

    def fail(self, subject: str, problem: str) -> None:
        raise AssertionError(f"{subject}: {problem}")


async def _list_streaming(count: int, url: str) -> list[Row]:
    """Read the pods of a large cluster with a streaming list over a socket."""
    clock = WallClock()
    async with Transport(Credentials(url), clock=clock) as transport:
        reflector = Reflector(transport, _PODS, _Counter(count), clock=clock, random=Random(1))
        with measured() as spent, suppress(_Complete):
            await reflector.run()
    figures = {"s of CPU": spent.cpu, "s elapsed": spent.elapsed, "events per CPU second": count / spent.cpu}
    return [(f"streaming list of {count:,} pods", figures)]


def _decode_watch(count: int) -> Row:
    """Split and decode a watch stream in memory."""
    stream, lines, decoded = _watch_stream(count), LineSplitter(), 0
    chunks = [stream[start : start + 2**17] for start in range(0, len(stream), 2**17)]
    with measured() as spent:
        for chunk in chunks:
            for line in lines.feed(chunk):
                decode(Pod, WatchLine.parse(line).object)
                decoded += 1
    return "decoding a watch", {"µs per event": spent.cpu / decoded * 1e6, "bytes each": len(stream) / decoded}


def _decode_list(count: int) -> Row:
    """Decode a list in memory."""
    items = b",".join(msgspec.json.encode(_pod(number)) for number in range(count))
    body = b'{"metadata":{"resourceVersion":"9"},"items":[%b]}' % items
    decoder = ObjectDecoder(_PODS, _Counter(count).fail)
    with gc_tuning.paused(), measured() as spent:
        objects = [decoder.decode(item) for item in ListPage.parse(body).items or []]
    figures = {"s of CPU": spent.cpu, "µs per pod": spent.cpu / len(objects) * 1e6}
    return f"decoding a list of {len(objects):,} pods", figures


def _run_against(
    response: bytes, run: Callable[[str], Awaitable[list[Row]]], *, tls: ssl.SSLContext | None = None
) -> list[Row]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    process = multiprocessing.get_context("fork").Process
    server = process(target=_serve, args=(listening, response, tls), daemon=True)
    server.start()
    try:
        return run_on_loop(run(f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.getsockname()[1]}"))
    finally:
        server.terminate()


def _tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of its client."""
    authority = CertificateAuthority.generate("benchmark")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        authority.issue_server_certificate(["127.0.0.1"]).write(certificate, key)
        server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cadata=authority.certificate.decode())
