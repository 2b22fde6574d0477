"""The base classes of controllers, and what several share: the work queue, adoption of pods, histories of templates.

Controllers are level-triggered. :meth:`Controller.handle_change` enqueues the keys of the objects that a change
affects; :meth:`Controller.reconcile` reads the current state of one object and moves it towards its spec. It may run
any number of times for the same state.

The work queue is rate-limiting, with the semantics of client-go's workqueue: an item is queued once, however often it
is added, and may be added for later. Failed items are retried with exponential back-off. Items that are expensive to
reconcile can be throttled. Single-threaded: no item is processed concurrently.

Pods are claimed by selector as by kube-controller-manager's PodControllerRefManager: terminating pods are neither
adopted nor released, and an owner that is being deleted does neither.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import msgspec

from kubestow.rules.owners import template_hash
from kubestow.rules.workloads import pod_from_template, revision_data
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions, Registry
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent, matches_label_selector
from kubestow_devcluster.component_base.event_recorder import RegistryEventRecorder
from kubestow_devcluster.component_base.stored_objects import OwnerRef, controller_of, new_controller_ref, owner_refs_of
from kubestow_devcluster.controllers.pod_index import PodIndexer, PodView

Item = TypeVar("Item", bound=Hashable)

#: Back-off of failed items in seconds, doubled with each failure in a row.
INITIAL_BACK_OFF, MAX_BACK_OFF = 1.0, 60.0


class WorkQueue(Generic[Item]):
    """Items in the order they were added, in the running event loop's time."""

    def __init__(self) -> None:
        self._ready: dict[Item, None] = {}
        self._delayed: list[tuple[float, int, Item]] = []
        #: When each delayed item is due; entries of the heap with another time are stale.
        self._due: dict[Item, float] = {}
        self._throttled_until: dict[Item, float] = {}
        self._sequence = itertools.count()
        #: The last back-off of each item that failed.
        self._back_offs: dict[Item, float] = {}

    def add(self, item: Item) -> None:
        """Queue the item, or delay it until its throttling ends."""
        until = self._throttled_until.get(item, 0.0)
        if until > asyncio.get_running_loop().time():
            self._add_at(item, until)
        else:
            self._ready[item] = None

    def add_after(self, item: Item, delay: float) -> None:
        """Queue the item in ``delay`` seconds, unless it is already delayed for less."""
        self._add_at(item, asyncio.get_running_loop().time() + delay)

    def add_rate_limited(self, item: Item) -> None:
        """Queue an item that failed, after its back-off."""
        back_off = self._back_offs[item] = min(2 * self._back_offs.get(item, INITIAL_BACK_OFF / 2), MAX_BACK_OFF)
        self.add_after(item, back_off)

    def forget(self, item: Item) -> None:
        """Reset the back-off of an item that succeeded."""
        self._back_offs.pop(item, None)

    def throttle(self, item: Item, seconds: float) -> None:
        """Do not process the item again for this long, even if it is added."""
        self._throttled_until[item] = asyncio.get_running_loop().time() + seconds

    def pop(self) -> Item | None:
        """Remove and return the first item that is ready; None if there is none."""
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            when, _, item = heapq.heappop(self._delayed)
            if self._due.get(item) == when:
                del self._due[item]
                self.add(item)
        if not self._ready:
            return None
        first = next(iter(self._ready))
        del self._ready[first]
        self._throttled_until.pop(first, None)
        return first

    @property
    def next_deadline(self) -> float | None:
        """When the next item is ready, in the loop's time; a past time means now, None: there are no items."""
        if self._ready:
            return 0.0
        return self._delayed[0][0] if self._delayed else None

    def _add_at(self, item: Item, when: float) -> None:
        if self._due.get(item, when + 1) <= when:
            return
        self._due[item] = when
        heapq.heappush(self._delayed, (when, next(self._sequence), item))


class UsedResources(Protocol):
    """What a container uses: CPU in cores, memory in bytes."""

    @property
    def cpu(self) -> float: ...

    @property
    def memory(self) -> float: ...


