"""When a job will start: its position, why it does not start yet, what has to end, and what would make it start now.

The expected start is that of a plan in which every waiting job gets a reservation in its order (conservative), unless
the job starts at once or has a reservation already. It holds if running jobs end when they are expected to, and no job
comes before the waiting ones. What would make a job start now is tried one change at a time: the plan of the changed
situation has to start the job, and the scheduler's filters have to accept each of its pods on the planned node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from kubestow.api.core import Pod
from kubestow.api.formats.duration import Duration
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.remedies import larger_domains, pod_group_of
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.job_forecasts import ForecastAnswer, Remedy, remedy_table
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, extenders_text
from kubestow.errors import UnknownJob
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow_contrib.queues.availability import Availability, Placement, Reservation
from kubestow_contrib.queues.job_queues import JobQueues, reason_text
from kubestow_contrib.queues.jobs import Job, JobState, KindOfPods, RunTime
from kubestow_contrib.queues.planning import Delay, RunningJob, WaitingJob, availability_of, plan

#: So many jobs that have to end are listed.
_MOST_LISTED = 20
#: So many running jobs are tried whether a job can do without their end.
_MOST_TRIED = 200
_NO_TOPOLOGY = "no topology constraint instead of {}"
_ASSUMPTION = "if running jobs end when they are expected to, and no job comes before those that wait"


@dataclass(frozen=True, slots=True)
class EndingJob:
    """A running job that has to end first: how many pods it has, when it is expected to end, and how this is known."""

    name: str
    queue: str
    pods: int
    end: datetime
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class JobForecast(Displayed):
    """The answer about a job.

    ``state`` is ``Running``, ``Admitted``, ``Startable``, ``Waiting``, ``Incomplete``, ``Impossible``, or ``Misplaced``
    for one whose planned nodes are not in one domain of the topology that its pod group requires. ``position``
    counts the jobs that wait in all queues, from 1; 0 for a job that does not wait. ``start`` is None for a job that is
    not expected to start.
    """

    name: str
    queue: str
    state: str
    time: datetime
    pods: int
    waited: float
    run_time: RunTime
    position: int = 0
    waiting: int = 0
    reason: str = ""
    start: datetime | None = None
    is_reserved: bool = False
    ends: Sequence[EndingJob] = ()
    remedies: Sequence[Remedy] = ()

    def document(self) -> dict[str, Any]:
        """The answer as data for JSON and YAML; durations in seconds."""
        return {
            "job": self.name,
            "queue": self.queue,
            "state": self.state,
            "pods": self.pods,
            "waited": round(self.waited, 3),
            "runTime": {"seconds": self.run_time.seconds, "source": self.run_time.source},
            "position": self.position or None,
            "waitingJobs": self.waiting,
            "reason": self.reason,
            "expectedStart": _text(self.start),
            "isReserved": self.is_reserved,
            "assumption": _ASSUMPTION if self.start is not None else "",
            "hasToEnd": [
                {"job": e.name, "queue": e.queue, "pods": e.pods, "expectedEnd": _text(e.end), "source": e.source}
                for e in self.ends
            ],
            "wouldStartNow": [each.document() for each in self.remedies],
        }

    def blocks(self) -> Iterator[Block]:
        """The answer in a few lines, then what has to end, and what would help."""
        where = f"{self.name} in queue {self.queue}: {counted(self.pods, 'pod')}"
        if self.state in ("Running", "Admitted"):
            yield Paragraph(f"{where}, {'running' if self.state == 'Running' else 'admitted, its pods get nodes'}")
            return
        if self.state == "Incomplete":
            yield Paragraph(f"{where}, waits for the others of the job")
            return
        waited = Duration.of(seconds=round(self.waited))
        yield Paragraph(f"{where}, position {self.position:,} of {counted(self.waiting, 'waiting job')}, for {waited}")
        if self.state == "Startable":
            yield Paragraph("it starts in the next round")
            return
        yield Paragraph(f"why not yet: {self.reason}")
        if self.state == "Misplaced":
            yield Paragraph("its queue lets it start, but its pods wait")
        elif self.start is None:
            yield Paragraph("it is not expected to start")
        else:
            wait = Duration.of(seconds=round((self.start - self.time).total_seconds()))
            reserved = "reserved" if self.is_reserved else "expected"
            yield Paragraph(f"{reserved} start: {_text(self.start)}, in {wait}, {_ASSUMPTION}")
        run_time = Duration.of(seconds=round(self.run_time.seconds))
        yield Paragraph(f"run time: {run_time} ({self.run_time.source})", note=True)
        if self.ends:
            table = Table("has to end", "queue", "pods", "expected end", "known by", right=("pods",))
            for each in self.ends[:_MOST_LISTED]:
                table.add(each.name, each.queue, f"{each.pods:,}", _text(each.end) or "", each.source)
            if len(self.ends) > _MOST_LISTED:
                table.add(f"… {counted(len(self.ends) - _MOST_LISTED, 'more job')}", "", "", "", "")
            yield table
        if self.remedies:
            yield remedy_table(self.remedies)
        elif self.state in ("Waiting", "Misplaced"):
            yield Paragraph("no change of the job alone was found with which it would start now")


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(ForecastAnswer):
    """The answers about the jobs of some pods, with remarks about what is not known offline."""

    jobs: Sequence[JobForecast]
    remarks: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """The answers as data for JSON and YAML."""
        return {
            "kind": "JobForecast",
            "time": _text(self.jobs[0].time),
            "jobs": [job.document() for job in self.jobs],
            "remarks": list(self.remarks),
        }

    def why_not_yet(self) -> dict[str, str]:
        """The reason of each job that waits."""
        return {job.name: job.reason for job in self.jobs if job.reason}

    def would_start_now(self) -> dict[str, Sequence[Remedy]]:
        """The remedies of each job."""
        return {job.name: job.remedies for job in self.jobs}

    def blocks(self) -> Iterator[Block]:
        """One answer after the other."""
        for number, job in enumerate(self.jobs):
            if number:
                yield Paragraph("")
            yield from job.blocks()


def forecast(cluster: ClusterObjects, pods: Sequence[Pod], options: SchedulerOptions, name: str) -> Forecast:
    """When the jobs of some pods of a cluster will start; ``name`` is what they are called in messages.

    The time is that of the cluster. Raises UnknownJob if no profile enables the plugin JobQueues, and if none of the
    pods is in a queue; ConfigurationError and PluginError.
    """
    scheduler = OfflineScheduler(cluster, options)
    plugin = next(
        (p for profile in scheduler.profiles.values() for p in profile.plugins if isinstance(p, JobQueues)), None
    )
    if plugin is None:
        raise UnknownJob(name, "no profile of the configuration enables JobQueues, so there are no queues")
    jobs: dict[str, Job] = {}
    for pod in pods:
        job = plugin.jobs.of(scheduler.cache.shapes.info(pod))
        if job is not None:
            jobs[job.name] = job
    if not jobs:
        problems = {plugin.jobs.problem(scheduler.cache.shapes.info(pod)) for pod in pods} - {""}
        raise UnknownJob(name, min(problems) if problems else "has no pod that names a queue")
    answers = _Answers(scheduler, plugin)
    remarks = scheduler.absent
    if scheduler.extenders:
        remarks = (*remarks, extenders_text(scheduler.extenders))
    return Forecast([answers.about(job) for job in jobs.values()], remarks)


class _Answers:
    """The plan of a cluster as it is, and answers about jobs in it."""

    def __init__(self, scheduler: OfflineScheduler, plugin: JobQueues) -> None:
        self._scheduler, self._plugin = scheduler, plugin
        self._situation = plugin.observe()
        self._plan = plan(self._situation, plugin.policy)
        count = len(self._situation.waiting) + 1
        every = replace(plugin.policy, mode="conservative", depth=count, reservations=count)
        self._complete = plan(self._situation, every)
        self._jobs = {job.name: job for job in plugin.jobs.by_key.values()}
        self._topology_keys: dict[str, str] = {}
        #: Without preemption: a change should not cost other jobs what they have done.
        self._policy = replace(plugin.policy, within_queue=False, reclaim=False)

    def about(self, job: Job) -> JobForecast:
        situation, name = self._situation, job.name
        time = datetime.fromtimestamp(situation.now, UTC)
        answer = JobForecast(
            name,
            job.queue,
            "Running" if job.nodes else "Admitted",
            time,
            len(job.pods),
            max(0.0, situation.now - job.arrived),
            self._plugin.jobs.run_times.of(job),
            waiting=len(situation.waiting),
        )
        if job.state is JobState.ADMITTED:
            return answer
        asked = next((each for each in situation.waiting if each.key == name), None)
        if asked is None:
            return replace(answer, state="Incomplete")
        answer = replace(answer, position=self._plan.position[name])
        started = next((start for start in self._plan.starts if start.job.key == name), None)
        if started is not None:
            if self._is_in_one_domain(name, started.placement):
                return replace(answer, state="Startable", start=time)
            reason = f"its planned nodes are not in one {self._topology_key(name)}, as its pod group requires"
            return replace(answer, state="Misplaced", reason=reason, remedies=list(self._remedies(job, asked)))
        delay, expected = self._plan.delays[name], self._complete.delays.get(name)
        reservation = delay.reservation or (None if expected is None else expected.reservation)
        start = (
            time
            if expected is None
            else None
            if reservation is None
            else datetime.fromtimestamp(reservation.start, UTC)
        )
        return replace(
            answer,
            state="Impossible" if start is None else "Waiting",
            reason=self._reason(delay, asked),
            start=start,
            is_reserved=delay.reservation is not None,
            ends=[] if reservation is None else self._ends(asked, reservation),
            remedies=list(self._remedies(job, asked)),
        )

    def _reason(self, delay: Delay, asked: WaitingJob) -> str:
        """Why a job does not start, with the resources of which too little is free if there are any."""
        text = reason_text(replace(delay, reservation=None))
        nodes = np.any([kind.nodes for kind in asked.demand.kinds], axis=0)
        free = np.maximum(self._situation.free, 0)[nodes].sum(axis=0)
        short = [
            name
            for name, wanted, there in zip(
                self._situation.resources, asked.demand.total.tolist(), free.tolist(), strict=True
            )
            if wanted > there
        ]
        return f"{text}; short of {', '.join(short)}" if short and delay.reason in ("nodes", "never") else text

    def _ends(self, asked: WaitingJob, reservation: Reservation) -> list[EndingJob]:
        """The running jobs that have to end before a job starts: without the end of one of them it would not fit then.

        If it can do without each of them alone, all that end before on its nodes or that count for its limits.
        """
        rows = {row for each in reservation.placement.rows for row in each.tolist()}
        limits = {row for row, _ in asked.demand.limits}
        found, needed = [], []
        for running in self._situation.running:
            end = max((each.end for each in running.occupations), default=np.inf)
            on_nodes = any(
                not rows.isdisjoint(used.tolist()) for each in running.occupations for used in each.placement.rows
            )
            in_limits = any(row in limits for each in running.occupations for row, _ in each.demand.limits)
            if running.key == asked.key or end > reservation.start or not (on_nodes or in_limits):
                continue
            job = self._jobs[running.key]
            source = self._plugin.jobs.run_times.of(job).source
            found.append(EndingJob(job.name, job.queue, len(job.pods), datetime.fromtimestamp(end, UTC), source))
            if len(found) > _MOST_TRIED:
                continue
            without = self._availability(asked, running)
            if without.at(reservation.start, asked.demand, self._policy.length_of_run(asked)) is None:
                needed.append(found[-1])
        return sorted(needed or found, key=lambda each: (each.end, each.name))

    def _availability(self, asked: WaitingJob, endless: RunningJob) -> Availability:
        """What is free beside all jobs before one, if a running job did not end."""
        occupations = [replace(each, end=np.inf) for each in endless.occupations]
        running = [
            replace(each, occupations=occupations) if each is endless else each for each in self._situation.running
        ]
        availability = availability_of(replace(self._situation, running=running))
        made, position = self._complete, self._complete.position
        for start in made.starts:
            if position[start.job.key] < position[asked.key]:
                planned = Reservation(self._situation.now, start.placement)
                availability.reserve(planned, start.job.demand, self._policy.length_of_run(start.job))
        for key, delay in made.delays.items():
            if delay.reservation is not None and position[key] < position[asked.key]:
                length = self._policy.length_of_reservation(delay.job)
                availability.reserve(delay.reservation, delay.job.demand, length)
        return availability

    # -- what would make it start now ----------------------------------------------------------------------------------

    def _remedies(self, job: Job, asked: WaitingJob) -> Iterator[Remedy]:
        kinds = job.unplanned_kinds
        changes = (self._fewer_pods(asked, kinds), self._shorter(asked, kinds), self._larger_domain(asked, kinds))
        yield from filter(None, changes)
        if any(_selects(kind.example) for kind in kinds.values()):
            yield from self._other_nodes(asked, kinds)
        first = max(each.priority for each in self._situation.waiting) + 1
        if remedy := self._tried(
            replace(asked, priority=first), kinds, f"priority {first:,} instead of {asked.priority:,}"
        ):
            yield remedy
        if asked.demand.limits:
            without = replace(asked, demand=replace(asked.demand, limits=()))
            if remedy := self._tried(without, kinds, "no limits of its queue"):
                yield remedy

    def _fewer_pods(self, asked: WaitingJob, kinds: Mapping[bytes, KindOfPods]) -> Remedy | None:
        """The most pods with which the job starts, of its most numerous kind."""
        keys = list(kinds)
        largest = max(range(len(keys)), key=lambda index: kinds[keys[index]].number)
        count = kinds[keys[largest]].number

        def fewer(number: int) -> tuple[WaitingJob, dict[bytes, KindOfPods]]:
            demanded = [
                replace(kind, count=number) if index == largest else kind
                for index, kind in enumerate(asked.demand.kinds)
            ]
            changed = {**kinds, keys[largest]: KindOfPods(kinds[keys[largest]].example, number)}
            return replace(asked, demand=replace(asked.demand, kinds=demanded)), changed

        low, high = 0, count
        while high - low > 1:  # low starts, high does not
            middle = (low + high) // 2
            if self._starts(fewer(middle)[0]) is None:
                high = middle
            else:
                low = middle
        if not low:
            return None
        changed, left = fewer(low)
        return self._tried(changed, left, f"{counted(low, 'pod')} instead of {count:,}")

    def _shorter(self, asked: WaitingJob, kinds: Mapping[bytes, KindOfPods]) -> Remedy | None:
        """The longest run time with which the job ends before something that is reserved for another one."""
        reserved = {d.reservation.start for d in self._plan.delays.values() if d.reservation is not None}
        for start in sorted(reserved, reverse=True):
            seconds = start - self._situation.now - self._policy.start_up
            if 0 < seconds < asked.duration:
                now, then = Duration.of(seconds=int(seconds)), Duration.of(seconds=round(asked.duration))
                text = f"a run time of {now} instead of {then}"
                if remedy := self._tried(replace(asked, duration=float(int(seconds))), kinds, text):
                    return remedy
        return None

    def _other_nodes(self, asked: WaitingJob, kinds: Mapping[bytes, KindOfPods]) -> Iterator[Remedy]:
        """Each flavor of nodes, or any nodes if there are no flavors, in the place of what the pods select."""
        args, situation = self._plugin.args, self._situation
        choices = [(f"flavor {each.name}", each.node_labels) for each in args.flavors] or [("any node", {})]
        builder = self._plugin.builder(situation.resources, situation.flavors)
        for name, labels in choices:
            changed = {
                key: KindOfPods(self._selecting(kind.example, labels), kind.number) for key, kind in kinds.items()
            }
            demand = builder.demand(asked.queue, changed)
            if all((a.nodes == b.nodes).all() for a, b in zip(demand.kinds, asked.demand.kinds, strict=True)):
                continue
            text = f"nodes of {name}" if labels else "no node selector and node affinity"
            if remedy := self._tried(replace(asked, demand=demand), changed, text):
                yield remedy

    def _selecting(self, info: PodInfo, labels: Mapping[str, str]) -> PodInfo:
        """The same pod with a node selector in the place of its own, and without node affinity."""
        affinity = info.spec.affinity and msgspec.structs.replace(info.spec.affinity, node_affinity=None)
        spec = msgspec.structs.replace(info.spec, node_selector=dict(labels), affinity=affinity)
        return self._scheduler.cache.shapes.info(msgspec.structs.replace(info.pod, spec=spec))

    def _larger_domain(self, asked: WaitingJob, kinds: Mapping[bytes, KindOfPods]) -> Remedy | None:
        """A larger domain than the one that its pod group requires, if the job is planned in one, or no requirement."""
        required, placement = self._topology_key(asked.key), self._starts(asked, anywhere=True)
        if not required or placement is None or self._is_in_one_domain(asked.key, placement):
            return None
        nodes = self._verified(kinds, placement)
        if nodes is None:
            return None
        table = self._scheduler.cache.all_nodes()
        keys = (key for key in larger_domains(table, required) if len(_domains_of(placement, table, key)) == 1)
        key = next(keys, "")
        return Remedy(
            f"the topology level {key} instead of {required}" if key else _NO_TOPOLOGY.format(required), nodes
        )

    def _topology_key(self, name: str) -> str:
        """The key of the topology domain in which the pod group of a job requires its pods to be; "" for none."""
        known = self._topology_keys.get(name)
        if known is None:
            known = self._topology_keys[name] = self._read_topology_key(self._jobs[name])
        return known

    def _read_topology_key(self, job: Job) -> str:
        info = next(iter(job.pods.values()))
        gang = self._scheduler.profile(info.pod).gangs.gang_of(info)
        group = None if gang is None else pod_group_of(gang, self._scheduler.cache.catalog(PodGroup))
        terms = [] if group is None else group.spec.scheduling_constraints.topology
        return terms[0].key if terms else ""

    def _is_in_one_domain(self, name: str, placement: Placement) -> bool:
        """Whether the nodes of a job are in one of the topology domains that its pod group requires, if it does."""
        key = self._topology_key(name)
        return not key or len(_domains_of(placement, self._scheduler.cache.all_nodes(), key)) == 1

    def _tried(self, changed: WaitingJob, kinds: Mapping[bytes, KindOfPods], text: str) -> Remedy | None:
        """The change if the job starts with it, and the engine accepts its pods."""
        placement = self._starts(changed)
        if placement is None:
            return None
        nodes = self._verified(kinds, placement)
        return None if nodes is None else Remedy(text, nodes)

    def _starts(self, changed: WaitingJob, *, anywhere: bool = False) -> Placement | None:
        """Where a changed job starts now, None if it does not, or not in one topology domain unless that is ignored."""
        waiting = [changed if each.key == changed.key else each for each in self._situation.waiting]
        made = plan(replace(self._situation, waiting=waiting), self._policy)
        placement = next((start.placement for start in made.starts if start.job.key == changed.key), None)
        if placement is None or anywhere or self._is_in_one_domain(changed.key, placement):
            return placement
        return None

    def _verified(self, kinds: Mapping[bytes, KindOfPods], placement: Placement) -> dict[str, int] | None:
        """How many pods each node gets, if all filters of the profile accept them there one after the other."""
        cache, table, found = self._scheduler.cache, self._scheduler.cache.nodes, dict[str, int]()
        with cache.simulate():
            for kind, rows, counts in zip(kinds.values(), placement.rows, placement.counts, strict=True):
                profile = self._scheduler.profile(kind.example.pod)
                number = 0
                for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                    within = np.zeros(len(table), np.bool_)
                    within[row] = True
                    for _ in range(count):
                        pod = _copy(kind.example, number, self._scheduler)
                        number += 1
                        feasible = profile.evaluations.of(pod).find_feasible(pod, within)
                        if feasible.error is not None or not feasible.count:
                            return None
                        cache.assume(pod, table.names[row])
                        found[table.names[row]] = found.get(table.names[row], 0) + 1
        return found


def _domains_of(placement: Placement, nodes: Nodes, key: str) -> set[int]:
    """The numbers of the domains of a topology key in which the nodes of a placement are."""
    domains = nodes.label(key)
    return {number for rows in placement.rows for number in domains[rows].tolist()}


def _copy(info: PodInfo, number: int, scheduler: OfflineScheduler) -> PodInfo:
    """A pod like another one, with a name of its own."""
    metadata = msgspec.structs.replace(
        info.metadata, name=f"{info.name}-forecast-{number}", uid=f"{info.uid}-forecast-{number}"
    )
    return scheduler.cache.shapes.info(msgspec.structs.replace(info.pod, metadata=metadata))


def _selects(info: PodInfo) -> bool:
    affinity = info.spec.affinity
    return bool(info.spec.node_selector or (affinity and affinity.node_affinity))


def _text(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"
