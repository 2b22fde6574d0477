"""Kueue's queues for offline commands: read from a dump, fed with jobs by simulations, asked why a job waits.

Admission checks of Workloads in the dump are as the dump says; those of new jobs are assumed to be ready at once. A
running Workload ends when its annotation ``kubestow.dev/duration`` or its ``maximumExecutionTimeSeconds`` says so,
counted from its admission.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kubestow.api.core import Namespace, Node, Pod
from kubestow.api.custom import CustomObject
from kubestow.api.formats.duration import Duration
from kubestow.api.meta import APIObject, convert, decode
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.engine.input.kinds import with_identity
from kubestow.engine.job_admission import (
    JobStart,
    JobState,
    JobStop,
    Owner,
    QueueResources,
    QuotaChange,
    RunningJob,
)
from kubestow.errors import InputError, InvalidObject
from kubestow.reports.model import counted
from kubestow_contrib.kueue.admission import Admission, KueueObjects, evicted
from kubestow_contrib.kueue.admission_cycle import AdmissionSettings, Entry, Outcome, obstacle
from kubestow_contrib.kueue.explanation import Trial, assignment_now, position_of, reasons_text, why_waiting
from kubestow_contrib.kueue.fair_sharing import STRATEGIES
from kubestow_contrib.kueue.flavor_assignment import Mode
from kubestow_contrib.kueue.forecast import KueueForecast
from kubestow_contrib.kueue.jobs import owner_of, pods_of, queue_of, workload_of
from kubestow_contrib.kueue.objects import (
    ADMITTED,
    FINISHED,
    GROUP,
    VERSIONS,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kubestow_contrib.kueue.pending_workloads import queues_of_tree
from kubestow_contrib.kueue.remedies import remedies_of
from kubestow_contrib.kueue.workload_info import WorkloadInfo, seconds_of

T = TypeVar("T", bound=CustomObject)

_KINDS: tuple[type[CustomObject], ...] = (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
_API_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)
_DURATION = "kubestow.dev/duration"
_HOSTNAME = "kubernetes.io/hostname"
#: Between the moment that quota becomes free and a further attempt of what waits for it, in seconds, as in Kueue.
_RETRY_PERIOD = 1.0
#: So many jobs end at most until an expected start is given up.
_MOST_ENDS = 10_000


class _FairSharing(APIObject, frozen=True):
    preemption_strategies: list[str] = []
    enable: bool = True


class _AdmissionFairSharing(APIObject, frozen=True):
    usage_half_life_time: str = "0s"
    usage_sampling_interval: str = "5m"
    resource_weights: dict[str, float] = {}


class KueueConfiguration(APIObject, frozen=True):
    """Kueue's Configuration (``config.kueue.x-k8s.io``), as far as admission depends on it."""

    fair_sharing: _FairSharing | None = None
    admission_fair_sharing: _AdmissionFairSharing | None = None

    def settings(self) -> AdmissionSettings:
        """What it says. Raises InvalidObject."""
        fair, by_usage = self.fair_sharing, self.admission_fair_sharing
        strategies = None
        if fair is not None and fair.enable:
            strategies = tuple(fair.preemption_strategies)
            for index, name in enumerate(strategies):
                if name not in STRATEGIES:
                    known = " or ".join(STRATEGIES)
                    path = f"fairSharing.preemptionStrategies[{index}]"
                    raise InvalidObject(f"expected {known}, got {name!r}", path=path)
        if by_usage is None:
            return AdmissionSettings(strategies)
        times = []
        for field, text in (
            ("usageHalfLifeTime", by_usage.usage_half_life_time),
            ("usageSamplingInterval", by_usage.usage_sampling_interval),
        ):
            try:
                times.append(Duration.parse(text).seconds)
            except ValueError as error:
                raise InvalidObject(str(error), path=f"admissionFairSharing.{field}") from None
        return AdmissionSettings(
            strategies,
            usage_fair_sharing=True,
            half_life=times[0],
            sampling_interval=times[1],
            resource_weights=by_usage.resource_weights,
        )


