"""JobQueues: jobs wait in queues, and start whole, when their turn has come and all of their pods fit.

    PreEnqueue    a job's pods wait until the job is admitted
    PreFilter     each pod of an admitted job may use the nodes that are planned for it
    PostFilter    the jobs that have to make way for an admitted job are evicted, as a whole

Rounds of planning, from time to time, admit jobs (:mod:`.planning`) and activate their pods; a round without changes
since the last one costs nothing. The nodes that are planned for a job keep clear of those that are reserved for others.
Filters and scores choose among them as usual. Pods that name no queue are not affected, and their nodes count as
taken for good.
"""

from __future__ import annotations

import logging
import math
import operator
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.changes.journal import Generation
from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import KUBERNETES, WORKLOADS
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.errors import InvalidSelector
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.interface import (
    FilterRunner,
    Handle,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    ReportingPlugin,
)
from kubestow.framework.profile import BatchHandle
from kubestow.framework.status import SUCCESS, Status
from kubestow.reports.model import PluginReport
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, untolerated
from kubestow.rules.requests import PODS
from kubestow_contrib.queues import batch_jobs
from kubestow_contrib.queues.availability import Demand, Occupation, Placement, PodKind, Reservation
from kubestow_contrib.queues.batch_jobs import deadline_of
from kubestow_contrib.queues.configuration import JobQueuesArgs, Queue, read_queues, seconds
from kubestow_contrib.queues.fair_share import DecayedUsage
from kubestow_contrib.queues.history import History
from kubestow_contrib.queues.jobs import Job, JobRecord, Jobs, JobState, KindOfPods, RunTimes, loss_of, requested_by
from kubestow_contrib.queues.planning import (
    Delay,
    LimitTable,
    Plan,
    Policy,
    RunningJob,
    Situation,
    WaitingJob,
    plan,
)
from kubestow_contrib.queues.queue_charts import ReportedNodes
from kubestow_contrib.queues.queue_report import QueueReport
from kubestow_contrib.queues.queues_file import with_queues_file

_log = logging.getLogger(__name__)

_NO_JOB = Status.unschedulable("preemption: not eligible without a queue.")
_NO_VICTIMS = Status.unschedulable("preemption: no jobs have to make way for this one.")
_ANY_CHANGE = Action.ADD | Action.UPDATE | Action.DELETE
#: So many jobs that have ended are kept for reports.
_MOST_RECORDS = 20_000
_OUTSIDE = "nodes of no flavor"
_ZONE = "topology.kubernetes.io/zone"
#: The messages of the pods of so many waiting jobs are kept up to date.
_MOST_MESSAGES = 50
#: How long pods take to start once their job is admitted, in seconds: Kubernetes' objective for 99 of 100.
_START_UP = 5.0
#: How long evicted pods take to leave, in seconds.
_LEAVING = 30.0


def _watch(resource: str | type[CustomObject]) -> EventRegistration:
    return on(resource, _ANY_CHANGE, invalidates=Invalidation.NOTHING, requeues=False)


