"""Jobs: the pods that start together, where they are, and how long they run.

A pod names its queue by the label or annotation ``kubestow.dev/queue``. Its job is named by the annotation
``kubestow.dev/job``, by its pod group, by the labels of its job's controller, or it is its controller, or the pod
itself. Pods that name no queue, where there is no default queue, are no concern of this package.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from kubestow.api.formats.duration import Duration
from kubestow.api.scheduling import Workload
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import WORKLOADS
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.jobs import jobs_of
from kubestow_contrib.queues.availability import Reservation
from kubestow_contrib.queues.batch_jobs import JobReference, job_of
from kubestow_contrib.queues.history import JobRun, PodsOnNodes

QUEUE = "kubestow.dev/queue"
"""Label or annotation of a pod with the name of its queue."""

JOB = "kubestow.dev/job"
"""Annotation of a pod with the name of its job."""

JOB_SIZE = "kubestow.dev/job-size"
"""Annotation of a pod with the number of pods of its job that start together."""

RUN_TIME = "kubestow.dev/run-time"
"""Annotation of a pod with the time that its job is expected to run, such as ``"2h"``."""

RESTART_COST = "kubestow.dev/restart-cost"
"""Annotation of a pod with the time that its job loses by being evicted, beside what it has done; ``"10m"``."""

PREEMPTIBLE = "kubestow.dev/preemptible"
"""Annotation of a pod: with ``"false"``, its job is not evicted for others."""

_DURATION = "kubestow.dev/duration"
#: Run times of so many jobs per queue are remembered, and so many are needed before anything is learned from them.
_MOST_LEARNED, _LEAST_LEARNED = 100, 5
#: The ages of so many evicted jobs are remembered.
_MOST_EVICTED = 10_000
#: The quantile of the run times of a queue that is expected of its jobs, in tenths.
_EXPECTED_TENTH = 9


class JobKey(NamedTuple):
    """The identity of a job."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """``job/default/train``."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


class JobState(Enum):
    """What has been decided about a job."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    """Its pods may be scheduled, or are on nodes."""


class KindOfPods(NamedTuple):
    """Pods of a job that are alike, one of them as an example."""

    example: PodInfo
    number: int


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a job is expected to run in seconds, and where this comes from."""

    seconds: float
    source: str


class Declared(NamedTuple):
    """What the pods of a job say about it: times in seconds, None where they say nothing.

    ``run_time`` is the longest that a pod is annotated with, and its annotation; ``restart_cost`` is in pod-seconds.
    ``deadline`` is the longest ``activeDeadlineSeconds`` of pods; ``controllers`` are the Jobs that control them.
    """

    priority: int
    run_time: tuple[float, str] | None
    deadline: float | None
    restart_cost: float
    is_preemptible: bool
    controllers: frozenset[JobReference]