def read_settings(path: str | Path) -> AdmissionSettings:
    """Kueue's configuration in a file: a Configuration, or the ConfigMap that contains one. Raises InputError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        document: Any = yaml.safe_load(text)
        if isinstance(document, dict) and document.get("kind") == "ConfigMap":
            document = yaml.safe_load((document.get("data") or {}).get("controller_manager_config.yaml") or "{}")
        return convert(KueueConfiguration, document or {}).settings()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8: {error.reason}") from None
    except yaml.YAMLError as error:
        raise InputError(str(path), f"is not YAML: {' '.join(str(error).split())}") from None
    except InvalidObject as error:
        raise InputError(str(path), str(error)) from None


class Kueue:
    """Reads Kueue's queues of a cluster."""

    @property
    def resources(self) -> QueueResources:
        """All kinds of Kueue that decide about admission."""
        return QueueResources(GROUP, VERSIONS, [kind.resource.partition(".")[0] for kind in _KINDS])

    def takes(self, job: dict[str, Any]) -> bool:
        """Whether it is a Job with the label of a queue."""
        return bool(queue_of(job))

    def open(
        self,
        cluster: ClusterObjects,
        *,
        further: Sequence[SourceObject] = (),
        configuration: str | Path | None = None,
        now: float,
    ) -> KueueQueues | None:
        """The queues of a cluster; None if it has no ClusterQueue. Raises InputError."""
        found = _read((*cluster.custom_resources, *further))
        if not found[ClusterQueue]:
            return None
        settings = AdmissionSettings() if configuration is None else read_settings(configuration)
        return KueueQueues(cluster, found, settings, now)

    def with_quotas(self, sources: Sequence[SourceObject], changes: Iterable[QuotaChange]) -> list[SourceObject]:
        """The same objects with other nominal quotas of ClusterQueues. Raises InputError."""
        found = list(sources)
        for change in changes:
            for position, source in enumerate(found):
                if _is_cluster_queue(source, change.queue):
                    found[position] = replace(source, raw=msgspec.json.encode(_with_quota(source.manifest, change)))
                    break
            else:
                raise InputError(f"ClusterQueue {change.queue}", "no such ClusterQueue in the cluster")
        return found


KUEUE = Kueue()


def _is_cluster_queue(source: SourceObject, name: str) -> bool:
    if source.kind != ClusterQueue.__name__ or source.api_version not in _API_VERSIONS:
        return False
    return (source.manifest.get("metadata") or {}).get("name") == name


