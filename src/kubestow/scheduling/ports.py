"""What the scheduler needs of the world it runs in: three ports, a cluster API, a clock and a random source.

The live client, the simulator and the tests' in-memory server all plug in here; the scheduler cannot tell them apart.
Objects come in through a :class:`Subscriber`; what goes out is small: binds, status patches, deletions, events. Decoded
objects hold only what scheduling reads, so none is ever written back whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from kubestow.api.core import Pod, PodCondition
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.claim_writer import ResourceClaimWriter

__all__ = [
    "Clock",
    "ClusterAPI",
    "EventRecord",
    "ObjectReference",
    "PodStatusPatch",
    "Resource",
    "Subscriber",
    "reference",
]


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection of the API and the struct its objects are read into.

    ``prefix`` is ``/api/v1`` or ``/apis/<group>/<version>``; ``field_selector`` keeps out what scheduling never needs.
    """

    prefix: str
    plural: str
    kind: str
    type: type[Any]
    namespaced: bool = True
    field_selector: str = ""
    #: An API server that does not serve the resource is treated as having no such objects.
    optional: bool = False
    #: How often to look for it where it is not served, in seconds.
    absent_seconds: float = 600.0

    @property
    def api_version(self) -> str:
        """Group and version, as objects spell them."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Names one object: enough to address a write, and to describe an event's subject."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""


def reference(info: PodInfo) -> ObjectReference:
    """Names a pod that is held."""
    return ObjectReference("Pod", info.namespace, info.name, info.uid, resource_version=info.metadata.resource_version)


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """A change to a pod's status: conditions, at most one of a type, each as a whole; others stay as they are.

    ``nominated_node_name`` None leaves the field alone, ``""`` clears it.
    """

    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A Kubernetes event (events.k8s.io/v1) to be written: Normal or Warning, said of ``regarding``."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = "Normal"
    related: ObjectReference | None = None
    reporting_controller: str = "default-scheduler"


class Subscriber(Protocol):
    """Receives what list+watch brings, in order, on the event loop's thread. None of its methods may block."""

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        """The complete collection: the first list, or a new one after the watch could not be resumed."""

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """One watch event: ``ADDED``, ``MODIFIED`` or ``DELETED`` (with the object's last state)."""

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        """An object (``namespace/name`` as far as known) that does not decode; the others go on."""


class ClusterAPI(Protocol):
    """A cluster to schedule on: each call of a write is one request. Failures are raised as APIError or Unreachable.

    When writes go out, in which order and how often, is the :class:`~kubestow.scheduling.writes.dispatcher.Dispatcher`'s.
    """

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Keep the subscriber in step with the collections until cancelled, through every outage."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """POST the pod's binding, with its uid as precondition. A lost answer leaves open whether the pod is bound."""

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """GET the pod as it is now, not as a cache has it; None when it is gone or another one has its name."""

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Strategic-merge PATCH of ``pods/status``, once, with the pod's uid; it does no harm when it is repeated."""

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        """Merge-PATCH an object (or its ``status``), once, with its uid and resourceVersion as preconditions.

        The resourceVersion it has then is returned.
        """

    async def delete_pod(self, pod: ObjectReference) -> None:
        """DELETE a pod with its default grace period, if it has that uid; one that is gone already is no error."""

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Writes to claims on devices."""

    def record(self, event: EventRecord) -> None:
        """Write an event some time soon. Never blocks; may drop events when too many are waiting."""


class Clock(Protocol):
    """The source of time. Tests and the simulator run on virtual ones."""

    def now(self) -> datetime:
        """The present moment, in UTC: for timestamps that others read."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back: for backoff and durations."""

    async def sleep(self, seconds: float) -> None:
        """Return once that many seconds have passed on this clock."""