class PodUsage(Protocol):
    """The usage of pods at the last measurement, of which there is one every ``resolution`` seconds."""

    resolution: float

    def measured_at(self) -> datetime:
        """When usage was measured last."""

    def of_pod(self, pod: StoredObject) -> Mapping[str, UsedResources]:
        """The usage of the running containers of a pod, by name; empty for a pod without metrics."""


WorkItem = tuple["Controller", str]
"""A controller and the key of an object to reconcile."""

#: Objects with more pods than this are throttled.
THROTTLE_ABOVE = 100
#: Seconds of throttling per pod.
THROTTLE_PER_POD = 0.0002
#: Seconds of throttling at most, for objects whose pods are counted as they change.
LONGEST_THROTTLE = 0.1


class ObjectChange(msgspec.Struct, frozen=True, gc=False):
    """A change of one object of ``resource``, with its owner references before and after.

    ``controllers`` are those of the owner references, before and after, that are controllers.
    """

    resource: str
    event: WatchEvent
    owner_refs: tuple[OwnerRef, ...]
    previous_owner_refs: tuple[OwnerRef, ...]
    controllers: tuple[OwnerRef, ...]

    @classmethod
    def of(cls, resource: str, event: WatchEvent) -> Self:
        after = owner_refs_of(event.object)
        before = () if event.previous is None else owner_refs_of(event.previous)
        controllers = {controller_of(after), controller_of(before)} if after or before else ()
        return cls(resource, event, after, before, tuple(ref for ref in controllers if ref is not None))

    @property
    def key(self) -> str:
        return self.event.object.key

    @property
    def is_deletion(self) -> bool:
        return self.event.type == "DELETED"

    def controller_keys(self, kind: str) -> list[str]:
        """The keys of the objects of ``kind`` that are, or were, the controller of the object."""
        return [f"{self.event.object.namespace}/{ref.name}" for ref in self.controllers if ref.kind == kind]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What all controllers share."""

    registry: Registry
    pods: PodIndexer
    queue: WorkQueue[WorkItem]
    recorder: RegistryEventRecorder
    #: Seconds without a heartbeat after which a node's conditions become Unknown.
    node_monitor_grace_period: float
    #: Seconds from the last update of an event to its deletion.
    event_ttl: float
    #: The certificates of the CA that signed the API server's, in PEM; empty without TLS.
    root_ca: str
    #: The usage of pods, if it is known.
    usage: PodUsage | None


def key_of(namespaced: Object) -> str:
    """``namespace/name`` of a namespaced object."""
    return f"{namespaced['metadata']['namespace']}/{namespaced['metadata']['name']}"


class Controller:
    """Reconciles the objects of one resource."""

    #: The resource, such as ``replicasets.apps``.
    resource: ClassVar[str]
    #: The other resources whose changes are handled; None: all.
    watched: ClassVar[frozenset[str] | None] = frozenset()
    #: The watched resource whose changes enqueue the controllers of its objects.
    owned: ClassVar[str] = ""
    #: The component in the events that the controller records.
    component: ClassVar[str] = ""

    def __init__(self, context: ControllerContext) -> None:
        self.registry, self.pods, self.recorder = context.registry, context.pods, context.recorder
        self._queue = context.queue
        self.kind: Kind = context.registry.scheme[self.resource]
        self.pod_kind: Kind = context.registry.scheme["pods"]

    def handle_change(self, change: ObjectChange) -> None:
        """Enqueue the objects that a change affects. Called for every change of :attr:`resource` and the watched."""
        if change.resource == self.resource:
            self.enqueue(change.key)
        elif change.resource == self.owned:
            for key in change.controller_keys(self.kind.name):
                self.enqueue(key)

    def reconcile(self, key: str) -> None:
        """Move one object towards its spec; does nothing if it does not exist. Raises StatusError to be retried."""
        if (current := self.get(key)) is not None:
            self.sync(key, current)

    def sync(self, key: str, current: Object) -> None:
        """Move an object that exists towards its spec. Raises StatusError to be retried."""
        raise NotImplementedError

    # The queue

    def enqueue(self, key: str) -> None:
        self._queue.add((self, key))

    def enqueue_after(self, key: str, seconds: float) -> None:
        self._queue.add_after((self, key), seconds)

    def throttle(self, key: str, pods: int, *, longest: float = math.inf) -> None:
        """Reconcile an object less often in proportion to its number of pods, if it has many."""
        if pods > THROTTLE_ABOVE:
            self._queue.throttle((self, key), min(pods * THROTTLE_PER_POD, longest))

    # Reading and writing objects

    def get(self, key: str, kind: Kind | None = None) -> Object | None:
        """The object of ``kind``, by default the controller's, with this key; None if it does not exist."""
        kind = kind or self.kind
        stored = self.registry.store.collection(kind.storage).get(key)
        return None if stored is None else kind.decode(stored)

    def update_status(self, current: Object, status: Object) -> None:
        """Write the status of ``current`` if it differs."""
        if current.get("status") == status:
            return

        def with_status(old: Object) -> Object:
            return {**old, "metadata": dict(old["metadata"]), "status": status}

        metadata = current["metadata"]
        self.registry.update(self.kind, metadata["namespace"], metadata["name"], with_status, subresource="status")

    def patch(
        self,
        current: Object,
        *,
        spec: Object | None = None,
        metadata: Object | None = None,
        kind: Kind | None = None,
        subresource: str = "",
    ) -> Object:
        """Merge fields into spec and metadata of an object of ``kind``, by default the controller's; returns it."""
        kind = kind or self.kind

        def merged(old: Object) -> Object:
            new = {**old, "metadata": {**old["metadata"], **(metadata or {})}}
            if spec:
                new["spec"] = {**old["spec"], **spec}
            return new

        identity = current["metadata"]
        namespace, name = identity["namespace"], identity["name"]
        return kind.decode(self.registry.update(kind, namespace, name, merged, subresource=subresource))

    def update_metadata(self, kind: Kind, namespace: str, name: str, mutate: Callable[[Object], None]) -> None:
        """Let ``mutate`` change the metadata of an object in place."""

        def mutated(old: Object) -> Object:
            new = {**old, "metadata": dict(old["metadata"])}
            mutate(new["metadata"])
            return new

        self.registry.update(kind, namespace, name, mutated)

    def update_owner_references(
        self, kind: Kind, namespace: str, name: str, *, remove: Collection[str] = (), add: Sequence[Object] = ()
    ) -> None:
        """Remove the references to the owners with the uids ``remove``, and add others."""

        def update(metadata: Object) -> None:
            remaining = [ref for ref in metadata.get("ownerReferences") or () if ref["uid"] not in remove]
            metadata["ownerReferences"] = [*remaining, *add]
            if not metadata["ownerReferences"]:
                del metadata["ownerReferences"]

        self.update_metadata(kind, namespace, name, update)

    def remove_finalizer(self, kind: Kind, namespace: str, name: str, finalizer: str) -> None:
        def remove(metadata: Object) -> None:
            remaining = [other for other in metadata.get("finalizers") or () if other != finalizer]
            metadata["finalizers"] = remaining
            if not remaining:
                del metadata["finalizers"]

        self.update_metadata(kind, namespace, name, remove)

    # Events

    def record_event(self, involved: Object, reason: str, message: str) -> None:
        self.recorder.normal(self.component, self.kind, involved, reason, message)

    def record_warning(self, involved: Object, reason: str, message: str) -> None:
        self.recorder.warning(self.component, self.kind, involved, reason, message)


