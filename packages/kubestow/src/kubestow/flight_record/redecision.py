"""Re-decision: the recorded cluster under another configuration, and which placements differ.

Nodes, volumes, new pods and all that others did happen as recorded, in virtual time. What the recorded scheduler did is
left out: its bindings, the conditions and nominations that it wrote, and the evictions of its victims. A scheduler with
the other configuration decides instead, on a cluster in memory. Decisions take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from kubestow import config
from kubestow.api.core import Pod, PodStatus
from kubestow.api.custom import CustomObject
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.engine import virtual_time
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.pipeline.offline_scheduler import custom_kinds, extenders_text
from kubestow.errors import InputError
from kubestow.flight_record.entries import Answered, Called, Changed, Entry, Listed
from kubestow.flight_record.exact_replay import recorded_random
from kubestow.flight_record.segment import Segment
from kubestow.framework.profile import Registry
from kubestow.rules.pods import is_preempted
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import PODS, with_custom
from kubestow.scheduling.interfaces import Clock, ObjectReference, Resource, Subscriber
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler

_OWN_CONDITIONS = frozenset({"PodScheduled", "DisruptionTarget"})
#: After the last event the scheduler goes on for at most so many seconds, in steps of the period.
_SETTLING, _PERIOD = 10.0, 0.1


@dataclass(frozen=True, slots=True)
class PodComparison:
    """Where a pod was in the record, and where it is now; nodes are empty for a pod that had none.

    ``message`` says why it has no node now. ``was_victim`` and ``is_victim`` say whether it was evicted. ``owner`` is
    kind/name of the pod's controller, empty for none.
    """

    pod: str
    recorded: str
    redecided: str
    message: str = ""
    was_victim: bool = False
    is_victim: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Redecision:
    """The comparison of a record with its re-decision.

    ``pods`` are those that were pending at some time and those that were evicted in either run; ``seconds`` the length
    of the record; ``damage`` what is wrong with its file after the part that was used.
    """

    pods: tuple[PodComparison, ...]
    seconds: float
    remarks: tuple[str, ...] = ()
    damage: InputError | None = None

    def moved(self) -> list[PodComparison]:
        """The pods that are on another node."""
        return [pod for pod in self.pods if pod.recorded and pod.redecided and pod.recorded != pod.redecided]

    def newly_pending(self) -> list[PodComparison]:
        """The pods that had a node and have none."""
        return [pod for pod in self.pods if pod.recorded and not pod.redecided]

    def newly_placed(self) -> list[PodComparison]:
        """The pods that had no node and have one."""
        return [pod for pod in self.pods if pod.redecided and not pod.recorded]

    def victims_differ(self) -> list[PodComparison]:
        """The pods that were evicted in one of the runs only."""
        return [pod for pod in self.pods if pod.was_victim != pod.is_victim]

    def same(self) -> int:
        """How many pods are where they were."""
        return sum(1 for pod in self.pods if pod.recorded == pod.redecided and pod.was_victim == pod.is_victim)


def redecide(
    segment: Segment,
    configuration: config.KubeSchedulerConfiguration,
    registry: Registry,
    gates: config.FeatureGates,
    pod_group_apis: Sequence[PodGroupAPI] = (),
) -> Redecision:
    """Decide a record again under a configuration. Must not be called on a running event loop."""

    async def run() -> Redecision:
        # The date and time are those of the record: plugins compare them with those of measurements.
        began = datetime.fromisoformat(segment.header.began)
        clock = virtual_time.VirtualClock(asyncio.get_running_loop(), began)
        return await _Run(segment, configuration, registry, gates, pod_group_apis, clock).result()

    return virtual_time.run(run())


@dataclass(slots=True)
class _Recorded:
    """What the recorded scheduler, or whichever scheduler was there, has done.

    ``pending`` are the pods that were seen without a node, by uid; ``nodes`` the nodes that they got; ``victims`` the
    uids of pods that were evicted for others. ``names`` and ``owners`` are those of all pods by uid.
    """

    pending: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    victims: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    damage: InputError | None = None

    @classmethod
    def of(cls, segment: Segment, scheduler_names: Sequence[str]) -> _Recorded:
        recorded, binds = cls(), {}
        try:
            for entry, pods in _entries_with_pods(segment):
                for pod in pods:
                    recorded._see(pod, scheduler_names)
                if isinstance(entry, Called) and entry.method in ("bind", "extender_bind"):
                    _, uid, node = entry.arguments
                    binds[entry.call] = (uid, node)
                elif isinstance(entry, Called) and entry.method == "delete_pod":
                    recorded.victims.add(entry.arguments[1])
                elif isinstance(entry, Answered) and entry.failure is None and entry.call in binds:
                    uid, node = binds.pop(entry.call)
                    recorded.nodes[uid] = node
        except InputError as error:
            recorded.damage = error
        return recorded

    def _see(self, pod: Pod, scheduler_names: Sequence[str]) -> None:
        uid = pod.metadata.uid
        self.names[uid] = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if (controller := pod.metadata.controller) is not None:
            self.owners[uid] = f"{controller.kind}/{controller.name}"
        if not pod.spec.node_name and pod.spec.scheduler_name in scheduler_names:
            self.pending[uid] = self.names[uid]
        elif pod.spec.node_name and uid in self.pending:
            self.nodes[uid] = pod.spec.node_name
        if is_preempted(pod.status):
            self.victims.add(uid)


def _entries(segment: Segment) -> Iterator[Entry]:
    for chunk in segment.chunks():
        yield from chunk.entries


def watched_resources(segment: Segment, kinds: Iterable[type[CustomObject]] = ()) -> list[Resource | None]:
    """The resources that were watched; None for custom resources that are not of the ``kinds``."""
    resources = with_custom(kinds)
    known: dict[tuple[str, ...], Resource] = {(each.prefix, each.plural, each.kind): each for each in resources}
    if segment.header.resources:
        return [known.get(tuple(name)) for name in segment.header.resources]
    for entry in _entries(segment):
        if isinstance(entry, Called) and entry.method == "subscribe":
            return [known.get(tuple(name)) for name in entry.arguments]
    return []


def deliver(segment: Segment, subscriber: Subscriber, kinds: Iterable[type[CustomObject]] = ()) -> Iterator[float]:
    """Deliver what the watches of a record have delivered; yields the time before each step, in seconds.

    Custom resources that are not of the ``kinds`` are left out. Raises InputError where the file is damaged.
    """
    resources = watched_resources(segment, kinds)
    for entry in _entries(segment):
        if not isinstance(entry, Listed | Changed) or (resource := resources[entry.resource]) is None:
            continue
        yield entry.time
        if isinstance(entry, Listed):
            subscriber.replace(resource, [msgspec.convert(obj, resource.type) for obj in entry.objects])
        else:
            subscriber.apply(resource, entry.type, msgspec.convert(entry.object, resource.type))


def _entries_with_pods(segment: Segment) -> Iterator[tuple[Entry, list[Pod]]]:
    """All entries, each with the pods that it contains."""
    resources = watched_resources(segment)
    for entry in _entries(segment):
        is_of_pods = isinstance(entry, Listed | Changed) and resources[entry.resource] == PODS
        objects = entry.objects if isinstance(entry, Listed) else [entry.object] if isinstance(entry, Changed) else []
        yield entry, [msgspec.convert(obj, Pod) for obj in objects] if is_of_pods else []


class _World(MemoryAPI):
    """The cluster in memory: pods start when they are bound, and evictions are counted."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.nodes_of: dict[str, str] = {}
        self.victims: dict[str, str] = {}

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await super().bind(pod, node_name)
        bound = self._current(pod)
        self.put(replace(bound, status=replace(bound.status, phase="Running", start_time=self._clock.now())))
        self.nodes_of[pod.uid] = node_name

    async def delete_pod(self, pod: ObjectReference) -> None:
        self.victims[pod.uid] = f"{pod.namespace}/{pod.name}"
        await super().delete_pod(pod)