class JobQueues(PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, ReportingPlugin):
    """Admits jobs from queues."""

    name = "JobQueues"
    Args = JobQueuesArgs
    report_title = "Job queues"
    # Rounds admit jobs, not events; Jobs and pod groups are only watched.
    events_to_register: tuple[EventRegistration, ...] = (_watch(batch_jobs.Job),)

    def __init__(self, args: JobQueuesArgs | None, handle: Handle) -> None:
        args = with_queues_file(args or JobQueuesArgs(), partial(_log.warning, "Queues of another project: %s"))
        super().__init__(args, handle)
        self._scheduler = handle if isinstance(handle, BatchHandle) else None
        self.queues: Mapping[str, Queue] = read_queues(args)
        leaves = [name for name, queue in self.queues.items() if not queue.children]
        self.policy = Policy(
            mode=args.backfill.mode,
            depth=args.backfill.depth,
            reservations=args.backfill.reservations,
            shares=args.fair_share.enabled,
            usage_factor=args.fair_share.usage_factor if seconds(args.fair_share.usage_half_life) else 0.0,
            max_wait=seconds(args.max_wait),
            within_queue=args.preemption.within_queue,
            reclaim=args.preemption.reclaim,
            slack=seconds(args.interval),
            start_up=_START_UP,
        )
        self._settle, self._timeout = seconds(args.settle_time), seconds(args.placement_timeout)
        self._min_run_time = seconds(args.preemption.min_run_time)
        self.history = History(list(self.queues))
        jobs = handle.cluster.catalog(batch_jobs.Job)
        self.jobs = Jobs(
            handle.cluster,
            self.now,
            queues=leaves,
            queue_keys=args.queue_keys,
            namespace_queues=args.namespace_queues,
            default_queue=args.default_queue,
            is_ours=self._is_ours,
            run_times=RunTimes(seconds(args.assumed_run_time), partial(deadline_of, jobs)),
            on_end=self._ended,
            on_run=self.history.add,
        )
        jobs.subscribe(self._spec_changed)
        apis = handle.cluster.pod_groups.apis
        if not handle.feature_enabled("GenericWorkload"):
            apis = tuple(api for api in apis if api not in (KUBERNETES, WORKLOADS))
        for api in apis:
            resource = EventResource.POD_GROUP if api is KUBERNETES else api.kind
            self.events_to_register += (_watch(resource),)
            handle.cluster.catalog(api.kind).subscribe(self._spec_changed)
        self._usage = {name: DecayedUsage(seconds(args.fair_share.usage_half_life)) for name in self.queues}
        #: The jobs that have to make way for an admitted one, by the key of that.
        self._to_evict: dict[str, list[Job]] = {}
        self.plan = Plan()
        self.records: deque[JobRecord] = deque(maxlen=_MOST_RECORDS)
        #: What the jobs of each queue and those below it have used since usage was last observed, by resource.
        self._in_use: dict[str, Counter[str]] = {}
        #: The names of the nodes by row, as reservations have them.
        self._nodes: list[str] = []
        self._structure = -1
        self._nodes_version: Any = None
        self._next_round = -math.inf
        self._offline: Generation | None = None
        handle.run_periodically(seconds(args.interval), self._run_round)

    def _spec_changed(self, before: Any, after: Any) -> None:
        """How long a Job may run has changed, or how many pods of a group start together, perhaps."""
        if before is None or after is None or before.spec != after.spec:
            self.jobs.changed = True

    def now(self) -> float:
        """The time in seconds since the Unix epoch."""
        return self.handle.now().timestamp()

    def _is_ours(self, pod: PodInfo) -> bool:
        """Whether a pod is scheduled by a profile of this plugin; offline, any pod is."""
        if self._scheduler is None:
            return True
        profile = self._scheduler.profiles.get(pod.spec.scheduler_name)
        return profile is not None and self in profile.plugins

    # -- admission -----------------------------------------------------------------------------------------------------

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods that name a queue."""
        return bool(self.jobs.queue_of(pod))

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates the pods of a job until a round has admitted it."""
        if problem := self.jobs.problem(pod):
            return Status.unresolvable(problem)
        job = self.jobs.of(pod)
        if job is None or (job.state is JobState.ADMITTED and pod.uid not in job.leaving):
            return SUCCESS
        if self._scheduler is None:
            self._plan_offline()
        return Status.unresolvable(self.delay_text(job))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult | None:
        """Narrows the nodes to those that are planned for the job and have fewer of such pods than planned."""
        job = self.jobs.of(pod)
        if job is None or self._scheduler is None:
            return None
        if job.state is JobState.WAITING:
            return Status.unresolvable(self.delay_text(job))
        found = frozenset(name for name, count in job.open_nodes(pod.shape.family.key).items() if count > 0)
        if not found:
            self.jobs.changed = True
            return Status.unresolvable(f"no node is planned for a further pod of {job.name}")
        return PreFilterResult(found)

    def delay_text(self, job: Job) -> str:
        """Why a job waits, for people."""
        delay = self.plan.delays.get(job.name)
        if delay is None:
            return f"{job.name} waits in queue {job.queue} for the next round"
        return f"{job.name} waits in queue {job.queue}: {reason_text(delay)}"

    # -- preemption ----------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Evicts the jobs that have to make way, for the first pod of a job that finds no node."""
        job = self.jobs.of(pod)
        if job is None:
            return PostFilterResult(_NO_JOB)
        victims = [
            other.pods[uid]
            for other in self._to_evict.get(job.name, ())
            for uid in sorted(other.leaving)
            if uid in other.pods and uid in other.nodes
        ]
        target = self._node_without(pod, job, {victim.uid for victim in victims}, filters) if victims else ""
        if not target:
            return PostFilterResult(_NO_VICTIMS)
        del self._to_evict[job.name]
        return PostFilterResult(SUCCESS, nominated_node_name=target, victims=tuple(victims))

    def _node_without(self, pod: PodInfo, job: Job, victims: Collection[str], filters: FilterRunner) -> str:
        """A planned node that passes all filters once the victims are gone, "" if there is none."""
        table = self.handle.cluster.nodes
        names = [name for name, count in job.open_nodes(pod.shape.family.key).items() if count > 0]
        rows = np.array(sorted(table.rows[name] for name in names if name in table.rows), np.intp)
        placed = PodChanges(table.pod_table, *table.pod_table.slots_on(rows.tolist()), -1)
        leaving = np.fromiter((info.uid in victims for info in placed.infos), np.bool_, len(placed.slots))
        nodes = Nodes(table, rows).with_pod_changes(placed.among(leaving))
        passes = np.ones(len(table), np.bool_)
        for rejection in filters.rejections(nodes):
            passes &= ~rejection.where
        return next((table.names[row] for row in rows.tolist() if passes[row]), "")

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def _run_round(self) -> None:
        now, nodes = self.now(), self.handle.cluster.nodes
        version = nodes.revision, nodes.allocatable.version
        if not self.jobs.changed and version == self._nodes_version and now < self._next_round:
            return
        self.jobs.changed, self._nodes_version = False, version
        self._return_unplaced(now)
        situation = self.observe()
        self.plan = plan(situation, self.policy)
        shares = self.plan.shares
        assert shares is not None
        self.history.sample(now, situation.total, shares.allocated, shares.fair)
        self._carry_out(self.plan, now)
        self._next_round = min(self._times_of_change(now), default=math.inf)

    def _plan_offline(self) -> None:
        """Plan where no rounds run, once for a state of the cluster."""
        generation = self.handle.cluster.change_window.begin()
        if self._offline != generation:
            self._offline = generation
            self.plan = plan(self.observe(), self.policy)

    def _return_unplaced(self, now: float) -> None:
        """Have jobs wait again whose pods found no nodes for too long, and jobs go on that were not evicted."""
        for job in self.jobs.by_key.values():
            if job.leaving and now - job.withdrawn >= self._timeout and not self._is_to_go(job):
                job.restore()
            if job.state is JobState.WAITING or job.admitted is None or now - job.admitted < self._timeout:
                continue
            if len(job.nodes) == len(job.pods):
                job.admitted = None
                continue
            if not job.nodes:
                job.withdraw(now)
            else:
                job.planned = {kind: +placed for kind, placed in job.placed.items()}
                job.admitted = now
            self._spare(job)

    def _is_to_go(self, job: Job) -> bool:
        """Whether a job is being evicted, or is going to be."""
        return any(job in victims for victims in self._to_evict.values()) or any(
            info.terminating for info in job.pods.values()
        )

    def _spare(self, job: Job) -> None:
        """Let the jobs run on that should have made way for one and have not been evicted yet."""
        for victim in self._to_evict.pop(job.name, ()):
            victim.restore()

    def _carry_out(self, made: Plan, now: float) -> None:
        assert self._scheduler is not None
        admitted: list[PodInfo] = []
        by_name = {job.name: job for job in self.jobs.by_key.values()}
        for start in made.starts:
            job = by_name[start.job.key]
            waiting, kinds = job.unplanned(), job.unplanned_kinds
            for kind, rows, counts in zip(kinds, start.placement.rows, start.placement.counts, strict=True):
                planned = job.planned.setdefault(kind, Counter())
                for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                    planned[self._nodes[row]] += count
            for name in start.victims:
                victim = by_name[name]
                victim.withdraw(now)
                self._to_evict.setdefault(job.name, []).append(victim)
            job.state, job.admitted = JobState.ADMITTED, now
            admitted += [job.pods[uid] for uid in waiting]
        for name, delay in made.delays.items():
            job, reservation = by_name[name], delay.reservation
            job.reservation = reservation
            if reservation is not None and job.first_reserved is None:
                job.first_reserved = reservation.start
        self._scheduler.activate([*admitted, *self._with_new_reasons(made, by_name)])

    def _with_new_reasons(self, made: Plan, by_name: Mapping[str, Job]) -> Iterator[PodInfo]:
        """The pods of the first jobs whose messages have changed: PreEnqueue gates them again, and says why."""
        for name in sorted(made.delays, key=made.position.__getitem__)[:_MOST_MESSAGES]:
            job, delay = by_name[name], made.delays[name]
            text = reason_text(delay)
            if job.message_shown != text:
                job.message_shown = text
                yield from (job.pods[uid] for uid in job.unplanned())

    def _times_of_change(self, now: float) -> Iterator[float]:
        """When the next round can decide otherwise although nothing else changes."""
        waits = False
        for job in self.jobs.by_key.values():
            if job.state is JobState.WAITING:
                waits = True
                times = [job.joined + self._settle, job.arrived + (self.policy.max_wait or math.inf)]
                if job.reservation is not None:
                    times.append(job.reservation.start)
                if job.leaving:
                    times.append(job.withdrawn + self._timeout)
                yield from (time for time in times if time > now)
            elif job.admitted is not None:
                yield job.admitted + self._timeout
        for job in self.jobs.by_key.values() if waits else ():
            if job.state is JobState.ADMITTED and job.started is not None:
                yield self.jobs.run_times.end(job, now)
                if job.started + self._min_run_time > now and (self.policy.within_queue or self.policy.reclaim):
                    yield job.started + self._min_run_time

    # -- the situation of a round --------------------------------------------------------------------------------------

    def observe(self) -> Situation:
        """What a round decides about now. Usage is taken into account until now."""
        cluster, now = self.handle.cluster, self.now()
        nodes = cluster.all_nodes()
        names = list(nodes.names)
        jobs = list(self.jobs.by_key.values())
        if cluster.nodes.structure != self._structure:
            self._renumber(jobs, names)
            self._structure, self._nodes = cluster.nodes.structure, names
        resources = self._resources(jobs)
        flavors = self._flavors(nodes)
        free = self._free(nodes, resources)
        builder = self.builder(resources, flavors)
        running: list[RunningJob] = []
        waiting: list[WaitingJob] = []
        for job in jobs:
            if job.state is JobState.ADMITTED or job.nodes:
                running.append(self._running(job, builder, free, now))
            if kinds := job.unplanned_kinds:
                duration = self.jobs.run_times.of(job).seconds
                is_started = job.state is JobState.ADMITTED
                if is_started or self._is_complete(job, now):
                    waiting.append(
                        WaitingJob(
                            job.name,
                            job.queue,
                            job.declared.priority,
                            job.arrived,
                            builder.demand(job.queue, kinds),
                            duration,
                            job.reservation,
                            is_started,
                        )
                    )
        total = {name: float(nodes.allocatable(name).sum()) for name in resources if name != PODS}
        usage = self._observe_usage(jobs, total, now)
        held, positions = self.plan.held, self.plan.position
        return Situation(now, resources, total, free, self.queues, waiting, running, flavors, usage, held, positions)

    def builder(self, resources: Sequence[str], flavors: Sequence[tuple[str, NDArray[np.bool_]]]) -> DemandBuilder:
        """What makes demands that are measured in some resources, on the nodes that there are."""
        limits = LimitTable(self.queues, resources, [name for name, _ in flavors])
        return DemandBuilder(self.handle.cluster.all_nodes(), resources, flavors, limits)

    def _is_complete(self, job: Job, now: float) -> bool:
        size = job.size(self.handle.cluster)
        ready = sum(1 for info in job.pods.values() if not info.terminating and not info.spec.scheduling_gates)
        if size is not None:
            return ready >= size
        if ready < len(job.pods):
            return False
        return self._scheduler is None or now - job.joined >= self._settle

    def _resources(self, jobs: Sequence[Job]) -> list[str]:
        found = {
            name for queue in self.queues.values() for each in queue.limits for name in (*each.limit, *each.guaranteed)
        }
        seen: dict[int, Mapping[str, int]] = {}  # copies of a pod share their requests
        for job in jobs:
            for info in job.pods.values():
                if id(info.requests) not in seen:
                    seen[id(info.requests)] = info.requests
                    found |= {name for name, amount in info.requests.items() if amount}
        return [*sorted(found - {PODS}), PODS]

    def _flavors(self, nodes: Nodes) -> list[tuple[str, NDArray[np.bool_]]]:
        assert isinstance(self.args, JobQueuesArgs)
        if not self.args.flavors:
            return []
        found, left = [], np.ones(len(nodes), np.bool_)
        for flavor in self.args.flavors:
            mask = left.copy()
            for key, value in flavor.node_labels.items():
                mask &= nodes.by_label(key, partial(operator.eq, value), np.bool_)
            left &= ~mask
            found.append((flavor.name, mask))
        return [*found, (_OUTSIDE, left)]

    def _free(self, nodes: Nodes, resources: Sequence[str]) -> NDArray[np.int64]:
        columns = [
            nodes.allowed_pods - nodes.pod_count
            if name == PODS
            else nodes.allocatable(name) - (nodes.requested(name) if name in nodes.resources else 0)
            for name in resources
        ]
        return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(nodes), 0), np.int64)

    def _running(self, job: Job, builder: DemandBuilder, free: NDArray[np.int64], now: float) -> RunningJob:
        """A job that has started. What is planned for it and not placed yet is taken from what is ``free``."""
        end = now + _LEAVING if job.leaving else self.jobs.run_times.end(job, now)
        occupations = []
        for kind, (info, _) in job.kinds(job.pods).items():
            placed = job.placed.get(kind, Counter())
            planned = job.planned.get(kind, Counter())
            there = {node: max(placed[node], planned[node]) for node in {*placed, *planned}}
            occupation = builder.occupation(job.queue, info, there, end)
            if occupation is None:
                continue
            occupations.append(occupation)
            rows, counts = occupation.placement.rows[0], occupation.placement.counts[0]
            on_nodes = np.array([placed[self._nodes[row]] for row in rows.tolist()], np.int64)
            free[rows] -= (counts - on_nodes)[:, np.newaxis] * builder.vector(info)
        ran = math.inf if job.started is None else now - job.started
        may_go = job.state is JobState.ADMITTED and job.started is not None and ran >= self._min_run_time
        return RunningJob(
            job.name,
            job.queue,
            job.declared.priority,
            occupations,
            loss_of(job, now),
            may_go and job.declared.is_preemptible and len(job.nodes) == len(job.pods),
        )

    def _observe_usage(
        self, jobs: Sequence[Job], total: Mapping[str, float], now: float
    ) -> dict[str, dict[str, float]]:
        current: dict[str, Counter[str]] = {name: Counter() for name in self.queues}
        for job in jobs:
            if job.nodes:
                amounts = requested_by(job.kinds(job.nodes))
                for name in self.queues[job.queue].lineage:
                    current[name].update(amounts)
        found = {}
        for name, usage in self._usage.items():
            usage.observe(now, self._in_use.get(name, {}))
            found[name] = {
                resource: amount / total[resource] for resource, amount in usage.amounts.items() if total.get(resource)
            }
        self._in_use = current
        return found

    def _renumber(self, jobs: Sequence[Job], names: Sequence[str]) -> None:
        """Have reservations name the rows that their nodes have now; those with a node that is gone end."""
        rows = {name: row for row, name in enumerate(names)}
        for job in jobs:
            if (known := job.reservation) is None:
                continue
            found = [[rows.get(self._nodes[row], -1) for row in each.tolist()] for each in known.placement.rows]
            if any(row < 0 for each in found for row in each):
                job.reservation = None
                continue
            placement = Placement(
                [np.array(each, np.intp) for each in found], known.placement.counts, known.placement.flavors
            )
            job.reservation = Reservation(known.start, placement)

    def _ended(self, job: Job) -> None:
        self._spare(job)
        if job.started is not None:
            self.records.append(
                JobRecord(job.name, job.queue, job.most_pods, job.arrived, job.started, self.now(), job.first_reserved)
            )

    def report(self, *, from_now: bool = False) -> PluginReport:
        """Queues with their waits and shares over time, reservations, and jobs on nodes over time."""
        nodes, table = self.handle.cluster.all_nodes(), self.handle.cluster.nodes
        zones = [each.metadata.labels.get(_ZONE, "") for each in table.objects]
        allocatable = {name: nodes.allocatable(name).tolist() for name in self.history.resources}
        return QueueReport(
            self.queues,
            self.records,
            list(self.jobs.by_key.values()),
            self.plan,
            self.now(),
            self.history,
            self.jobs.run_times,
            ReportedNodes(list(table.names), zones, allocatable),
            self._nodes,
            from_now,
        ).report()


