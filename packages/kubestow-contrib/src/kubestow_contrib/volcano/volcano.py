"""Volcano: queues with fair shares, jobs in their order, and preemption between jobs and between queues.

    QueueSort     the queue with the lowest share is next, and its first job (action allocate)
    PreEnqueue    a job's pods wait until the job is admitted (action enqueue)
    PreFilter     a pod waits while its queue would exceed what it deserves (proportion)
    Permit        no pod of a job is bound while a task of it has too few pods on nodes (gang, minTaskMember)
    PostFilter    victims in the queue, in the job, or in queues above what they deserve (actions preempt and reclaim)

Pods that neither belong to a PodGroup of Volcano nor name a queue are not affected, and come first. Gangs are the
matter of GangScheduling, which places all pods of a PodGroup in one cycle, with preemption for all of them or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.errors import InputError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import (
    FilterRunner,
    Handle,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Queued,
    QueueSortPlugin,
)
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.plugins.default_preemption.candidates import Candidates
from kubestow.plugins.default_preemption.default_preemption import DefaultPreemption
from kubestow_contrib.node_checks import NodeChecks
from kubestow_contrib.preemption_toleration import PriorityClass
from kubestow_contrib.shares import TOLERANCE
from kubestow_contrib.volcano import kube_batch
from kubestow_contrib.volcano.accounts import Accounts, Job, QueueAccount, Shares, lacking, requests_of
from kubestow_contrib.volcano.configuration import (
    DEFAULT,
    ConfigurationProblem,
    VolcanoConfiguration,
    read_configuration,
)
from kubestow_contrib.volcano.jobs import Enqueueing, JobOrder
from kubestow_contrib.volcano.leaving_pods import FiltersWithoutLeavingPods, LeavingPods
from kubestow_contrib.volcano.phases import PodGroupPhases
from kubestow_contrib.volcano.pod_groups import PodGroup
from kubestow_contrib.volcano.queues import Queue
from kubestow_contrib.volcano.victims import Eviction, EvictionRules, Sessions

_KINDS = {"preempt": (Eviction.JOBS_OF_QUEUE, Eviction.OWN_JOB), "reclaim": (Eviction.OTHER_QUEUES,)}
_ANY_CHANGE = Action.ADD | Action.UPDATE | Action.DELETE
_ABOVE_SHARE = Status.unschedulable("queue would exceed its share")
_REQUESTS_WITHDRAWN = "VolcanoRequestsWithdrawn"
_JOBS_OVERDUE = "VolcanoJobsOverdue"
#: How often jobs are admitted that have waited as long as they may, in seconds.
_SLA_PERIOD = 1.0
_NO_ACTION = "the actions of the configuration do not place pods {} requests: {} is missing"
_NO_JOB = Status.unschedulable("preemption: not eligible without a PodGroup or a queue.")
_FITS_LATER = "preemption: not needed on node {}, which the pod fits once those that leave it are gone."
_NEXT_SESSION = Status.unschedulable("preemption: not eligible before the next session.")
_NOT_STARVING = Status.unschedulable("preemption: not eligible because the job has the pods that it needs.")


class Volcano(QueueSortPlugin, PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, PermitPlugin):
    """Schedules by queues and jobs. The args are the configuration of Volcano, with its defaults."""

    name = "Volcano"
    kinds = (Queue, kube_batch.Queue, PriorityClass, PodGroup, kube_batch.PodGroup)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        try:
            self._configuration = configuration = read_configuration(DEFAULT if args is None else args)
        except ConfigurationProblem as error:
            raise InputError(f"plugin {self.name}", error.problem, place=f"args.{error.path}".rstrip(".")) from None
        self.accounts = Accounts(
            handle.cluster,
            _shares_of(configuration),
            on_withdrawal=lambda: handle.report_change(ClusterEvent(_REQUESTS_WITHDRAWN, Action.UPDATE)),
        )
        self._order = JobOrder(configuration, self.accounts)
        self.subqueues = self._order
        self._enqueueing = Enqueueing(configuration, handle.cluster, self.accounts, self._order, handle.now)
        if configuration.plugin("sla") is not None:
            handle.run_periodically(_SLA_PERIOD, self._admit_overdue)
        self._phases = PodGroupPhases(handle, self.accounts, self._gate)
        plugin = "capacity" if self.accounts.queues.shares.are_specified else "proportion"
        self._limits = configuration.enabled(plugin, "allocatable")
        self._needs_tasks = configuration.enabled("gang", "jobReady")
        self._sorts_by_priority = configuration.enabled("priority", "taskOrder")
        rules = EvictionRules(configuration, self.accounts, self._order)
        self._sessions = Sessions(handle) if configuration.evicts_as_kube_batch else None
        self._rules, self._shares = rules, _Shares(handle, self.accounts, configuration, limits=self._limits)
        self._leaving = LeavingPods(handle)
        self._evictions = [
            _Evictions(kind, rules, self._shares, self._leaving, handle)
            for action in configuration.actions
            for kind in _KINDS.get(action, ())
        ]
        on_change = partial(on, invalidates=Invalidation.NOTHING, hint=self._may_be_scheduled)
        self.events_to_register = (
            on_change(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
            on_change(EventResource.UNSCHEDULABLE_POD, Action.ADD, event_filter=self._completes_tasks),
            on_change(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
            *(
                on_change(kind, _ANY_CHANGE, event_filter=_is_more_than_status)
                for kind in (PodGroup, kube_batch.PodGroup)
            ),
            *(on_change(event, Action.UPDATE) for event in (_REQUESTS_WITHDRAWN, _JOBS_OVERDUE)),
            *(on_change(kind, _ANY_CHANGE) for kind in (Queue, kube_batch.Queue)),
            on_change(PriorityClass, _ANY_CHANGE),
        )

    # -- order -------------------------------------------------------------------------------------------------------

    def sort_key(self, queued: Queued) -> tuple[int, float]:
        """The place of a pod in its job."""
        return (-queued.info.priority if self._sorts_by_priority else 0), queued.timestamp

    # -- admission ---------------------------------------------------------------------------------------------------

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods of jobs."""
        return self.accounts.is_of_job(pod)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates the pods of a job that is not admitted, or has too few pods of a task."""
        job = self.accounts.job(pod)
        refusal = "" if job is None else self._gate(job)
        return Status.unschedulable(refusal) if refusal else SUCCESS

    def _gate(self, job: Job) -> str:
        """Why no pod of a job may be scheduled; empty if they may. Admits the job if there is room."""
        return self._enqueueing.admit(job) or self._lacking_task(job, job.tasks)

    async def _admit_overdue(self) -> None:
        if self._enqueueing.admit_overdue():
            self.handle.report_change(ClusterEvent(_JOBS_OVERDUE, Action.UPDATE))

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Rejects the pods of a job of which a task has too few pods on nodes; so its gang does not start."""
        job = self.accounts.job(pod)
        refusal = "" if job is None else self._lacking_task(job, job.placed_tasks)
        return Status.unschedulable(refusal) if refusal else None

    def _lacking_task(self, job: Job, found: Mapping[str, int]) -> str:
        return job.lacking_task(found) if self._needs_tasks else ""

    def _completes_tasks(self, old: Any, new: PodInfo) -> bool:
        """Whether the job of an added pod counts pods by task."""
        job = self.accounts.job(new)
        return job is not None and bool(job.min_task_member)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Whether the queue of the pod may have it beside what it uses."""
        job = self.accounts.job(pod)
        return None if job is None else self._rejection(pod, job)

    def _rejection(self, pod: PodInfo, job: Job) -> Status | None:
        if refusal := self._enqueueing.admit(job):
            return Status.unresolvable(refusal)
        action, verb = ("allocate", "with") if pod.requests else ("backfill", "without")
        if action not in self._configuration.actions:
            return Status.unresolvable(_NO_ACTION.format(verb, action))
        queue, lacking = self._shares.lacking(pod, job)
        if not lacking:
            return None
        return Status.unschedulable(f"Queue {queue} has used its share of {', '.join(lacking)}")

    def hint_signature(self, pod: PodInfo) -> Hashable | None:
        """The job and the requests."""
        job = self.accounts.job(pod)
        return None if job is None else (job.key, tuple(sorted(pod.requests.items())))

    def _may_be_scheduled(self, pod: PodInfo, old: Any, new: Any) -> bool:
        job = self.accounts.job(pod)
        return job is None or (self._rejection(pod, job) is None and not self._lacking_task(job, job.tasks))

    # -- preemption --------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """The result of the first action that finds victims, else that of the last one."""
        job = self.accounts.job(pod)
        if job is None:
            return PostFilterResult(_NO_JOB)
        result, cluster, nominated = PostFilterResult(_NOT_STARVING), self.handle.cluster, 0
        if cluster.has_nominations:
            waiting = job.pods.keys() - job.placed.keys() - {pod.uid}
            nominated = sum(cluster.nomination(uid) is not None for uid in waiting)
        if not self._rules.is_starving(job, nominated):
            return result
        if self._sessions is not None and not self._sessions.includes(pod):
            return PostFilterResult(_NEXT_SESSION)
        if node_name := self._future_node(pod, job, diagnosis, filters):
            return PostFilterResult(Status.unschedulable(_FITS_LATER.format(node_name)), node_name)
        for eviction in self._evictions:
            result = eviction.post_filter(state, pod, diagnosis, filters)
            if result.status.ok or result.status.code is Code.ERROR:
                break
        return result

    def _future_node(self, pod: PodInfo, job: Job, diagnosis: Diagnosis, filters: FilterRunner) -> str:
        """The node that a pod fits once pods have left: the one it is nominated to, else the first by name; or ""."""
        leaving = self._leaving.by_row()
        rows = np.array(sorted(leaving), np.intp)
        rows = rows[diagnosis.with_code(Code.UNSCHEDULABLE)[rows]]
        if not len(rows):
            return ""
        filters = FiltersWithoutLeavingPods(self._shares.limit(filters, pod, self._shares.of(pod, job)), leaving)
        nodes = self.handle.cluster.nodes
        passes = np.zeros(len(nodes), np.bool_)
        passes[rows] = True
        for rejection in filters.rejections(HypotheticalNodes(nodes, rows)):
            passes &= ~rejection.where
        nominated = self.handle.cluster.nomination(pod.uid)
        names = (nodes.names[row] for row in np.flatnonzero(passes).tolist())
        return min(names, key=lambda name: (name != nominated, name), default="")


def _is_more_than_status(old: Any, new: Any) -> bool:
    """Whether a pod group is new or gone, or its ``spec`` has changed."""
    return old is None or new is None or old.spec != new.spec


def _shares_of(configuration: VolcanoConfiguration) -> Shares:
    if (capacity := configuration.plugin("capacity")) is not None:
        return Shares.HIERARCHICAL if capacity.is_hierarchical else Shares.SPECIFIED
    return Shares.ALL if configuration.plugin("proportion") is None else Shares.FAIR


class _Share(NamedTuple):
    """What a queue uses beside a pod, nominated pods included, and what it may use at most."""

    queue: str
    used: Mapping[str, int]
    limits: Mapping[str, float]

    def lacking(self, requests: Mapping[str, int]) -> list[str]:
        """The resources of which the queue would exceed its limits with further requests."""
        return lacking(requests, self.used, self.limits)


class _Shares:
    """What queues use, nominated pods included, compared with what they may use; no limit unless ``limits``.

    That is what they deserve; where this is specified, their capability and that of their ancestors.
    """

    def __init__(
        self, handle: Handle, accounts: Accounts, configuration: VolcanoConfiguration, *, limits: bool
    ) -> None:
        self.accounts = accounts
        self._handle, self._limits = handle, limits
        self._levels = configuration.ancestor_reclaim_level

    def lacking(self, pod: PodInfo, job: Job) -> tuple[str, list[str]]:
        """The first queue that would exceed its limits with a pod of a job, and the resources in question."""
        requests = requests_of(pod)
        for share in self.of(pod, job):
            if found := share.lacking(requests):
                return share.queue, found
        return job.queue, []

    def deserves_more(self, pod: PodInfo, job: Job) -> bool:
        """Whether the queue of a job would not exceed, in any resource of the pod, what is specified as deserved.

        Or else one of its ancestors up to the level of the configuration.
        """
        queues, queue = self.accounts.queues, self.accounts.queues.of(job)
        if queue is None or not queues.shares.are_specified:
            return queue is not None
        nominated = self._nominated(pod, queue)

        def has_room(allocated: Mapping[str, int], deserved: Mapping[str, float]) -> bool:
            return any(
                allocated.get(name, 0) + nominated[name] + amount <= deserved.get(name, 0) + TOLERANCE
                for name, amount in pod.requests.items()
                if amount
            )

        return has_room(queue.allocated, queue.deserved) or any(
            has_room(queues.used_below(name, "allocated"), queues.specified(name))
            for name in queues.ancestors(queue.name, self._levels)
        )

    def of(self, pod: PodInfo, job: Job) -> list[_Share]:
        """The shares of a job's queue and of its ancestors as they limit a pod."""
        self.accounts.refresh()
        queue = self.accounts.queues.of(job)
        if not self._limits or queue is None or not pod.requests:
            return []
        nominated = self._nominated(pod, queue)
        used = queue.allocated + nominated if nominated else queue.allocated
        queues = self.accounts.queues
        if queues.shares.are_specified:
            own = [_Share(queue.name, used, queues.capability(queue.name))]
            return own + [
                _Share(name, Counter(queues.used_below(name, "allocated")) + nominated, queues.capability(name))
                for name in queues.lineage(queue.name)[1:]
                if name in queues.rules
            ]
        # A pod that is asked about without having been observed has no part in what the queue deserves.
        limits = queue.deserved if pod.uid in job.pods else self.accounts.queues.capability(queue.name)
        return [_Share(queue.name, used, limits)]

    def limit(self, filters: FilterRunner, pod: PodInfo, limiting: Sequence[_Share]) -> FilterRunner:
        """Filters that reject the nodes, too, with which a pod would exceed one of some shares."""
        return _ShareFilters(filters, self.accounts, pod, limiting) if limiting else filters

    def _nominated(self, pod: PodInfo, queue: QueueAccount) -> Counter[str]:
        """What the pods request that are nominated to nodes, others of the queue than the pod."""
        cluster, amounts = self._handle.cluster, Counter[str]()
        if not cluster.has_nominations:
            return amounts
        for row in np.flatnonzero(cluster.nodes.nominated_count.readonly).tolist():
            for other in cluster.nominated_pods(cluster.nodes.names[row]):
                job = self.accounts.job(other) if other.uid != pod.uid else None
                if job is not None and job.queue == queue.name:
                    amounts.update(requests_of(other))
        return amounts