def _with_quota(manifest: dict[str, Any], change: QuotaChange) -> dict[str, Any]:
    """A ClusterQueue with another nominal quota. Raises InputError if it has none of this flavor and resource."""
    for group in (manifest.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                if (flavor.get("name"), resource.get("name")) == (change.flavor, change.resource):
                    resource["nominalQuota"] = change.amount
                    return manifest
    problem = f"has no quota of {change.resource} in flavor {change.flavor}"
    raise InputError(f"ClusterQueue {change.queue}", problem)


def _read(sources: Iterable[SourceObject]) -> dict[type[CustomObject], dict[tuple[str, str], Any]]:
    """Kueue's objects by kind, namespace and name. Raises InputError for one that cannot be decoded."""
    kinds = {kind.__name__: kind for kind in _KINDS}
    found: dict[type[CustomObject], dict[tuple[str, str], Any]] = {kind: {} for kind in _KINDS}
    for source in sources:
        kind = kinds.get(source.kind)
        if kind is None or source.api_version not in _API_VERSIONS:
            continue
        try:
            obj = decode(kind, source.raw)
        except InvalidObject as error:
            raise InputError(source.subject, f"invalid {source.kind}: {error}", place=source.place) from None
        namespace = (obj.metadata.namespace or "default") if kind.is_namespaced else ""
        obj = with_identity(obj, source.kind, namespace)
        found[kind].setdefault((namespace, obj.metadata.name), obj)
    return found


class KueueQueues:
    """The queues of one cluster, as simulations and explanations use them."""

    def __init__(
        self,
        cluster: ClusterObjects,
        found: Mapping[type[CustomObject], Mapping[tuple[str, str], Any]],
        settings: AdmissionSettings,
        now: float,
    ) -> None:
        self._cluster, self._found, self._settings, self._now = cluster, found, settings, now
        self._objects = KueueObjects(
            cluster_queues=list(found[ClusterQueue].values()),
            cohorts=list(found[Cohort].values()),
            flavors=list(found[ResourceFlavor].values()),
            local_queues=list(found[LocalQueue].values()),
            workloads=[one for one in found[Workload].values() if not one.is_in(FINISHED)],
            checks=list(found[AdmissionCheck].values()) or None,
            priority_classes=list(found[WorkloadPriorityClass].values()),
            topologies=list(found[Topology].values()),
            nodes=[node for node in cluster.nodes if _is_ready(node)],
        )
        self._objects.pods = _pods_without_topology(cluster.pods, self._objects.workloads)
        self._namespaces = {
            obj.metadata.name: obj.metadata.labels for obj in cluster.objects if isinstance(obj, Namespace)
        }
        for local in (*self._objects.local_queues, *self._objects.workloads):
            self._know_namespace(local.metadata.namespace)
        self._classes = {one.metadata.name: one for one in self._objects.priority_classes}
        self._admission = self._admission_of(self._objects)
        #: The Workloads with quota, and the Jobs that Workloads were made of, by key.
        self._with_quota: dict[str, WorkloadInfo] = {}
        for queue in self._admission.state.cluster_queues.values():
            self._with_quota |= queue.workloads
        self._jobs: dict[str, dict[str, Any]] = {}
        self._retries: list[tuple[float, WorkloadInfo]] = []
        self._new_checks = 0

    def _know_namespace(self, name: str) -> None:
        self._namespaces.setdefault(name, {"kubernetes.io/metadata.name": name})

    def _admission_of(self, objects: KueueObjects) -> Admission:
        try:
            return Admission(objects, self._namespaces, self._settings, self._now)
        except InvalidObject as error:
            raise InputError("Kueue", str(error)) from None
        except IndexError:
            raise InputError("Kueue", "a topology assignment of a Workload lacks values or numbers of pods") from None

    def _settled(self, workloads: Iterable[Workload], queues: Container[str]) -> Admission:
        """Some of the ClusterQueues, with Workloads, after all that can be admitted now."""
        kept = [one for one in self._objects.cluster_queues if one.metadata.name in queues]
        admission = self._admission_of(replace(self._objects, cluster_queues=kept, workloads=list(workloads)))
        for _ in admission.settle(self._now):
            pass
        return admission

    # -- AdmissionQueues -----------------------------------------------------------------------------------------------

    @property
    def remarks(self) -> Sequence[str]:
        """What was assumed."""
        if not self._new_checks:
            return ()
        return (f"{counted(self._new_checks, 'job')} had admission checks, which were assumed to be ready at once",)

    def submit(self, job: dict[str, Any], now: float) -> str:
        """Add a Job. Raises InvalidObject."""
        workload = workload_of(job, self._cluster.admission, self._classes, now)
        self._know_namespace(workload.metadata.namespace)
        info = WorkloadInfo.of(workload)
        self._jobs[info.key] = job
        self._admission.put(info, now)
        return info.key

    def decide(self, now: float) -> list[JobStart | JobStop]:
        """Admit and preempt until nothing changes."""
        due = [info for time, info in self._retries if time <= now]
        self._retries = [(time, info) for time, info in self._retries if time > now]
        for info in due:
            self._admission.retry(info, now)
        changes: list[JobStart | JobStop] = []
        for entry in self._admission.settle(now):
            changes += self._changes(entry, now)
        return changes

    def _changes(self, entry: Entry, now: float) -> Iterator[JobStart | JobStop]:
        if entry.outcome is Outcome.ADMITTED:
            info = entry.info
            self._with_quota[info.key] = info
            queue = self._admission.state.cluster_queues[info.cluster_queue]
            self._new_checks += bool(queue.checks)
            pods = tuple(pods_of(info, self._jobs.get(info.key), self._admission.state.flavors))
            yield JobStart(info.key, info.cluster_queue, pods, _flavors_of(info))
            return
        for target in entry.targets:
            self._retries.append((now + _RETRY_PERIOD, target.info))
            yield JobStop(target.info.key)

    def end(self, job: str, now: float) -> None:
        """Free the quota of a job that has ended."""
        info = self._with_quota.pop(job)
        self._jobs.pop(job, None)
        self._admission.release(info, now)
        self._retries.append((now + _RETRY_PERIOD, info))

    def withdraw(self, nodes: Collection[str], now: float) -> list[str]:
        """Have Workloads with a topology assignment on nodes that are gone lose their quota and wait again."""
        lost = [info for info in self._with_quota.values() if self._has_lost_domains(info, nodes)]
        for info in lost:
            del self._with_quota[info.key]
            self._admission.release(info, now)
        for info in lost:
            self._admission.put(evicted(info), now)
        return [info.key for info in lost]

    def _has_lost_domains(self, info: WorkloadInfo, nodes: Collection[str]) -> bool:
        """Whether it was assigned one of some nodes, or a domain with no other node than these."""
        for pod_set in info.pod_sets:
            assigned = pod_set.topology
            for domain in () if assigned is None else assigned.domains:
                labels = dict(zip(assigned.levels, domain.values, strict=True)) if assigned is not None else {}
                if labels.get(_HOSTNAME) in nodes or not any(
                    labels.items() <= node.metadata.labels.items()
                    for node in self._objects.nodes
                    if node.metadata.name not in nodes
                ):
                    return True
        return False

    def next_decision(self) -> float | None:
        """When what waits is tried again after quota became free."""
        return min((time for time, _ in self._retries), default=None)

    def running(self) -> list[RunningJob]:
        """The Workloads that are admitted in the dump."""
        found = []
        for workload in self._objects.workloads:
            if workload.is_in(ADMITTED):
                key = f"{workload.metadata.namespace}/{workload.metadata.name}"
                found.append(RunningJob(key, owner_of(workload), _end_of(workload)))
        return found

    def states(self) -> list[JobState]:
        """All jobs: those with quota, then those that wait, in the order of their queues."""
        found = []
        for name, queue in self._admission.state.cluster_queues.items():
            for info in queue.workloads.values():
                waits_for = [one.name for one in info.workload.status.admission_checks if one.state != "Ready"]
                message = f"waits for admission check {', '.join(waits_for)}" if waits_for else ""
                found.append(self._state(info, name, not waits_for, _flavors_of(info), message))
        for name, pending in self._admission.pending.items():
            found += [self._state(info, name, False, (), self._why_now(info)) for info in pending.waiting()]
        found += [self._state(info, "", False, (), problem) for info, problem in self._admission.unqueued.values()]
        return found

    def _state(
        self, info: WorkloadInfo, queue: str, is_admitted: bool, flavors: Sequence[str], message: str
    ) -> JobState:
        pods = sum(one.count for one in info.pod_sets)
        return JobState(info.key, owner_of(info.workload), queue, pods, is_admitted, flavors, message)

    def _why_now(self, info: WorkloadInfo) -> str:
        if found := obstacle(self._admission.state, self._namespaces, info):
            return found.problem
        queue = self._admission.state.cluster_queues[info.cluster_queue]
        assignment = assignment_now(self._admission, info)
        return "others are before it" if assignment.mode is Mode.FIT else reasons_text(assignment.reasons, queue)

    def why(self, owner: Owner) -> list[str]:
        """Why the Workload of a job waits or since when it runs; none if it has no Workload."""
        workload = self._workload_of(owner)
        if workload is None:
            return []
        name = workload.metadata.name
        info = WorkloadInfo.of(workload)
        if info.has_quota:
            flavors = _flavors_of(info)
            line = f"Workload {name} has quota in ClusterQueue {info.cluster_queue}, flavor {', '.join(flavors) or '-'}"
            return [line, *_checks_of(workload)]
        lines = [f"Workload {name} in LocalQueue {workload.spec.queue_name}:"]
        if problem := self._problem(workload):
            return [*lines, f"not admitted: {problem}"]
        trial = self._trial(workload)
        if trial is None:
            return [*lines, "it is admitted in the next cycle"]
        remedies = [f"it would be admitted now with {each.change}, on {each.where}" for each in remedies_of(trial)]
        return [*lines, *why_waiting(trial), *remedies]

    def forecast(self, owner: Owner) -> KueueForecast | None:
        """When the Workload of a job is admitted; None if it has none."""
        workload = self._workload_of(owner)
        if workload is None:
            return None
        info, time = WorkloadInfo.of(workload), datetime.fromtimestamp(self._now, UTC)
        info.cluster_queue = info.cluster_queue or self._admission.cluster_queue_of(workload)
        pods = sum(one.count for one in info.pod_sets)
        answer = KueueForecast(str(owner_of(workload).name), info.cluster_queue, "Admitted", time, pods)
        if info.has_quota:
            checks = tuple(_checks_of(workload))
            return replace(answer, state="QuotaReserved", reasons=checks) if checks else answer
        if problem := self._problem(workload):
            return replace(answer, state="Inadmissible", reasons=(f"not admitted: {problem}",))
        trial = self._trial(workload)
        if trial is None:
            return replace(answer, state="Startable", start=time)
        position, waiting = position_of(trial.admission, trial.info)
        start = self._expected_start(info.key)
        return replace(
            answer,
            state="Waiting",
            position=position,
            waiting=len(waiting),
            reasons=tuple(why_waiting(trial)),
            start=None if start is None else datetime.fromtimestamp(start, UTC),
            remedies=tuple(remedies_of(trial)),
        )

    def _workload_of(self, owner: Owner) -> Workload | None:
        return next((one for one in self._objects.workloads if _is_of(one, owner)), None)

    def _problem(self, workload: Workload) -> str:
        """Why a Workload is in no queue; "" if it is in one."""
        key = WorkloadInfo.of(workload).key
        return self._admission.unqueued[key][1] if key in self._admission.unqueued else ""

    def _trial(self, workload: Workload) -> Trial | None:
        """A Workload that waits once all that can be admitted has been; None if it is among that."""
        info, name = WorkloadInfo.of(workload), self._admission.cluster_queue_of(workload)
        # Quota is lent within one tree of cohorts only.
        tree = set(queues_of_tree(self._admission.state.cluster_queues[name]))
        own = [one for one in self._objects.workloads if self._queue_of(one) in tree]
        admission = self._settled(own, tree)
        info.cluster_queue = name
        if info.key in admission.state.cluster_queues[name].workloads:
            return None
        settled = {one.key: one.workload for one in _all_of(admission)}
        ends = {one.job: one.ends for one in self.running() if one.ends is not None}
        return Trial(admission, info, settled, lambda workloads: self._settled(workloads, tree), ends)

    def _expected_start(self, key: str) -> float | None:
        """When a Workload is admitted if all run as long as is known of them, and no further ones come; None if it is
        not known."""
        queues = self._anew()
        ends = [(one.ends, one.job) for one in queues.running() if one.ends is not None]
        heapq.heapify(ends)
        workloads = {WorkloadInfo.of(one).key: one for one in self._objects.workloads}
        now = self._now
        for _ in range(_MOST_ENDS):
            due: float | None = now
            while due is not None:
                for change in queues.decide(due):
                    if isinstance(change, JobStop):
                        ends = [each for each in ends if each[1] != change.job]
                        heapq.heapify(ends)
                    elif change.job == key:
                        return due
                    elif (seconds := _run_time_of(workloads[change.job])) is not None:
                        heapq.heappush(ends, (due + seconds, change.job))
                due = queues.next_decision()
                if due is not None and ends and ends[0][0] < due:
                    break
            if not ends:
                return None
            end, ended = heapq.heappop(ends)
            now = max(now, end)
            queues.end(ended, now)
        return None

    def _anew(self) -> KueueQueues:
        """The same queues as they were when they were read."""
        return KueueQueues(self._cluster, self._found, self._settings, self._now)

    def _queue_of(self, workload: Workload) -> str:
        admission = workload.status.admission
        return self._admission.cluster_queue_of(workload) if admission is None else admission.cluster_queue


def _is_ready(node: Node) -> bool:
    """Whether a node is ready, as far as it says so."""
    return all(one.status == "True" for one in node.status.conditions if one.type == "Ready")


def _pods_without_topology(pods: Iterable[Pod], workloads: Iterable[Workload]) -> list[Pod]:
    """The pods on nodes that are not of Workloads with a topology assignment, whose usage that assignment says."""
    placed = set()
    for workload in workloads:
        admission = workload.status.admission
        if admission is not None and any(one.topology_assignment for one in admission.pod_set_assignments):
            placed.add(owner_of(workload))
    return [pod for pod in pods if pod.spec.node_name and _owner_of_pod(pod) not in placed]


def _owner_of_pod(pod: Pod) -> Owner | None:
    controller = pod.metadata.controller
    return None if controller is None else Owner(controller.kind, pod.metadata.namespace, controller.name)


def _is_of(workload: Workload, owner: Owner) -> bool:
    """Whether a Workload is that of a job, or is meant itself."""
    own = Owner("Workload", workload.metadata.namespace, workload.metadata.name)
    return any(
        owner[1:] == one[1:] and owner.kind.lower() in (one.kind.lower(), f"{one.kind.lower()}s")
        for one in (owner_of(workload), own)
    )


def _all_of(admission: Admission) -> Iterator[WorkloadInfo]:
    """The Workloads with quota, and those that wait."""
    for queue in admission.state.cluster_queues.values():
        yield from queue.workloads.values()
    for pending in admission.pending.values():
        yield from pending.waiting()


def _checks_of(workload: Workload) -> Iterator[str]:
    """The admission checks that a Workload with quota waits for, in lines."""
    for one in workload.status.admission_checks:
        if one.state != "Ready":
            yield f"it waits for admission check {one.name} ({one.state}) {one.message}".rstrip()


def _flavors_of(info: WorkloadInfo) -> list[str]:
    return sorted({flavor for one in info.pod_sets for flavor in one.flavors.values()})


def _end_of(workload: Workload) -> float | None:
    """When an admitted Workload ends, in seconds since the epoch; None if nothing says so."""
    admitted = workload.condition(ADMITTED)
    start = seconds_of(admitted.last_transition_time) if admitted is not None else -math.inf
    run_time = _run_time_of(workload)
    return None if math.isinf(start) or run_time is None else start + run_time


def _run_time_of(workload: Workload) -> float | None:
    """For how long a Workload runs once it is admitted, in seconds; None if nothing says so."""
    texts = [workload.metadata.annotations.get(_DURATION)]
    texts += [one.template.metadata.annotations.get(_DURATION) for one in workload.spec.pod_sets]
    for text in filter(None, texts):
        try:
            return Duration.parse(text).seconds
        except ValueError:
            continue
    return workload.spec.maximum_execution_time_seconds
