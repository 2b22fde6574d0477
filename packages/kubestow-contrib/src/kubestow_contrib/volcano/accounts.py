"""Accounts: the jobs and queues of the cluster, what their pods request and use, and what each queue deserves.

A job is a PodGroup of Volcano with its pods, or a single pod that names a queue by annotation. Pods that do neither are
no concern of Volcano's. A pod counts as requested from when it is observed, and as allocated while it is on a node; a
terminating pod counts as neither, and one with scheduling gates is not requested. Of a queue, only the requests of
admitted jobs count, so that no share lies idle for pods that may not be scheduled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from itertools import chain
from typing import NamedTuple

from kubestow.api.formats.int64 import exact_sum
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InvalidQuantity
from kubestow.rules.requests import PODS
from kubestow_contrib.preemption_toleration import PriorityClass
from kubestow_contrib.shares import TOLERANCE, Amounts, amounts_of, dominant_share
from kubestow_contrib.volcano import kube_batch
from kubestow_contrib.volcano.configuration import waiting_time
from kubestow_contrib.volcano.pod_groups import PodGroup, group_of, task_of
from kubestow_contrib.volcano.queues import DEFAULT_QUEUE, ROOT_QUEUE, Division, Queue, QueueRules, read_queues

_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
_WAITING_TIMES = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
_UNLIMITED = float("inf")
#: A capability of 0 does not limit these.
_UNLIMITED_IF_ZERO = ("cpu", "memory")
_NEVER: Hashable = object()
#: The phases of PodGroups that may still be admitted, and those that have been.
_WAITING, _ADMITTED = ("", "Pending", "Inqueue"), ("Inqueue", "Running", "Unknown")
#: So many pods that have ended are kept until they are counted.
_MOST_ENDED = 10_000


class JobKey(NamedTuple):
    """The identity of a job: a PodGroup by namespace and name, or a pod by its uid besides."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class EndedPod(NamedTuple):
    """A pod of a PodGroup that has finished or was deleted."""

    job: JobKey
    name: str
    uid: str


class Job:
    """A job, and what its pods request and use. ``problem`` says why it is not admitted, whatever its queue."""

    def __init__(self, key: JobKey) -> None:
        self.key = key
        self.queue = ""
        self.min_member = 1
        #: How many pods each task needs before any of the job runs.
        self.min_task_member: Mapping[str, int] = {}
        self.min_resources: Amounts | None = None
        self.priority_class = ""
        self.priority = 0
        self.created = ""
        #: The seconds that it waits at most before it is admitted, if its pod group says so.
        self.waiting_time: float | None = None
        self.problem = ""
        #: Whether its pods may be scheduled (phase Inqueue or Running).
        self.is_admitted = False
        #: The pods that request something, by uid, and those on nodes.
        self.pods: dict[str, PodInfo] = {}
        self.placed: dict[str, PodInfo] = {}
        #: How many pods each task has, and how many on nodes.
        self.tasks: Counter[str] = Counter()
        self.placed_tasks: Counter[str] = Counter()
        self.requested: Counter[str] = Counter()
        self.allocated: Counter[str] = Counter()

    def lacking_task(self, found: Mapping[str, int]) -> str:
        """Which of its tasks has too few pods, given how many are found of each; empty if none has.

        As in Volcano, tasks count only if the job needs the pods of all of them.
        """
        if not self.min_task_member or self.min_member < sum(self.min_task_member.values()):
            return ""
        return next(
            (
                f"task {name} of PodGroup {self.key} needs {least} pods, {found.get(name, 0)} are there"
                for name, least in self.min_task_member.items()
                if found.get(name, 0) < least
            ),
            "",
        )

    @property
    def unused_minimum(self) -> Counter[str]:
        """What of its minimum resources its pods do not use."""
        least = self.min_resources or {}
        return Counter({name: left for name in least if (left := least[name] - self.allocated.get(name, 0)) > 0})