class _Evictions(DefaultPreemption):
    """Preemption by the rules of Volcano: DefaultPreemption's search, among the pods that may be evicted."""

    def __init__(
        self, kind: Eviction, rules: EvictionRules, shares: _Shares, leaving: LeavingPods, handle: Handle
    ) -> None:
        super().__init__(DefaultPreemptionArgs(), handle)
        self._kind, self._rules, self._shares, self._leaving = kind, rules, shares, leaving
        self.accounts = shares.accounts
        #: Victims are taken from queues of no higher priority.
        self._highest_priority = 0

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Nominates the pod to a node and names the victims, or returns the reasons of all nodes."""
        job = self.accounts.job(pod)
        assert job is not None
        limiting = self._shares.of(pod, job)
        if self._kind is Eviction.OTHER_QUEUES:
            # No victim makes room in the pod's own queue, but those below the same ancestors do there.
            own, limiting = limiting[:1], limiting[1:]
            is_full = any(share.lacking(requests_of(pod)) for share in own)
            if is_full or not self._shares.deserves_more(pod, job):
                return PostFilterResult(Status.unschedulable(f"preemption: Queue {job.queue} has used its share."))
        filters = self._shares.limit(filters, pod, limiting)
        if leaving := self._leaving.by_row():
            filters = FiltersWithoutLeavingPods(filters, leaving)
        for priority in self._priorities(job):
            self._highest_priority = priority
            result = super().post_filter(state, pod, diagnosis, filters)
            if result.status.ok:
                self._leaving.put_victims(pod, result.victims)
            if result.status.ok or result.status.code is Code.ERROR:
                break
        return result

    def _priorities(self, job: Job) -> list[int]:
        """The priorities of the queues from which victims may be taken, the lowest first: one search for each."""
        queues = self.accounts.queues
        if self._kind is not Eviction.OTHER_QUEUES:
            names = {job.queue}
        else:
            names = {name for name, account in queues.accounts.items() if name != job.queue and account.allocated}
        return sorted({queues.rules[name].priority for name in names if name in queues.rules}) or [0]

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """None: former results do not hold, because queues are in use on all nodes."""
        return Candidates(self.handle.cluster.nodes)

    def _has_terminating_victims(self, row: int, priority: int) -> bool:
        """Whether any pod of a job is terminating on a node."""
        pods = self.handle.cluster.nodes.pods[row].values()
        return any(info.terminating and self.accounts.is_of_job(info) for info in pods)

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool: those of a node all together."""
        job = self.accounts.job(pod)
        assert job is not None
        by_node = map(others.at, np.flatnonzero(others.lengths).tolist())
        found = self._rules.permitted(
            self._kind, pod, job, by_node, leaving=self._leaving.victims(), highest_priority=self._highest_priority
        )
        return np.fromiter((info.uid in found for info in others.infos), np.bool_, len(others.slots))