class PodController(Controller):
    """A controller whose objects own pods."""

    watched = frozenset({"pods"})
    owned = "pods"

    def check_availability(self, owner: Object, pod: PodView) -> bool:
        """Whether a pod has been ready for the owner's minReadySeconds; if not yet, enqueues the owner for then."""
        min_ready_seconds = owner["spec"].get("minReadySeconds", 0)
        if not min_ready_seconds or not pod.is_ready:
            return pod.is_ready
        remaining = min_ready_seconds - pod.seconds_ready(self.registry.clock())
        if remaining > 0:
            self.enqueue_after(key_of(owner), remaining)
        return bool(remaining <= 0)

    def create_pods(
        self,
        owner: Object,
        count: int,
        *,
        template: Object | None = None,
        customize: Callable[[Object, int], None] | None = None,
    ) -> None:
        """Create pods from a template, by default the owner's; ``customize`` gets each pod and its index.

        Raises StatusError for the first pod that is rejected, after recording an event about it.
        """
        template = owner["spec"]["template"] if template is None else template
        pod_template = pod_from_template(owner["metadata"]["name"], template, new_controller_ref(self.kind, owner))
        encoded = msgspec.json.encode(pod_template)
        for index in range(count):
            pod = msgspec.json.decode(encoded)
            if customize is not None:
                customize(pod, index)
            namespace = owner["metadata"]["namespace"]
            try:
                created = self.registry.create(self.pod_kind, namespace, self.pod_kind.struct.read(pod, []))
            except statuses.StatusError as failure:
                self.record_pod_create_failure(owner, pod["metadata"].get("name", ""), failure)
                raise
            self.record_pod_created(owner, created.name)

    def delete_pod(self, owner: Object, pod: PodView) -> None:
        self.registry.delete(self.pod_kind, pod.metadata.namespace, pod.name, DeleteOptions(uid=pod.metadata.uid))
        self.record_pod_deleted(owner, pod.name)

    def record_pod_created(self, owner: Object, pod: str) -> None:
        self.record_event(owner, "SuccessfulCreate", f"Created pod: {pod}")

    def record_pod_create_failure(self, owner: Object, pod: str, failure: statuses.StatusError) -> None:
        self.record_warning(owner, "FailedCreate", f"Error creating: {failure.message}")

    def record_pod_deleted(self, owner: Object, pod: str) -> None:
        self.record_event(owner, "SuccessfulDelete", f"Deleted pod: {pod}")

    def update_pod_metadata(self, pod: PodView, mutate: Callable[[Object], None]) -> None:
        self.update_metadata(self.pod_kind, pod.metadata.namespace, pod.name, mutate)