class Job:
    """A job and its pods; times are seconds since the Unix epoch."""

    def __init__(self, key: JobKey, queue: str) -> None:
        self.key, self.queue = key, queue
        #: Its key as text.
        self.name = str(key)
        self.state = JobState.WAITING
        #: The pods that exist and have not finished, by uid, and the node of each that has one.
        self.pods: dict[str, PodInfo] = {}
        self.nodes: dict[str, str] = {}
        self.most_pods = 0
        self._declared: Declared | None = None
        self._all_kinds: dict[bytes, KindOfPods] | None = None
        #: How many pods of each kind are on each node by name, and are planned there, these included.
        self.placed: dict[bytes, Counter[str]] = {}
        self.planned: dict[bytes, Counter[str]] = {}
        #: The pods of each kind that have been on nodes since it was last on none, and since when.
        self.has_used: dict[bytes, PodsOnNodes] = {}
        self.has_used_since = 0.0
        self.arrived = 0.0
        #: When the last pod joined.
        self.joined = 0.0
        self.admitted: float | None = None
        self.started: float | None = None
        self.reservation: Reservation | None = None
        #: The first start that was reserved since it began to wait.
        self.first_reserved: float | None = None
        #: Why it waits, as the messages of its pods say.
        self.message_shown = ""
        #: The pods that have been or are being evicted for another job.
        self.leaving: set[str] = set()
        self.withdrawn = 0.0

    @property
    def example(self) -> PodInfo:
        """One of its pods."""
        return next(iter(self.pods.values()))

    @property
    def declared(self) -> Declared:
        """What its pods say."""
        if self._declared is None:
            self._declared = _declared(self.pods.values())
        return self._declared

    def put(self, info: PodInfo) -> None:
        """Add or replace a pod."""
        self.pods[info.uid] = info
        self.most_pods = max(self.most_pods, len(self.pods))
        self._declared = self._all_kinds = None

    def remove(self, uid: str) -> PodInfo:
        """Remove a pod, from its node as well."""
        info = self.pods.pop(uid)
        self.unplace(info)
        self._declared = self._all_kinds = None
        return info

    def size(self, cluster: Cluster) -> int | None:
        """How many pods start together, None if nothing says so."""
        example = self.example
        if (size := _number(example.metadata.annotations.get(JOB_SIZE))) is not None:
            return size
        apis = {api.name: api for api in cluster.pod_groups.apis}
        for name in cluster.pod_groups.memberships(example):
            api = apis[name.api]
            if api is WORKLOADS:
                if least := _least_by_workload(cluster, example):
                    return least
                continue
            group = cluster.catalog(api.kind).get(name.namespace, name.name)
            if group is not None and (least := api.gang_policy(group)[0]):
                return least
        return None

    @property
    def unplanned_kinds(self) -> dict[bytes, KindOfPods]:
        """The pods that still have to be planned, by what they need; none while its former pods are leaving."""
        if self.leaving:
            return {}
        if self.nodes or self.planned or any(info.terminating for info in self.pods.values()):
            return self.kinds(self.unplanned())
        if self._all_kinds is None:
            self._all_kinds = self.kinds(self.pods)
        return self._all_kinds

    def kinds(self, uids: Iterable[str]) -> dict[bytes, KindOfPods]:
        """Some of its pods by what they need: namespace, controller and spec."""
        found: dict[bytes, KindOfPods] = {}
        for uid in uids:
            info = self.pods[uid]
            key = info.shape.family.key
            found[key] = KindOfPods(info, found[key].number + 1 if key in found else 1)
        return found

    def place(self, info: PodInfo, node: str) -> None:
        """One of its pods is on a node."""
        if self.nodes.get(info.uid) != node:
            self.unplace(info)
            self.nodes[info.uid] = node
            kind = info.shape.family.key
            placed = self.placed.setdefault(kind, Counter())
            placed[node] += 1
            used = self.has_used.setdefault(kind, PodsOnNodes(info.requests, {})).counts
            used[node] = max(used.get(node, 0), placed[node])

    def unplace(self, info: PodInfo) -> None:
        """One of its pods is on no node any more."""
        node = self.nodes.pop(info.uid, None)
        if node is not None:
            self.placed[info.shape.family.key][node] -= 1

    def open_nodes(self, kind: bytes) -> Counter[str]:
        """How many more pods of a kind are planned on each node."""
        return self.planned.get(kind, Counter()) - self.placed.get(kind, Counter())

    def unplanned(self) -> list[str]:
        """The uids of the pods without a node for which none is planned."""
        left = {kind: self.open_nodes(kind).total() for kind in self.kinds(self.pods)}
        found = []
        for uid, info in self.pods.items():
            if uid in self.nodes or info.terminating:
                continue
            kind = info.shape.family.key
            if left[kind]:
                left[kind] -= 1
            else:
                found.append(uid)
        return found

    def run_until(self, time: float, *, is_evicted: bool = False) -> JobRun:
        """Where it has run since it was last on no node, and until when."""
        began = min(self.has_used_since, time)
        return JobRun(self.name, self.queue, list(self.has_used.values()), began, time, is_evicted)

    def withdraw(self, now: float) -> None:
        """Have it wait again, without the pods that are on nodes: those are leaving."""
        self.withdrawn = now
        self.state, self.admitted, self.started = JobState.WAITING, None, None
        self.reservation, self.first_reserved = None, None
        self.leaving = set(self.nodes)
        self.planned.clear()
        if not self.nodes:
            self.has_used.clear()

    def restore(self) -> None:
        """Have it go on with the pods that should have left, if any are still on nodes."""
        self.leaving.clear()
        if self.nodes:
            self.state = JobState.ADMITTED
            starts = [info.status.start_time for uid, info in self.pods.items() if uid in self.nodes]
            self.started = min((each.timestamp() for each in starts if each is not None), default=self.withdrawn)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that has ended: when it arrived, started and ended (seconds since the Unix epoch), and its reservation.

    ``reserved`` is the first start that was reserved for it, None if there was none; ``pods`` the most pods that it had
    at a time.
    """

    name: str
    queue: str
    pods: int
    arrived: float
    started: float
    ended: float
    reserved: float | None


class RunTimes:
    """How long jobs run: as they say, or as the jobs of their queues did before.

    ``assumed`` is the time of jobs about which nothing is known, in seconds; ``deadline_of`` returns how long some Jobs
    may run.
    """

    def __init__(self, assumed: float, deadline_of: Callable[[Collection[JobReference]], float | None]) -> None:
        self._assumed, self._deadline_of = assumed, deadline_of
        self._learned: dict[str, deque[float]] = {}

    def learn(self, queue: str, seconds: float) -> None:
        """Remember how long a job of a queue has run."""
        self._learned.setdefault(queue, deque(maxlen=_MOST_LEARNED)).append(seconds)

    def of(self, job: Job) -> RunTime:
        """The expected run time: the annotation, else ``activeDeadlineSeconds``, else what was learned, else assumed.

        A job does not run beyond ``activeDeadlineSeconds`` of its pods, or of its Job, in any case.
        """
        declared = job.declared
        known = [RunTime(*declared.run_time)] if declared.run_time is not None else []
        if declared.deadline is not None:
            known.append(RunTime(declared.deadline, "activeDeadlineSeconds of its pods"))
        if declared.controllers and (deadline := self._deadline_of(declared.controllers)) is not None:
            known.append(RunTime(deadline, f"activeDeadlineSeconds of {_names(declared.controllers)}"))
        if known:
            return min(known, key=lambda each: each.seconds)
        learned = self._learned.get(job.queue, ())
        if len(learned) >= _LEAST_LEARNED:
            tenths = statistics.quantiles(learned, n=10, method="inclusive")
            return RunTime(tenths[_EXPECTED_TENTH - 1], f"learned from {len(learned)} jobs of queue {job.queue}")
        return RunTime(self._assumed, "assumed")

    def end(self, job: Job, now: float) -> float:
        """When a job that has started is expected to end.

        One that has outlived what was expected of it is expected to run twice as long, then twice as long as that.
        """
        expected, began = max(self.of(job).seconds, 1.0), job.started or job.admitted or now
        while began + expected <= now:
            expected *= 2
        return began + expected


class Jobs:
    """All jobs that have pods. Listens to the pods and placements of a cluster.

    ``is_ours`` distinguishes the pods of the scheduler's own profiles from others, which are no concern of queues.
    ``on_end`` is called with each job that has ended, and ``on_run`` with where a job ran once it is on no node.
    """

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], float],
        *,
        queues: Iterable[str],
        queue_keys: Sequence[str],
        namespace_queues: Mapping[str, str],
        default_queue: str,
        is_ours: Callable[[PodInfo], bool],
        run_times: RunTimes,
        on_end: Callable[[Job], None],
        on_run: Callable[[JobRun], None],
    ) -> None:
        self._cluster, self._now = cluster, now
        self._queues, self._default = frozenset(queues), default_queue
        self._queue_keys, self._namespace_queues = (QUEUE, *queue_keys), namespace_queues
        self._is_ours, self.run_times, self._on_end, self._on_run = is_ours, run_times, on_end, on_run
        self.by_key: dict[JobKey, Job] = {}
        self._of_pod: dict[str, Job] = {}
        #: The nodes of pods that are placed, by uid, whether or not their jobs are known.
        self._nodes: dict[str, str] = {}
        #: Since when jobs have waited that were evicted, and have no pods until their controllers create new ones.
        self._evicted: dict[JobKey, float] = {}
        #: Whether anything has changed since it was set to False.
        self.changed = True
        cluster.listen_to_pods(self)
        cluster.listen_to_placements(self)

    def of(self, info: PodInfo) -> Job | None:
        """The job of a pod, None if it is no concern of queues."""
        return self._of_pod.get(info.uid)

    def queue_of(self, info: PodInfo) -> str:
        """The queue that a pod names, or that of its namespace, or the default one; "" for none."""
        for key in self._queue_keys:
            if queue := info.metadata.annotations.get(key) or info.labels.get(key):
                return queue
        return self._namespace_queues.get(info.namespace, self._default)

    def problem(self, info: PodInfo) -> str:
        """Why a pod that names a queue belongs to no job; "" if it does or names none."""
        queue = self.queue_of(info)
        if not queue or queue in self._queues:
            return ""
        return f"queue {queue} does not exist, or is the parent of others"

    # -- pods ----------------------------------------------------------------------------------------------------------

    def pod_observed(self, info: PodInfo) -> None:
        """A pod is new, or has changed."""
        queue = self.queue_of(info)
        if queue not in self._queues or not self._is_ours(info) or info.status.phase in ("Succeeded", "Failed"):
            self._leave(info.uid)
            return
        key = self._key(info)
        job = self._of_pod.get(info.uid)
        if job is not None and (job.key, job.queue) != (key, queue):
            self._leave(info.uid)
            job = None
        if job is None:
            now = self._now()
            job = self.by_key.get(key)
            if job is None:
                job = self.by_key[key] = Job(key, queue)
                job.arrived = self._evicted.pop(key, _created(info, now))
            job.joined = now
            self._of_pod[info.uid] = job
            self.changed = True
        before = job.pods.get(info.uid)
        if before is not None and (before.terminating, before.spec) != (info.terminating, info.spec):
            self.changed = True
        job.put(info)
        if info.uid in self._nodes:
            self._place(job, info)

    def pod_ended(self, uid: str) -> None:
        """A pod has finished or was deleted."""
        self._nodes.pop(uid, None)
        self._leave(uid)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod is on a node, or assumed to be."""
        self._nodes[info.uid] = self._cluster.nodes.names[row]
        job = self._of_pod.get(info.uid)
        self.changed = True
        if job is not None:
            self._place(job, info)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod is not on its node any more."""
        self._nodes.pop(info.uid, None)
        self.changed = True
        job = self._of_pod.get(info.uid)
        if job is not None:
            job.unplace(info)

    def _place(self, job: Job, info: PodInfo) -> None:
        began = info.status.start_time
        started = self._now() if began is None else began.timestamp()
        job.has_used_since = min(job.has_used_since, started) if job.has_used else started
        job.place(info, self._nodes[info.uid])
        if info.uid in job.leaving:
            return
        job.state = JobState.ADMITTED  # also if it was started by another scheduler, or before a restart
        if job.started is None or started < job.started:
            job.started = started

    def _leave(self, uid: str) -> None:
        job = self._of_pod.pop(uid, None)
        if job is None:
            return
        self.changed = True
        was_evicted = uid in job.leaving
        job.leaving.discard(uid)
        node = job.nodes.get(uid)
        info = job.remove(uid)
        if node is not None and (planned := job.planned.get(info.shape.family.key)):
            planned[node] -= 1
        if job.has_used and not job.nodes:
            self._on_run(job.run_until(self._now(), is_evicted=was_evicted))
            job.has_used = {}
        if job.pods:
            return
        del self.by_key[job.key]
        if was_evicted:
            self._evicted[job.key] = job.arrived
            while len(self._evicted) > _MOST_EVICTED:
                del self._evicted[next(iter(self._evicted))]
            return
        if job.started is not None:
            self.run_times.learn(job.queue, max(0.0, self._now() - job.started))
        self._on_end(job)

    def _key(self, info: PodInfo) -> JobKey:
        if name := info.metadata.annotations.get(JOB):
            return JobKey("Job", info.namespace, name)
        for group in self._cluster.pod_groups.memberships(info):
            return JobKey("PodGroup", group.namespace, group.name)
        for job in jobs_of(info.pod):
            return JobKey(job.kind, job.namespace, "/".join(filter(None, (job.name, job.part))))
        return JobKey("Pod", info.namespace, info.name)


def _declared(pods: Collection[PodInfo]) -> Declared:
    run_times, deadlines, cost = [], [], 0.0
    for info in pods:
        annotations = info.metadata.annotations
        for annotation in (RUN_TIME, _DURATION):
            if (value := _seconds(annotations.get(annotation))) is not None:
                run_times.append((value, f"annotation {annotation}"))
                break
        if info.spec.active_deadline_seconds is not None:
            deadlines.append(float(info.spec.active_deadline_seconds))
        cost += _seconds(annotations.get(RESTART_COST)) or 0.0
    return Declared(
        max((info.priority for info in pods), default=0),
        max(run_times, default=None),
        max(deadlines, default=None),
        cost,
        all(info.metadata.annotations.get(PREEMPTIBLE) != "false" for info in pods),
        frozenset(filter(None, (job_of(info.pod) for info in pods))),
    )


def _names(jobs: Collection[JobReference]) -> str:
    """``Job train``, or the number of several."""
    if len(jobs) > 1:
        return f"its {len(jobs)} Jobs"
    return f"Job {next(iter(jobs)).name}"


def _least_by_workload(cluster: Cluster, info: PodInfo) -> int:
    """How many pods the group of a Workload needs that a pod names; 0 if it is no gang, or does not exist."""
    reference = info.spec.workload_ref
    workload = None if reference is None else cluster.catalog(Workload).get(info.namespace, reference.name)
    if reference is None or workload is None:
        return 0
    gangs = [group.policy.gang for group in workload.spec.pod_groups if group.name == reference.pod_group]
    return gangs[0].min_count if gangs and gangs[0] is not None else 0


def _created(info: PodInfo, now: float) -> float:
    created = _timestamp(info.metadata.creation_timestamp)
    return now if created is None else min(created, now)


def _timestamp(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    """A duration, or a number of seconds; None for what is neither or not positive."""
    if not text:
        return None
    try:
        value = float(text) if text.replace(".", "", 1).isdigit() else Duration.parse(text).seconds
    except ValueError:
        return None
    return value if value > 0 else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def loss_of(job: Job, now: float) -> float:
    """What evicting a job loses, in pod-seconds: what its pods have done, and what it costs to start it again."""
    began = now if job.started is None else job.started
    return len(job.nodes) * max(0.0, now - began) + job.declared.restart_cost


def requested_by(kinds: Mapping[bytes, KindOfPods]) -> Counter[str]:
    """What pods request together, by resource."""
    total = Counter[str]()
    for kind in kinds.values():
        for name, amount in kind.example.requests.items():
            total[name] += amount * kind.number
    return total
