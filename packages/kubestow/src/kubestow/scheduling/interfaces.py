"""The interfaces between the scheduler and its environment: the cluster API, the clock, and long computations.

The client of a real API server, the in-memory cluster of tests and offline simulation implement them. Objects arrive at
a :class:`Subscriber`. Writes are small: bindings, status patches, deletions, events. Decoded objects hold only the
fields that scheduling reads, so no object is ever written back as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any, Protocol

from kubestow.api.core import Pod, PodCondition
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.handle import ResourceClaimWriter


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A resource of the API and the struct that its objects are decoded into.

    ``prefix`` is ``/api/v1`` or ``/apis/<group>/<version>``; ``field_selector`` excludes objects that scheduling never
    needs. Resources are compared by value. Every watch event does so several times, mostly with the same object.
    """

    prefix: str
    plural: str
    kind: str
    type: type[Any]
    namespaced: bool = True
    field_selector: str = ""
    #: Whether an API server that does not serve the resource is treated as one without such objects.
    optional: bool = False
    #: How often discovery is repeated while it is not served, in seconds.
    absent_seconds: float = 600.0
    #: The feature gate without which a scheduler does not watch the resource; empty for none.
    gate: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal."""
        if self is other:
            return True
        if not isinstance(other, Resource) or self.type is not other.type:
            return False
        return astuple(self) == astuple(other)

    def __hash__(self) -> int:
        return hash((self.prefix, self.plural, self.type))

    @property
    def api_version(self) -> str:
        """Group and version, as in the ``apiVersion`` of its objects."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    @property
    def qualified_name(self) -> str:
        """Plural and group, as an API server's errors name it: ``pods``, ``resourceclaims.resource.k8s.io``."""
        group, slash, _ = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if slash else self.plural


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Identifies one object: enough to address a write, and as the subject of an event."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""


def reference(info: PodInfo) -> ObjectReference:
    """The reference to a pod."""
    meta = info.pod.metadata
    return ObjectReference("Pod", meta.namespace, meta.name, meta.uid, resource_version=meta.resource_version)


@dataclass(frozen=True, slots=True)
class PodStatusPatch:
    """A change to a pod's status: whole conditions, at most one of each type; other conditions stay as they are.

    ``nominated_node_name`` None leaves the field alone, ``""`` clears it.
    """

    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A Kubernetes event (events.k8s.io/v1) to be written: Normal or Warning, about ``regarding``."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = "Normal"
    related: ObjectReference | None = None
    reporting_controller: str = "default-scheduler"


class Subscriber(Protocol):
    """Receives list and watch results in order, on the event loop. No method may block."""

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        """The complete collection: the first list, or a new one after the watch could not be resumed."""

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """One watch event: ``ADDED``, ``MODIFIED`` or ``DELETED`` (with the object's last state)."""

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        """An object that does not decode; others are not affected. Of its metadata only what identifies it is known."""


class ClusterAPI(Protocol):
    """An API server: each write is one request. Failures are raised as APIError or Unreachable.

    A real one is :class:`~kubestow.client.cluster_client.ClusterClient` (``bind`` is in its base, PodClient). The
    :class:`~kubestow.scheduling.api_calls.dispatcher.Dispatcher` decides when, in which order, how often.
    """

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """List and watch resources for a subscriber until cancelled, and re-establish watches after every failure."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """POST the pod's binding, with its uid as precondition. After a lost response the pod may be bound."""

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """GET the pod from the server, not from a cache; None if it is deleted or another pod has its name."""

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Strategic-merge PATCH of ``pods/status``, once, with the pod's uid; repeating it is harmless."""

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        """Merge-PATCH an object (or its ``status``), once, with its uid and resourceVersion as preconditions.

        Returns the new resourceVersion.
        """

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send any other request, once; bodies are plain data. A PATCH is a JSON merge patch."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        """DELETE a pod with its grace period and its uid as precondition; a pod already deleted is no error."""

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Writes to ResourceClaims."""

    def record(self, event: EventRecord) -> None:
        """Write an event in the background. Never blocks; drops events when too many are queued."""


class Clock(Protocol):
    """The source of time. Tests and simulations use virtual ones."""

    def now(self) -> datetime:
        """The current time in UTC, for timestamps in objects."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, never decreasing: for backoff and durations."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of this clock."""


class Computing(Protocol):
    """Runs computations that are too long for the event loop. Each depends only on what it was given."""

    async def run(self, computation: Callable[[], object]) -> None:
        """Run a computation to its end. It raises nothing. A replay leaves it out; its caller then runs it."""
