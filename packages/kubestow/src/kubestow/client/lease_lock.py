"""The Lease that the candidates of a leader election compete for.

A Lease is the one object that is written back whole, so it is kept as decoded JSON with all its fields. Every write
carries the resourceVersion that was read, so of two concurrent writers one gets a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubestow.api.reports import EventType
from kubestow.client.decoding import UNDECODABLE
from kubestow.client.rest.transport import Transport
from kubestow.errors import Unreachable
from kubestow.scheduling.interfaces import EventRecord, ObjectReference

__all__ = ["LeaseLock"]

_API_VERSION = "coordination.k8s.io/v1"
_LEADER_ELECTION = EventType(
    "LeaderElection",
    "LeaderElection",
    "{identity} {what}",
    regarding="Lease",
    help='A replica "became leader", or "stopped leading".',
)


class LeaseLock:
    """Reads and writes one Lease for the candidate ``identity``.

    ``record`` receives events about the Lease, with ``reporting_controller`` as their reporter.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        identity: str,
        namespace: str = "kube-system",
        name: str = "kube-scheduler",
        record: Callable[[EventRecord], None] = lambda event: None,
        reporting_controller: str = "default-scheduler",
    ) -> None:
        self._transport, self.identity = transport, identity
        self._namespace, self._name = namespace, name
        self._record, self._reporting_controller = record, reporting_controller
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def get(self) -> dict[str, Any]:
        """GET the Lease and return its spec. Raises APIError (404 if it does not exist) and Unreachable."""
        return await self._send("GET", f"{self._collection}/{self._name}")

    async def create(self, spec: dict[str, Any]) -> dict[str, Any]:
        """POST the Lease and return its spec. Raises APIError and Unreachable."""
        metadata = {"name": self._name, "namespace": self._namespace}
        self._lease = {"kind": "Lease", "apiVersion": _API_VERSION, "metadata": metadata}
        return await self._send("POST", self._collection, self._lease | {"spec": spec})

    async def update(self, spec: dict[str, Any]) -> dict[str, Any]:
        """PUT the Lease as last read, with this spec, and return the spec. Raises APIError and Unreachable."""
        return await self._send("PUT", f"{self._collection}/{self._name}", self._lease | {"spec": spec})

    async def _send(self, method: str, path: str, lease: dict[str, Any] | None = None) -> dict[str, Any]:
        body = await self._transport.request(method, path, None if lease is None else msgspec.json.encode(lease))
        try:
            self._lease = msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise Unreachable(self._transport.server, f"malformed Lease {self}: {error}") from None
        return self._lease.get("spec") or {}

    def record_event(self, what: str) -> None:
        """Record an event about the candidate (semantics 1.7), for example ``became leader``."""
        metadata = self._lease.get("metadata") or {}
        lease = ObjectReference(
            "Lease",
            self._namespace,
            self._name,
            metadata.get("uid") or "",
            api_version=_API_VERSION,
            resource_version=metadata.get("resourceVersion") or "",
        )
        event = _LEADER_ELECTION
        note = event.note.format(identity=self.identity, what=what)
        self._record(
            EventRecord(lease, event.reason, event.action, note, reporting_controller=self._reporting_controller)
        )