class QueueAccount:
    """What the jobs of a queue request and use together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: dict[JobKey, Job] = {}
        self.requested: Counter[str] = Counter()
        self.allocated: Counter[str] = Counter()
        #: The minimum resources of the admitted jobs.
        self.admitted_minimum: Counter[str] = Counter()
        #: What the queue deserves, by resource. Kept by :meth:`Accounts.refresh`.
        self.deserved: Mapping[str, float] = {}
        self._share: float | None = None

    @property
    def share(self) -> float:
        """The largest fraction that it uses of a resource of which it deserves anything."""
        if self._share is None:
            self._share = dominant_share(self.allocated, {name: most for name, most in self.deserved.items() if most})
        return self._share

    def deserve(self, amounts: Mapping[str, float]) -> None:
        """Replace what it deserves."""
        self.deserved = amounts
        self._share = None

    def changed(self) -> None:
        """Have the share computed again."""
        self._share = None

    def over_deserved(self, less: Amounts) -> bool:
        """Whether it would use more of anything than it deserves if it used so much less."""
        return any(
            amount - less.get(name, 0) > self.deserved.get(name, 0) + TOLERANCE
            for name, amount in self.allocated.items()
        )


class Shares(Enum):
    """What queues deserve."""

    ALL = "all there is"
    FAIR = "a fair share (proportion)"
    SPECIFIED = "spec.deserved (capacity)"
    HIERARCHICAL = "the same, in a hierarchy (capacity with enableHierarchy)"

    @property
    def are_specified(self) -> bool:
        """Whether they are in the queues themselves."""
        return self in (Shares.SPECIFIED, Shares.HIERARCHICAL)


class QueueAccounts:
    """The accounts of all queues that have jobs, the rules of queues, and what each deserves and may use at most."""

    def __init__(self, cluster: Cluster, shares: Shares) -> None:
        self._cluster, self.shares = cluster, shares
        #: The children of each queue that is a parent.
        self._children: dict[str, list[str]] = {}
        #: Of two queues of one name, that of Volcano counts.
        self._queue_objects = [cluster.catalog(kind) for kind in (kube_batch.Queue, Queue)]
        self.accounts: dict[str, QueueAccount] = {}
        self.rules: Mapping[str, QueueRules] = {}
        #: What all nodes have together. Kept by :meth:`update`.
        self.total: Mapping[str, int] = {}
        #: What admitted jobs do not use yet of their minimum resources.
        self.unused_minimum: Counter[str] = Counter()
        self._guaranteed: Counter[str] = Counter()
        self._capabilities: dict[str, Mapping[str, float]] = {}
        self._rules_version: Hashable = _NEVER
        self._total_version: Hashable = _NEVER
        self._division: Division | None = None
        #: The queues whose requests have changed since the shares were computed.
        self._outdated: set[str] = set()

    # -- limits and shares -------------------------------------------------------------------------------------------

    def of(self, job: Job) -> QueueAccount | None:
        """The queue of a job, None if the pod group or the queue does not exist."""
        return self.accounts.get(job.queue) if job.queue in self.rules else None

    def update(self) -> bool:
        """Bring the rules and the total up to date; whether they have changed."""
        changed = False
        if self._rules_version != (version := tuple(catalog.version for catalog in self._queue_objects)):
            self._rules_version = version
            self.rules = read_queues(chain.from_iterable(self._queue_objects), self.rules)
            changed = True
        nodes = self._cluster.nodes
        if self._total_version != (total_version := (nodes.structure, nodes.allocatable.version)):
            self._total_version = total_version
            total = {name: exact_sum(nodes.allocatable[name].readonly) for name in nodes.allocatable}
            self.total = {**total, PODS: int(nodes.allowed_pods.readonly.sum())}
            changed = True
        if changed:
            self._capabilities.clear()
            self._guaranteed = Counter()
            self._children = {}
            for rules in self.rules.values():
                self._guaranteed.update(rules.guarantee)
                self._children.setdefault(rules.parent, []).append(rules.name)
            self._division = None
        return changed

    def divide(self) -> None:
        """Bring the shares up to date, as of :meth:`update`."""
        if self._division is None:
            rules = [self.rules[name] for name in self.accounts if name in self.rules]
            self._division = Division(self.total, rules, [self.capability(each.name) for each in rules])
            self._outdated = {each.name for each in rules}
        elif not self._outdated:
            return
        if self.shares is Shares.FAIR:
            for name in self._outdated:
                self._division.request(name, self.accounts[name].requested)
            for name, deserved in self._division.changes():
                self.accounts[name].deserve(deserved)
        elif self.shares.are_specified:
            for name in self._outdated:
                self.accounts[name].deserve(self.specified(name))
        else:
            for name in self._outdated:
                self.accounts[name].deserve(dict.fromkeys(self.accounts[name].requested, _UNLIMITED))
        self._outdated.clear()

    def capability(self, queue: str) -> Mapping[str, float]:
        """What a queue may use at most: its capability, or what the guarantees of others leave of the cluster.

        In a hierarchy, what the parent leaves. As of :meth:`update`. Resources that no node has are left out, because
        there is nothing of them.
        """
        found = self._capabilities.get(queue)
        if found is None and self.shares is Shares.HIERARCHICAL:
            found = self._capabilities[queue] = self._capability_in_hierarchy(queue)
        elif found is None:
            rules = self.rules[queue]
            limits = {name: most for name, most in rules.capability.items() if most or name not in _UNLIMITED_IF_ZERO}
            found = self._capabilities[queue] = {
                name: min(
                    max(total - self._guaranteed[name], 0) + rules.guarantee.get(name, 0), limits.get(name, _UNLIMITED)
                )
                for name, total in self.total.items()
            }
        return found

    def specified(self, queue: str) -> dict[str, float]:
        """What a queue deserves by its spec as of :meth:`update`: at most its capability, at least its guarantee."""
        rules, most = self.rules[queue], self.capability(queue)
        return {
            name: max(min(rules.deserved.get(name, 0), most.get(name, _UNLIMITED)), rules.guarantee.get(name, 0))
            for name in dict.fromkeys((*rules.deserved, *rules.guarantee))
        }

    def _capability_in_hierarchy(self, queue: str) -> dict[str, float]:
        rules = self.rules.get(queue)
        limits = {} if rules is None else rules.capability
        own = {name: most for name, most in limits.items() if most or name not in _UNLIMITED_IF_ZERO}
        if rules is None or not rules.parent:
            return {name: own.get(name, _UNLIMITED) for name in self.total}
        guarantees = Counter[str]()
        for sibling in self._children[rules.parent]:
            guarantees.update(self.rules[sibling].guarantee)
        return {
            name: min(max(most - guarantees[name], 0) + rules.guarantee.get(name, 0), own.get(name, _UNLIMITED))
            for name, most in self._of_parent(rules.parent).items()
        }

    def _of_parent(self, parent: str) -> Mapping[str, float]:
        return self.capability(parent) if parent in self.rules else dict.fromkeys(self.total, _UNLIMITED)

    def lineage(self, queue: str) -> list[str]:
        """A queue, and in a hierarchy its ancestors, the root last."""
        found = [queue]
        while self.shares is Shares.HIERARCHICAL and (rules := self.rules.get(found[-1])) and rules.parent:
            found.append(rules.parent)
        return found

    def ancestors(self, queue: str, levels: int) -> list[str]:
        """The ancestors of a queue up to a level, its parent being the first, without the root and what is missing."""
        return [name for name in self.lineage(queue)[1 : levels + 1] if name != ROOT_QUEUE and name in self.rules]

    def problem_in_hierarchy(self, queue: str) -> str:
        """Why a queue admits no pods because of its place in the hierarchy; empty if it does."""
        if self.shares is not Shares.HIERARCHICAL:
            return ""
        if queue in self._children:
            return f"Queue {queue}: is the parent of {', '.join(sorted(self._children[queue]))}, so it admits no pods"
        for name in self.lineage(queue)[:-1]:
            parent = self.rules[name].parent
            if parent != ROOT_QUEUE and parent not in self.rules:
                return f"Queue {name}: spec.parent: Queue {parent} does not exist"
        return ""

    def used_below(self, queue: str, kind: str) -> Mapping[str, int]:
        """``allocated`` or ``admitted_minimum`` of a queue and all its descendants."""
        total = Counter[str]()
        for name, account in self.accounts.items():
            if queue in self.lineage(name):
                total.update(getattr(account, kind))
        return total

    # -- jobs --------------------------------------------------------------------------------------------------------

    def join(self, job: Job) -> None:
        """Count a job in the queue that it names, if any."""
        if not job.queue:
            return
        queue = self.accounts.get(job.queue)
        if queue is None:
            queue = self.accounts[job.queue] = QueueAccount(job.queue)
            self._division = None
        queue.jobs[job.key] = job
        if job.is_admitted:
            queue.requested.update(job.requested)
        queue.allocated.update(job.allocated)
        queue.changed()
        self._promise(job, +1)
        self._request_changed(queue)

    def leave(self, job: Job) -> None:
        """Do not count a job in its queue any more."""
        queue = self.accounts.get(job.queue)
        if queue is None:
            return
        self._promise(job, -1)
        del queue.jobs[job.key]
        if job.is_admitted:
            queue.requested -= job.requested
        queue.allocated -= job.allocated
        queue.changed()
        self._request_changed(queue)
        if not queue.jobs:
            del self.accounts[queue.name]
            self._division = None

    def admit(self, job: Job) -> None:
        """Have the pods of a job scheduled, and its minimum resources set aside for it."""
        job.is_admitted = True
        self._promise(job, +1)
        if (queue := self.accounts.get(job.queue)) is not None:
            queue.requested.update(job.requested)
            self._request_changed(queue)

    def add(self, job: Job, account: str, amounts: Amounts, sign: int) -> None:
        """Add to ``requested`` or ``allocated`` of a job and its queue."""
        counts_towards_minimum = account == "allocated" and job.is_admitted and job.min_resources
        if counts_towards_minimum:
            _count(self.unused_minimum, job.unused_minimum, -1)
        _count(getattr(job, account), amounts, sign)
        if counts_towards_minimum:
            _count(self.unused_minimum, job.unused_minimum, +1)
        queue = self.accounts.get(job.queue)
        if queue is None or not (job.is_admitted or account == "allocated"):
            return
        _count(getattr(queue, account), amounts, sign)
        queue.changed()
        if account == "requested":
            self._request_changed(queue)

    def _promise(self, job: Job, sign: int) -> None:
        queue = self.accounts.get(job.queue)
        if job.is_admitted and job.min_resources and queue is not None:
            _count(queue.admitted_minimum, job.min_resources, sign)
            _count(self.unused_minimum, job.unused_minimum, sign)

    def _request_changed(self, queue: QueueAccount) -> None:
        if queue.name in self.rules:
            self._outdated.add(queue.name)


class Accounts:
    """The jobs and queues of a cluster.

    ``on_withdrawal`` is called after a pod without a node has ended: what it requested may now be deserved by others.
    """

    def __init__(self, cluster: Cluster, shares: Shares, on_withdrawal: Callable[[], None] = lambda: None) -> None:
        self._on_withdrawal = on_withdrawal
        self._priority_classes = cluster.catalog(PriorityClass)
        self._pod_groups = [cluster.catalog(kind) for kind in (PodGroup, kube_batch.PodGroup)]
        self.jobs: dict[JobKey, Job] = {}
        self.queues = QueueAccounts(cluster, shares)
        self._job_of: dict[str, Job] = {}
        self._placed_in: dict[str, Job] = {}
        #: The pods that are known because they are on nodes, and have not been observed.
        self._unobserved: set[str] = set()
        self._priorities_version = -1
        #: Incremented when pods end or leave their nodes, and when queues, pod groups or nodes change: only then may
        #: a job be admitted that was not before.
        self.freed = 0
        #: Incremented when a pod is new, has changed or ended, or came to or left a node, and when a job is admitted.
        self.changes = 0
        #: Incremented when queues change, or what nodes have together.
        self.rules_changes = 0
        #: The PodGroups that are new or have changed, or a pod of which has, for the reader to take.
        self.changed: set[JobKey] = set()
        #: The PodGroups of terminating pods, which belong to no job any more, by the uid of the pod.
        self._left: dict[str, JobKey] = {}
        #: The pods of PodGroups that have ended, for the reader to take.
        self.ended: deque[EndedPod] = deque(maxlen=_MOST_ENDED)
        for catalog in self._pod_groups:
            catalog.subscribe(self._pod_group_changed)
        cluster.listen_to_pods(self)
        cluster.listen_to_placements(self)

    # -- reading -----------------------------------------------------------------------------------------------------

    def job(self, pod: PodInfo) -> Job | None:
        """The job of a pod; None for a pod that is no concern of Volcano's."""
        found = self._job_of.get(pod.uid)
        if found is None and (key := _job_key(pod)) is not None:
            found = self.jobs.get(key)
        return found

    def is_of_job(self, pod: PodInfo) -> bool:
        """Whether a pod names a job, be it terminating."""
        return _job_key(pod) is not None

    def placed(self, uid: str) -> tuple[PodInfo, Job] | None:
        """A pod that counts as allocated, with its job; None if it does not."""
        job = self._placed_in.get(uid)
        return None if job is None else (job.placed[uid], job)

    def update(self) -> None:
        """Bring the rules of queues, the priorities and the total up to date."""
        if self.queues.update():
            self.freed += 1
            self.rules_changes += 1
        if self._priorities_version != self._priority_classes.version:
            self._priorities_version = self._priority_classes.version
            for job in self.jobs.values():
                self._set_priority(job)

    def admit(self, job: Job) -> None:
        """Count a job as admitted."""
        self._note_change(job.key)
        self.queues.admit(job)

    def refresh(self) -> None:
        """Bring the shares up to date, too."""
        self.update()
        self.queues.divide()

    # -- pods --------------------------------------------------------------------------------------------------------

    def pod_observed(self, info: PodInfo) -> None:
        """A pod is new, or has changed."""
        known, key = self._job_of.get(info.uid), _job_key(info)
        self._note_change(key)
        if known is None and key is None:
            return
        if known is not None:
            self._note_change(known.key)
        if info.terminating and key is not None:
            self._left[info.uid] = key
        if info.terminating or info.spec.scheduling_gates or (known is not None and known.key != key):
            self._end(info.uid)
        if not info.terminating and not info.spec.scheduling_gates:
            self._unobserved.discard(info.uid)
            self._request(info)

    def pod_ended(self, uid: str) -> None:
        """A pod has finished or was deleted."""
        job = self._job_of.get(uid)
        self._note_change(self._left.pop(uid, None) if job is None else job.key)
        if job is not None and not job.key.uid:
            self.ended.append(EndedPod(job.key, job.pods[uid].name, uid))
        self._end(uid)

    def _note_change(self, key: JobKey | None) -> None:
        """Note that a pod has changed, of a job or of none."""
        self.changes += 1
        if key is not None and not key.uid:
            self.changed.add(key)

    def _end(self, uid: str) -> None:
        """A pod is not requested any more."""
        self._unobserved.discard(uid)
        if self._withdraw(uid) and uid not in self._placed_in:
            self._on_withdrawal()

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod on a node."""
        self._note_change(_job_key(info))
        if info.terminating or _job_key(info) is None:
            return
        if info.uid not in self._job_of:
            self._unobserved.add(info.uid)
        job = self._request(info)
        job.placed[info.uid] = info
        _count(job.placed_tasks, _task(info), +1)
        self._placed_in[info.uid] = job
        self.queues.add(job, "allocated", requests_of(info), +1)
        if not job.is_admitted:
            self.admit(job)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod on a node any more."""
        self._note_change(_job_key(info))
        job = self._placed_in.pop(info.uid, None)
        if job is None:
            return
        placed = job.placed.pop(info.uid)
        _count(job.placed_tasks, _task(placed), -1)
        self.queues.add(job, "allocated", requests_of(placed), -1)
        self.freed += 1
        if info.uid in self._unobserved:
            self._unobserved.remove(info.uid)
            self._withdraw(info.uid)
        self._drop_if_unused(job)

    def _request(self, info: PodInfo) -> Job:
        key = _job_key(info)
        assert key is not None
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(key)
            self._describe(job, info)
        counted = job.pods.get(info.uid)
        if counted is None or counted.requests != info.requests:
            if counted is not None:
                self.queues.add(job, "requested", requests_of(counted), -1)
            self.queues.add(job, "requested", requests_of(info), +1)
        if counted is not None:
            _count(job.tasks, _task(counted), -1)
        _count(job.tasks, _task(info), +1)
        job.pods[info.uid] = info
        self._job_of[info.uid] = job
        self._set_priority(job)
        return job

    def _withdraw(self, uid: str) -> bool:
        """Do not count a pod as requested any more; whether it was."""
        job = self._job_of.pop(uid, None)
        if job is None:
            return False
        withdrawn = job.pods.pop(uid)
        _count(job.tasks, _task(withdrawn), -1)
        self.queues.add(job, "requested", requests_of(withdrawn), -1)
        self.freed += 1
        self._drop_if_unused(job)
        return True

    def _drop_if_unused(self, job: Job) -> None:
        if not job.pods and not job.placed and self.jobs.pop(job.key, None) is not None:
            self.queues.leave(job)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _pod_group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        group = after or before
        assert group is not None
        key = JobKey(group.metadata.namespace, group.metadata.name)
        self.changed.add(key)
        job = self.jobs.get(key)
        if job is not None and before is not None and after is not None and before.spec == after.spec:
            job.waiting_time = _waiting_time(after)
            return  # its status was written
        self.freed += 1
        if job is not None:
            self.queues.leave(job)
            if after is None and not job.pods and not job.placed:
                del self.jobs[key]
            else:
                self._describe(job, None)
        elif after is not None and after.status.phase in _WAITING:
            # Pods may be created only after it is admitted.
            job = self.jobs[key] = Job(key)
            self._describe(job, None)

    def _describe(self, job: Job, pod: PodInfo | None) -> None:
        """Read what the pod group says of a job, or the pod if it is the whole job."""
        key = job.key
        job.problem, job.min_resources, job.priority_class = "", None, ""
        job.min_task_member, job.waiting_time = {}, None
        if key.uid:
            assert pod is not None
            job.queue, job.min_member = _queue_annotation(pod), 1
            job.created = pod.metadata.creation_timestamp or ""
        else:
            found = (catalog.get(key.namespace, key.name) for catalog in self._pod_groups)
            group = next((each for each in found if each is not None), None)
            job.queue = "" if group is None else group.spec.queue or DEFAULT_QUEUE
            if group is not None:
                job.is_admitted = job.is_admitted or group.status.phase in _ADMITTED
                job.min_member, job.priority_class = group.spec.min_member, group.spec.priority_class_name
                job.waiting_time = _waiting_time(group)
                job.min_task_member = group.spec.min_task_member
                job.created = group.metadata.creation_timestamp or ""
                try:
                    if group.spec.min_resources:
                        job.min_resources = amounts_of(group.spec.min_resources, "spec.minResources")
                except InvalidQuantity as error:
                    job.problem = f"PodGroup {key}: {error}"
        self._set_priority(job)
        self.queues.join(job)

    def _set_priority(self, job: Job) -> None:
        """The priority of the class that the pod group names, else of the first of its pods."""
        if job.priority_class:
            found = self._priority_classes.get("", job.priority_class)
            job.priority = 0 if found is None else found.value
        elif job.pods:
            job.priority = next(iter(job.pods.values())).priority