class AdoptingController(PodController):
    """A controller whose objects claim the pods that match their selector."""

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource != "pods" or change.is_deletion or change.owner_refs or not event.object.labels:
            return
        if event.previous is None or change.previous_owner_refs or event.previous.labels != event.object.labels:
            # Enqueue the objects that could adopt an orphan with these labels.
            for stored in self.registry.store.collection(self.resource).snapshot(f"{event.object.namespace}/"):
                if matches_label_selector(self.selector(self.kind.decode(stored)), event.object.labels):
                    self.enqueue(stored.key)

    def selector(self, owner: Object) -> Object:
        """The label selector of an object."""
        selector: Object = owner["spec"]["selector"]
        return selector

    def can_adopt(self, owner: Object, pod: PodView) -> bool:
        """Whether the owner may adopt a pod that matches its selector."""
        return True

    def claim_pods(self, owner: Object) -> list[PodView]:
        """Adopt and release pods. Returns the owner's pods, oldest first, newly adopted ones last."""
        metadata = owner["metadata"]
        pods = self.pods.controlled_by(self.kind.name, key_of(owner), metadata["uid"])
        self.throttle(key_of(owner), len(pods))
        if "deletionTimestamp" in metadata:
            return pods
        released = {pod.key for pod in self._release_pods(owner)}
        return [*(pod for pod in pods if pod.key not in released), *self._adopt_pods(owner)]

    def adopt_and_release(self, owner: Object) -> bool:
        """Adopt and release pods. Returns whether there were any; their changes enqueue the owner again."""
        if "deletionTimestamp" in owner["metadata"]:
            return False
        return bool([*self._release_pods(owner), *self._adopt_pods(owner)])

    def _release_pods(self, owner: Object) -> list[PodView]:
        """Release the pods that do not match the owner's selector. Costs nothing per pod if all of them match."""
        uid, selector = owner["metadata"]["uid"], self.selector(owner)
        pods = self.pods.of_controller(self.kind.name, key_of(owner), uid)
        if all(matches_label_selector(selector, labels) for labels, _ in pods.label_sets()):
            return []
        released = [
            pod for pod in pods if not pod.is_terminating and not matches_label_selector(selector, pod.metadata.labels)
        ]
        for pod in released:
            self.update_owner_references(self.pod_kind, pod.metadata.namespace, pod.name, remove={uid})
        return released

    def _adopt_pods(self, owner: Object) -> list[PodView]:
        selector, controller_ref = self.selector(owner), new_controller_ref(self.kind, owner)
        adopted = [
            pod
            for pod in self.pods.orphans(owner["metadata"]["namespace"])
            if pod.is_active and matches_label_selector(selector, pod.metadata.labels) and self.can_adopt(owner, pod)
        ]
        for pod in adopted:
            self.update_owner_references(self.pod_kind, pod.metadata.namespace, pod.name, add=[controller_ref])
        return adopted