class _ShareFilters(NodeChecks):
    """The filters of a cycle, and after them the shares that limit a pod, given the pods that each node loses."""

    def __init__(self, filters: FilterRunner, accounts: Accounts, pod: PodInfo, limiting: Sequence[_Share]) -> None:
        super().__init__(filters, Volcano.name, _ABOVE_SHARE)
        self._accounts, self._requests, self._limiting = accounts, requests_of(pod), limiting

    def rejects(self, nodes: Nodes) -> NDArray[np.bool_]:
        if not isinstance(nodes, HypotheticalNodes):
            return np.full(len(nodes), self._exceeds(NodeChange()))
        return np.fromiter(map(self._exceeds, nodes.changes), np.bool_, len(nodes))

    def _exceeds(self, change: NodeChange) -> bool:
        """Whether a queue would exceed its share with the pod after a change of a node."""
        used = {each.queue: Counter(each.used) for each in self._limiting}
        for sign, info in change.signed_pods():
            placed = self._accounts.placed(info.uid)
            for queue in () if placed is None else self._accounts.queues.lineage(placed[1].queue):
                if queue in used:
                    for name, amount in requests_of(info).items():
                        used[queue][name] += sign * amount
        return any(lacking(self._requests, used[each.queue], each.limits) for each in self._limiting)