class _Messages(Observer):
    """Why the last attempt of each pod failed, by uid."""

    def __init__(self) -> None:
        self.by_uid: dict[str, str] = {}

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.by_uid[queued.info.uid] = message


class _Run:
    def __init__(
        self,
        segment: Segment,
        configuration: config.KubeSchedulerConfiguration,
        registry: Registry,
        gates: config.FeatureGates,
        pod_group_apis: Sequence[PodGroupAPI],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._segment, self._configuration = segment, configuration
        self._registry, self._gates, self._pod_group_apis = registry, gates, pod_group_apis
        self._recorded = _Recorded.of(segment, [profile.scheduler_name for profile in configuration.profiles])
        self._world, self._messages = _World(self._clock), _Messages()
        self._unknown: set[int] = set()

    async def result(self) -> Redecision:
        loop = asyncio.get_running_loop()
        header = self._segment.header
        scheduler = Scheduler(
            self._configuration,
            registry=self._registry,
            environment=Environment(
                self._world,
                self._clock,
                recorded_random(header) if header.random else Random(0),
                self._messages,
            ),
            pod_group_apis=self._pod_group_apis,
            gates=self._gates,
            pod_max_in_unschedulable_pods=header.pod_max_in_unschedulable_pods,
        )
        read_by = custom_kinds(scheduler.profiles.values())
        kinds = dict.fromkeys((*(api.kind for api in self._pod_group_apis), *read_by))
        resources = watched_resources(self._segment, kinds)
        missing = {position for position, resource in enumerate(resources) if resource is not None}
        running: asyncio.Task[None] | None = None
        began = last = header.monotonic
        for number, entry in enumerate(self._readable(), start=1):
            if not isinstance(entry, Listed | Changed):
                continue
            last = max(last, entry.time)
            if running is not None:
                await asyncio.sleep(max(0.0, last - began - loop.time()))
            self._apply(resources[entry.resource], entry)
            missing.discard(entry.resource)
            is_complete = not missing if header.snapshot is None else number >= header.snapshot
            if running is None and is_complete:
                began = last
                running = asyncio.create_task(scheduler.run())
        if running is None:  # the record ends before everything was listed
            running = asyncio.create_task(scheduler.run())
        settling = loop.time()
        for _ in range(int(_SETTLING / _PERIOD)):
            await asyncio.sleep(_PERIOD)
            if not scheduler.queue.is_busy(settling) and not scheduler.work_in_progress:
                break
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        remarks = []
        if self._configuration.extenders:
            remarks.append(extenders_text(len(self._configuration.extenders)))
        if self._unknown:
            remarks.append(f"{len(self._unknown)} resources that only plugins watch were left out")
        recorded = {resource.type for resource in resources if resource is not None}
        for kind, names in read_by.items():
            if kind not in recorded:
                remarks.append(f"{kind.resource} is not in the record: {names} decides as if there was none")
        seconds = last - header.monotonic
        return Redecision(tuple(self._comparisons()), seconds, tuple(remarks), self._recorded.damage)

    def _readable(self) -> Iterator[Entry]:
        """The entries before any damage, which is known already."""
        try:
            yield from _entries(self._segment)
        except InputError:
            return

    # -- what happens as recorded ----------------------------------------------------------------------------------

    def _apply(self, resource: Resource | None, entry: Listed | Changed) -> None:
        if resource is None:
            self._unknown.add(entry.resource)
            return
        if isinstance(entry, Changed):
            obj = msgspec.convert(entry.object, resource.type)
            if entry.type == "DELETED":
                self._remove(resource, obj)
            else:
                self._put(resource, obj)
            return
        listed = [msgspec.convert(obj, resource.type) for obj in entry.objects]
        names = {(obj.metadata.namespace, obj.metadata.name) for obj in listed}
        for key, obj in list(self._world.objects(resource.type).items()):
            if key not in names:
                self._remove(resource, obj)
        for obj in listed:
            self._put(resource, obj)

    def _put(self, resource: Resource, obj: Any) -> None:
        if resource == PODS:
            obj = self._without_recorded_decisions(obj)
            if obj is None:
                return
        self._world.put(obj)

    def _remove(self, resource: Resource, obj: Any) -> None:
        if resource != PODS or obj.metadata.uid not in self._recorded.victims:
            self._world.remove(obj)

    def _without_recorded_decisions(self, pod: Pod) -> Pod | None:
        """The pod as others have made it; None if nothing but the recorded scheduler has changed it."""
        uid = pod.metadata.uid
        if uid in self._recorded.victims:
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=None))
            if uid in self._world.victims:
                return None
        if uid not in self._recorded.pending:
            return pod
        current = self._world.objects(Pod).get((pod.metadata.namespace, pod.metadata.name))
        if current is not None and current.metadata.uid != uid:
            current = None
        if current is None:
            conditions = [c for c in pod.status.conditions if c.type not in _OWN_CONDITIONS]
            status = PodStatus(conditions=conditions)
            return replace(pod, spec=replace(pod.spec, node_name=""), status=status)
        changed = replace(pod, spec=replace(pod.spec, node_name=current.spec.node_name), status=current.status)
        return None if _unversioned(changed) == _unversioned(current) else changed

    # -- results ---------------------------------------------------------------------------------------------------

    def _comparisons(self) -> Iterator[PodComparison]:
        recorded, world = self._recorded, self._world
        evicted = {uid: recorded.names.get(uid, uid) for uid in recorded.victims}
        pods: Mapping[str, str] = {**recorded.pending, **evicted, **world.victims}
        for uid, name in sorted(pods.items(), key=lambda item: (item[1], item[0])):
            node = world.nodes_of.get(uid, "")
            is_own = uid in recorded.pending
            yield PodComparison(
                name,
                recorded.nodes.get(uid, ""),
                node,
                message="" if node or not is_own else self._messages.by_uid.get(uid, "no attempt was made"),
                was_victim=uid in recorded.victims,
                is_victim=uid in world.victims,
                owner=recorded.owners.get(uid, ""),
            )


def _unversioned(pod: Pod) -> tuple[ObjectMeta, Any, Any]:
    return replace(pod.metadata, resource_version=""), pod.spec, pod.status