def lacking(request: Amounts, used: Amounts, limits: Mapping[str, float]) -> list[str]:
    """The resources of which a request, beside what is used, would exceed the limits."""
    return [
        name
        for name, amount in request.items()
        if amount and used.get(name, 0) + amount > limits.get(name, 0) + TOLERANCE
    ]


def requests_of(pod: PodInfo) -> Amounts:
    """What a pod requests, a pod included."""
    return {**pod.requests, PODS: 1}


def _count(counter: Counter[str], amounts: Amounts, sign: int) -> None:
    """Add amounts to a counter, or subtract them; what is 0 then is left out."""
    for name, amount in amounts.items():
        counter[name] += sign * amount
        if not counter[name]:
            del counter[name]


def _waiting_time(group: PodGroup) -> float | None:
    """The annotation of a pod group that the plugin sla reads; as in Volcano, nonsense is ignored."""
    annotations = group.metadata.annotations
    return next((seconds for key in _WAITING_TIMES if (seconds := waiting_time(annotations.get(key)))), None)


def _task(pod: PodInfo) -> Amounts:
    """The task of a pod, counted once; nothing for a pod without."""
    name = task_of(pod.pod)
    return {name: 1} if name else {}


def _job_key(pod: PodInfo) -> JobKey | None:
    if group := group_of(pod.pod):
        return JobKey(pod.namespace, group)
    if _queue_annotation(pod):
        return JobKey(pod.namespace, pod.name, pod.uid)
    return None


def _queue_annotation(pod: PodInfo) -> str:
    return pod.metadata.annotations.get(_QUEUE_ANNOTATION, "")
