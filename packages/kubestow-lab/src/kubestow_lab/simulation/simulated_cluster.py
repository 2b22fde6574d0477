"""The simulated cluster behind the scheduler: an API server in memory with the controllers that answer it.

A binding starts the pod at once, and a pod with a duration ends so long afterwards, or after the last of the pods that
it works with has started. Volumes are bound and provisioned at once. A pod that is evicted is replaced by its
controller, if it has one that would. The claims of pods that are gone are deleted or released.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import msgspec

from kubestow.api.core import Pod
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.cluster_api.replacements import (
    belongs_to,
    claims_of,
    released,
    replacement,
    replacing_controller,
    with_own_claims,
)
from kubestow.engine.cluster_api.volume_controller import VolumeController
from kubestow.errors import APIError
from kubestow.scheduling.interfaces import Clock, ObjectReference
from kubestow_lab.simulation.arrivals import Arrival, JointStart
from kubestow_lab.simulation.node_metrics import NODE_METRICS_PATH, Measurements, node_metrics


class DepartureTimer(Protocol):
    """A call at a time."""

    def when(self) -> float:
        """The time, in seconds."""

    def cancel(self) -> None:
        """Do not make the call."""


class DepartureTimers(Protocol):
    """Virtual time, in which calls are made: a virtual-time loop, or turns."""

    def time(self) -> float:
        """The time, in seconds."""

    def call_at(self, when: float, callback: Callable[[], object]) -> DepartureTimer:
        """Make a call at a time, in seconds."""


class ArrivalListener(Protocol):
    """Hears of pods that come and go in a simulated cluster."""

    def pod_arrived(self, arrival: Arrival) -> None:
        """A pod was created."""

    def pod_ended(self, pod: Pod) -> None:
        """A pod has run for its duration."""

    def pod_evicted(self, pod: Pod) -> None:
        """A pod was evicted for one of higher priority."""


class PodWatch(Protocol):
    """What follows changes of pods without a watch, as :class:`kubestow.scheduling.events.handlers.EventHandlers`."""

    def pod_added(self, pod: Pod) -> None:
        """A pod has been created."""

    def pod_bound(self, info: PodInfo) -> None:
        """A pending pod is on a node now."""

    def pod_deleted(self, namespace: str, name: str) -> None:
        """A pod has been deleted, or has ended."""


@dataclass(slots=True)
class _JointPods:
    """The pods of a joint start that are bound, by uid, each with its duration; and the numbers of their ends.

    They have ends once they work.
    """

    pods: dict[str, tuple[ObjectReference, float]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)


class SimulatedCluster(MemoryAPI):
    """An API server in memory with controllers, for one run after another: each begins with :meth:`serve`."""

    def __init__(self) -> None:
        super().__init__()
        self._volumes = VolumeController(self)

    def serve(
        self,
        clock: Clock,
        timers: DepartureTimers,
        listener: ArrivalListener,
        *,
        departures: bool = True,
        replaces: bool = True,
        measurements: Measurements | None = None,
    ) -> None:
        """Begin a run with the objects that are here. Pods end by the ``timers``; none may have arrived before."""
        self._measurements = measurements
        self._clock, self._timers, self._listener = clock, timers, listener
        self._departures, self._replaces = departures, replaces
        #: The arrivals of the pods that may end or be replaced, by uid.
        self._arrivals: dict[str, Arrival] = {}
        #: When which pods end, as a heap; those that were evicted before that included. Equal times keep their order.
        self._ends: list[tuple[float, int, ObjectReference]] = []
        self._end_numbers = itertools.count()
        #: The pods that start together, by name; and the numbers of ends that do not come, as a pod was evicted before.
        self._joint_pods: dict[str, _JointPods] = {}
        self._void: set[int] = set()
        self._next_end: DepartureTimer | None = None
        #: What is called when pods come, are bound and end, instead of the subscribers; None if nothing is.
        self._watch: PodWatch | None = None
        #: The state of a pod, by uid, that it knows.
        self._known: Callable[[str], PodInfo | None] = lambda uid: None

    def report_pods_to(self, watch: PodWatch, known: Callable[[str], PodInfo | None]) -> None:
        """From now on, report pods that arrive, are bound and end by calls instead of watch events.

        This takes less time. There must be one subscriber, which ``watch`` belongs to; ``known`` returns the state of a
        pod, by uid, that was reported last.
        """
        self._watch, self._known = watch, known

    def arrive(self, arrival: Arrival) -> None:
        """Create a pod."""
        pod = arrival.pod
        metadata = pod.metadata
        key = (metadata.namespace, metadata.name)
        self._arrivals[metadata.uid] = arrival
        self._listener.pod_arrived(arrival)
        if self._watch is None or key in self._pods or self._known(metadata.uid) is not None:
            self.put(pod)
            return
        pod = self._pods[key] = Pod(metadata=self._new_version(pod), spec=pod.spec, status=pod.status)
        self._watch.pod_added(pod)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind and start a pod. Raises APIError if it does not exist, has another UID, or is already bound."""
        current = self._current(pod)
        if current.spec.node_name:
            raise APIError(409, "Conflict", f'pod {pod.name} is already assigned to node "{current.spec.node_name}"')
        status = msgspec.structs.replace(
            current.status, phase="Running", start_time=self._clock.now(), nominated_node_name=""
        )
        spec = msgspec.structs.replace(current.spec, node_name=node_name)
        before = None if self._watch is None else self._known(pod.uid)
        if self._watch is None or before is None or before.requests is not before.shape.requests:
            self.put(Pod(metadata=current.metadata, spec=spec, status=status))
        else:
            bound = self._pods[pod.namespace, pod.name] = Pod(self._new_version(current), spec, status)
            if before.spec is not current.spec:
                shared = msgspec.structs.replace(before.spec, node_name=node_name)
                bound = Pod(bound.metadata, shared, status)
            self._watch.pod_bound(PodInfo(bound, before.shape, before.requests, before.nonzero_requests))
        arrival = self._arrivals.get(pod.uid)
        if self._departures and arrival is not None and arrival.duration is not None:
            self._begin(pod, arrival.duration, arrival.joint_start)
            self._await_next_end()

    def _begin(self, pod: ObjectReference, duration: float, joint_start: JointStart | None) -> None:
        """Have a pod that is bound end after its duration, once those that it works with are bound as well."""
        beginning, ends = [(pod, duration)], list[int]()
        if joint_start is not None:
            joint = self._joint_pods.setdefault(joint_start.name, _JointPods())
            joint.pods[pod.uid] = pod, duration
            if len(joint.pods) < joint_start.size:
                return
            beginning, ends = beginning if joint.ends else list(joint.pods.values()), joint.ends
        for each, seconds in beginning:
            number = next(self._end_numbers)
            heapq.heappush(self._ends, (self._timers.time() + seconds, number, each))
            ends.append(number)

    def _leave(self, uid: str, *, is_over: bool) -> Arrival | None:
        """Have a pod leave those that it works with: these wait for its replacement, unless its work ``is_over``."""
        arrival = self._arrivals.pop(uid, None)
        if arrival is not None and arrival.joint_start is not None:
            joint = self._joint_pods.get(arrival.joint_start.name)
            if joint is not None and joint.pods.pop(uid, None) is not None:
                if not is_over:
                    self._void.update(joint.ends)
                    joint.ends.clear()
                if not joint.pods:
                    del self._joint_pods[arrival.joint_start.name]
        return arrival

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Evict a pod, and create its replacement."""
        evicted = self._pods.get((pod.namespace, pod.name))
        await super().delete_pod(pod)
        if evicted is None or evicted.metadata.uid != pod.uid:
            return
        self._listener.pod_evicted(evicted)
        arrival = self._leave(pod.uid, is_over=False)
        controller = replacing_controller(evicted) if self._replaces else None
        if controller is None:
            self._release_claims(evicted)
            return
        created = replacement(evicted, controller, self._pods, timestamp(self._clock.now()))
        created, claims = with_own_claims(created, evicted, self._find)
        self._release_claims(evicted)
        for claim in claims:
            self.put(claim)
        known = arrival or Arrival(evicted, 0.0, None, {})
        self.arrive(replace(known, pod=created, time=self._clock.monotonic(), is_replacement=True))

    def withdraw(self, pod: Pod) -> None:
        """Delete a pod that is not to run any more; nothing replaces it."""
        current = self._find_pod(pod.metadata)
        if current is not None:
            self._leave(pod.metadata.uid, is_over=False)
            self.remove(current)
            self._listener.pod_evicted(current)
            self._release_claims(current)

    def complete(self, pod: Pod) -> None:
        """End a pod now."""
        current = self._find_pod(pod.metadata)
        if current is not None:
            self._end(current)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Serve the metrics of nodes; raises APIError for anything else."""
        if (method, path) == ("GET", NODE_METRICS_PATH):
            measured = self._measurements and self._measurements.node_metrics(self._clock.now())
            return measured or node_metrics(self.nodes(), self.pods(), self._clock.now())
        return await super().request(method, path, body)

    def put(self, obj: Any) -> str:
        """Create or replace an object; the volume controller then acts on it. Returns its new resourceVersion."""
        version = super().put(obj)
        if isinstance(obj, (PersistentVolume, PersistentVolumeClaim)):
            self._volumes.reconcile(obj)
        return version

    def next_departure(self) -> float | None:
        """When the next of the pods that are running now ends, in seconds of virtual time."""
        return self._ends[0][0] if self._ends else None

    def _await_next_end(self) -> None:
        """Have a timer run for the pod that ends next. One timer for all: a loop compares timers in Python."""
        time, timer = self.next_departure(), self._next_end
        if timer is not None:
            if timer.when() == time:
                return
            timer.cancel()
        self._next_end = None if time is None else self._timers.call_at(time, partial(self._end_due_pods, time))

    def _end_due_pods(self, time: float) -> None:
        self._next_end = None
        now = max(time, self._timers.time())  # a timer may be early by a rounding error
        while self._ends and self._ends[0][0] <= now:
            _, number, pod = heapq.heappop(self._ends)
            if number in self._void:
                self._void.discard(number)
                continue
            current = self._find_pod(pod)
            if current is not None:
                self._end(current)
        self._await_next_end()

    def _end(self, pod: Pod) -> None:
        metadata = pod.metadata
        self._leave(metadata.uid, is_over=True)
        self._listener.pod_ended(pod)
        if self._watch is None:
            self.remove(pod)
        else:
            del self._pods[metadata.namespace, metadata.name]
            self._watch.pod_deleted(metadata.namespace, metadata.name)
        self._release_claims(pod)

    def _find_pod(self, identity: ObjectReference | ObjectMeta) -> Pod | None:
        """The current state of a pod, None if it is gone."""
        current = self._pods.get((identity.namespace, identity.name))
        return current if current is not None and current.metadata.uid == identity.uid else None

    def _release_claims(self, pod: Pod) -> None:
        """Act as the claim controllers after a pod is gone."""
        uid = pod.metadata.uid
        if (extended := self.resource_claims.extended.pop(uid, None)) is not None:
            status = msgspec.structs.replace(pod.status, extended_resource_claim_status=extended)
            pod = msgspec.structs.replace(pod, status=status)
        for claim in claims_of(pod, self._find):
            if isinstance(claim, ResourceClaim) and (rest := released(claim, {uid})) is not claim:
                self.put(rest)  # the event that pods wait for, also before a deletion
            if belongs_to(claim, {uid}):
                self.remove(claim)

    def _find(self, kind: type[Any], namespace: str, name: str) -> Any | None:
        return self.objects(kind).get((namespace, name))
