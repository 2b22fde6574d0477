"""Admission: the queues of a cluster, cycle after cycle.

:class:`Admission` holds the state and the waiting Workloads together, as Kueue's cache and queue manager do. It decides
and keeps count; that an admitted Workload runs, and a preempted one stops, is up to its caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from kubestow.api.core import Node, Pod
from kubestow_contrib.kueue.admission_cycle import AdmissionCycle, AdmissionSettings, Entry, Outcome
from kubestow_contrib.kueue.admission_state import AdmissionState
from kubestow_contrib.kueue.local_queue_usage import LocalQueueUsage
from kubestow_contrib.kueue.objects import (
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
    amount,
)
from kubestow_contrib.kueue.pending_workloads import PendingQueue, queues_of_tree
from kubestow_contrib.kueue.topology import flavor_topologies
from kubestow_contrib.kueue.workload_info import WorkloadInfo, seconds_of


@dataclass(slots=True)
class KueueObjects:
    """The objects of Kueue in a cluster, and the nodes of its topologies.

    ``checks`` is None if it is not known which admission checks exist. ``pods`` are on nodes without an assignment by
    topology.
    """

    cluster_queues: list[ClusterQueue] = field(default_factory=list)
    cohorts: list[Cohort] = field(default_factory=list)
    flavors: list[ResourceFlavor] = field(default_factory=list)
    local_queues: list[LocalQueue] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    checks: list[AdmissionCheck] | None = None
    priority_classes: list[WorkloadPriorityClass] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)


class Admission:
    """The queues of a cluster at the time ``now``, in seconds since the epoch, and the Workloads in them.

    ``namespaces`` are the labels of namespaces by name. ``unqueued`` has, by key, the Workloads that are in no
    queue, each with the reason. Raises InvalidQuantity and InvalidSelector for an object with one.
    """

    def __init__(
        self,
        objects: KueueObjects,
        namespaces: Mapping[str, Mapping[str, str]],
        settings: AdmissionSettings | None = None,
        now: float = 0.0,
    ) -> None:
        self.settings = settings or AdmissionSettings()
        self.namespaces = namespaces
        topologies = flavor_topologies(objects.flavors, objects.topologies, objects.nodes, objects.pods)
        self.state = AdmissionState(
            objects.cluster_queues, objects.cohorts, objects.flavors, objects.checks, topologies
        )
        self.local_queues = {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects.local_queues}
        self.pending: dict[str, PendingQueue] = {}
        self.unqueued: dict[str, tuple[WorkloadInfo, str]] = {}
        self._usage = LocalQueueUsage(
            self.settings.half_life, self.settings.sampling_interval, self.settings.resource_weights
        )
        self._cycles = 0
        self._now = now
        for name, queue in self.state.cluster_queues.items():
            by_usage = self.settings.usage_fair_sharing and queue.is_fair_by_usage
            self.pending[name] = PendingQueue(queue.is_strict, self._local_usage if by_usage else None)
        for key, local_queue in self.local_queues.items():
            status = local_queue.status.fair_sharing.admission_fair_sharing_status
            consumed = {name: amount(name, quantity) for name, quantity in status.consumed_resources.items()}
            updated = seconds_of(status.last_update) if status.last_update else now
            self._usage.open_account(key, local_queue.spec.fair_sharing.as_number(), consumed, updated)
        for workload in objects.workloads:
            if not workload.is_in(FINISHED):
                self.put(WorkloadInfo.of(workload), now)

    def _local_usage(self, queue: tuple[str, str]) -> float:
        return self._usage.usage(queue, self._now)

    def cluster_queue_of(self, workload: Workload) -> str:
        """The name of the ClusterQueue that a Workload waits for; "" if its LocalQueue does not exist."""
        local_queue = self.local_queues.get((workload.metadata.namespace, workload.spec.queue_name))
        return "" if local_queue is None else local_queue.spec.cluster_queue

    def put(self, info: WorkloadInfo, now: float) -> None:
        """Add a Workload: to the state if it has quota, else to the queue of its ClusterQueue."""
        self._now = max(self._now, now)
        if info.has_quota:
            self.state.add(info)
            self._usage.run(info.local_queue, _totals(info), self._now)
            return
        workload = info.workload
        local_queue = self.local_queues.get((workload.metadata.namespace, workload.spec.queue_name))
        info.cluster_queue = self.cluster_queue_of(workload)
        if local_queue is None:
            problem = (
                f"there is no LocalQueue {workload.spec.queue_name}"
                if workload.spec.queue_name
                else "it names no LocalQueue"
            )
        elif info.cluster_queue not in self.pending:
            problem = f"there is no ClusterQueue {info.cluster_queue}"
        elif not workload.spec.active:
            problem = "it is not active (spec.active is false)"
        elif local_queue.spec.stop_policy not in ("", "None"):
            problem = f"LocalQueue {local_queue.metadata.name} is stopped"
        else:
            self.pending[info.cluster_queue].push(info, now)
            return
        self.unqueued[info.key] = info, problem

    def run_cycle(self, now: float) -> list[Entry]:
        """Decide about the heads of all queues; nothing if there are none.

        Admitted Workloads have quota afterwards; all others are back in their queues. Targets of preemption keep their
        quota until :meth:`release`.
        """
        self._now = max(self._now, now)
        heads = []
        for name, queue in self.pending.items():
            if not self.state.cluster_queues[name].problem and (info := queue.pop()) is not None:
                heads.append(info)
        if not heads:
            return []
        self._cycles += 1
        self._note_usages(now)
        cycle = AdmissionCycle(self.state, self.namespaces, self.settings, now, self._cycles)
        entries = cycle.run(heads)
        for entry in entries:
            if entry.outcome is Outcome.ADMITTED:
                self._usage.admit(entry.info.local_queue, _totals(entry.info), self._now)
            else:
                self.pending[entry.info.cluster_queue].requeue(entry.info, entry.requeue, now)
        return entries

    def settle(self, now: float) -> Iterator[Entry]:
        """Decide until nothing changes: the entries of Workloads that are admitted, and that preempt others.

        Preempted Workloads lose their quota at once and go back to their queues; what waits for quota is tried again
        only by :meth:`retry`.
        """
        seen: set[object] = set()
        while entries := self.run_cycle(now):
            progressed = False
            for entry in entries:
                if entry.outcome is Outcome.ADMITTED:
                    progressed = True
                    yield entry
                elif entry.outcome is Outcome.PREEMPTING and entry.targets:
                    progressed = True
                    for target in entry.targets:
                        self.release(target.info, now)
                    yield entry
                    for target in entry.targets:
                        self.put(evicted(target.info), now)
            tried = frozenset((entry.info.key, str(entry.info.scan and entry.info.scan.tried)) for entry in entries)
            if not progressed and tried in seen:
                return
            seen = set() if progressed else seen | {tried}

    def release(self, info: WorkloadInfo, now: float) -> None:
        """Free the quota of a Workload that has ended or was evicted."""
        self._now = max(self._now, now)
        self.state.release(info)
        self._usage.release(info.local_queue, _totals(info), now)

    def retry(self, info: WorkloadInfo, now: float) -> int:
        """Try again what waits, after quota of the ClusterQueue of a Workload became free; how many Workloads."""
        queue = self.state.cluster_queues[info.cluster_queue]

        def is_eligible(waiting: WorkloadInfo) -> bool:
            labels = self.namespaces.get(waiting.workload.metadata.namespace)
            selector = self.state.cluster_queues[waiting.cluster_queue].namespaces
            return labels is not None and selector is not None and selector.matches(labels)

        return sum(self.pending[name].retry_inadmissible(now, is_eligible) for name in queues_of_tree(queue))

    def _note_usages(self, now: float) -> None:
        """Let preemption see the usage of LocalQueues."""
        if self.settings.usage_fair_sharing:
            for queue in self.state.cluster_queues.values():
                for info in queue.workloads.values() if queue.is_fair_by_usage else ():
                    info.local_queue_usage = self._usage.usage(info.local_queue, now)


def evicted(info: WorkloadInfo) -> WorkloadInfo:
    """A Workload as it goes back to its queue after it has lost its quota."""
    status = info.workload.status
    kept = [one for one in status.conditions if one.type not in (QUOTA_RESERVED, ADMITTED, EVICTED)]
    status = msgspec.structs.replace(status, conditions=kept, admission=None, admission_checks=[])
    return WorkloadInfo.of(msgspec.structs.replace(info.workload, status=status))


def _totals(info: WorkloadInfo) -> dict[str, int]:
    totals: dict[str, int] = {}
    for pod_set in info.pod_sets:
        for resource, total in pod_set.requests.items():
            totals[resource] = totals.get(resource, 0) + total
    return totals