class DemandBuilder:
    """Makes the demands of jobs: requests as vectors, and masks of the nodes that pods may use."""

    def __init__(
        self,
        nodes: Nodes,
        resources: Sequence[str],
        flavors: Sequence[tuple[str, NDArray[np.bool_]]],
        limits: LimitTable,
    ) -> None:
        self._nodes, self._resources, self._flavors, self._limits = nodes, resources, flavors, limits
        self._masks: dict[object, NDArray[np.bool_]] = {}
        self._rows = {name: row for row, name in enumerate(nodes.names)}

    def demand(self, queue: str, kinds: Mapping[bytes, KindOfPods]) -> Demand:
        """What some pods of a job in a queue need."""
        found = [PodKind(count, self.vector(info), self._mask(info)) for info, count in kinds.values()]
        return Demand(found, self._limits.of_queue[queue])

    def occupation(self, queue: str, info: PodInfo, counts: Mapping[str, int], end: float) -> Occupation | None:
        """Pods of one kind on nodes by name; None without any."""
        there = {self._rows[name]: count for name, count in counts.items() if count > 0 and name in self._rows}
        if not there:
            return None
        rows = np.array(list(there), np.intp)
        numbers = np.array(list(there.values()), np.int64)
        kind = PodKind(int(numbers.sum()), self.vector(info), np.ones(len(self._nodes), np.bool_))
        flavor = next((index for index, (_, mask) in enumerate(self._flavors) if mask[rows[0]]), 0)
        return Occupation(Demand([kind], self._limits.of_queue[queue]), Placement([rows], [numbers], [flavor]), end)

    def vector(self, info: PodInfo) -> NDArray[np.int64]:
        """What a pod requests, int64 by resource."""
        return np.array([1 if name == PODS else info.requests.get(name, 0) for name in self._resources], np.int64)

    def _mask(self, info: PodInfo) -> NDArray[np.bool_]:
        """Where a pod may run by node selector, affinity, taints and unschedulable nodes (bool, one per node)."""
        key = info.shape.node_selection, tuple(info.spec.tolerations)
        if key not in self._masks:
            tolerations = info.spec.tolerations
            tolerated = self._nodes.by_taints(
                lambda taints: not untolerated(taints, tolerations, effects=(NO_SCHEDULE, NO_EXECUTE)), np.bool_
            )
            try:
                selected = selected_by(self._nodes, info.spec)
            except InvalidSelector:  # NodeAffinity reports it
                selected = np.ones(len(self._nodes), np.bool_)
            self._masks[key] = selected & tolerated & ~self._nodes.unschedulable
        return self._masks[key]


def reason_text(delay: Delay) -> str:
    """Why a job does not start now, in words."""
    match delay.reason:
        case "limit":
            text = "the limits of its queue leave too little"
        case "never":
            text = "it would not fit even if all jobs had ended"
        case "behind":
            text = f"{delay.behind} has to start first"
        case "depth":
            text = "too many jobs are before it"
        case _:
            text = "too little is free" + (f" beside what is reserved for {delay.behind}" if delay.behind else "")
    if delay.reservation is not None:
        start = datetime.fromtimestamp(delay.reservation.start, UTC)
        text += f"; it is expected to start at {start:%Y-%m-%dT%H:%M:%SZ}"
    return text