class ControllerRevisionHistory:
    """The revisions of the objects of one controller; ``hash_label`` is the label of a revision that has its hash."""

    def __init__(self, controller: Controller, *, hash_label: str) -> None:
        self._controller, self._hash_label = controller, hash_label
        self._registry = controller.registry
        self._kind: Kind = controller.registry.scheme["controllerrevisions.apps"]

    def sync(self, owner: Object) -> list[Object]:
        """Ensure that the newest revision is the current template's. Returns all revisions, oldest first."""
        revisions = self._claim_revisions(owner)
        data = revision_data(owner)
        equal = [revision for revision in revisions if revision["data"] == data]
        if equal and equal[-1] is revisions[-1]:
            return revisions
        number = max([revision["revision"] for revision in revisions], default=0) + 1
        if not equal:
            return [*revisions, self._create(owner, data, number)]

        def renumbered(old: Object) -> Object:
            return {**old, "metadata": dict(old["metadata"]), "revision": number}

        metadata = equal[-1]["metadata"]
        stored = self._registry.update(self._kind, metadata["namespace"], metadata["name"], renumbered)
        return [*(revision for revision in revisions if revision is not equal[-1]), self._kind.decode(stored)]

    def hash_of(self, revision: Object) -> str:
        hash_: str = (revision["metadata"].get("labels") or {}).get(self._hash_label, "")
        return hash_

    def truncate(self, owner: Object, revisions: list[Object], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond revisionHistoryLimit; those named in ``live`` stay and do not count."""
        unused = [revision for revision in revisions if revision["metadata"]["name"] not in live]
        surplus = max(0, len(unused) - owner["spec"].get("revisionHistoryLimit", 10))
        for revision in unused[:surplus]:
            metadata = revision["metadata"]
            self._registry.delete(
                self._kind, metadata["namespace"], metadata["name"], DeleteOptions(uid=metadata["uid"])
            )

    def _claim_revisions(self, owner: Object) -> list[Object]:
        """The revisions of the owner, orphans that match its selector included, which it adopts."""
        metadata = owner["metadata"]
        claimed = []
        for stored in self._registry.store.collection(self._kind.storage).snapshot(f"{metadata['namespace']}/"):
            controller = controller_of(owner_refs_of(stored))
            if controller is None and matches_label_selector(owner["spec"]["selector"], stored.labels):
                reference = new_controller_ref(self._controller.kind, owner)
                self._controller.update_owner_references(self._kind, stored.namespace, stored.name, add=[reference])
                claimed.append(self._kind.decode(self._registry.get(self._kind, stored.namespace, stored.name)))
            elif controller is not None and controller.uid == metadata["uid"]:
                claimed.append(self._kind.decode(stored))
        return sorted(claimed, key=lambda revision: (revision["revision"], revision["metadata"]["creationTimestamp"]))

    def _create(self, owner: Object, data: Object, number: int) -> Object:
        owner_metadata, template = owner["metadata"], owner["spec"]["template"]
        namespace, prefix = owner_metadata["namespace"], f"{key_of(owner)}-"
        # Another owner of the same name, of another kind or deleted, may have a revision with the same hash.
        existing = self._registry.store.collection(self._kind.storage).snapshot(prefix)
        hash_ = template_hash(template, {stored.key.removeprefix(prefix) for stored in existing})
        metadata: dict[str, Any] = {
            "name": f"{owner_metadata['name']}-{hash_}",
            "labels": {**(template.get("metadata", {}).get("labels") or {}), self._hash_label: hash_},
            "ownerReferences": [new_controller_ref(self._controller.kind, owner)],
        }
        if owner_metadata.get("annotations"):
            metadata["annotations"] = dict(owner_metadata["annotations"])
        new = {"metadata": metadata, "data": data, "revision": number}
        return self._kind.decode(self._registry.create(self._kind, namespace, self._kind.struct.read(new, [])))
