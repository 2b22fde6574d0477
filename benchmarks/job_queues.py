"""Queues with reservations and backfill, beside other schedulers: simulations of logs of batch jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from cProfile import Profile
from dataclasses import replace
from random import Random
from statistics import mean
from time import process_time
from typing import Any, Literal

import msgspec
import numpy as np

from benchmarks.harness import Rows, chosen
from benchmarks.job_logs import LOG_FORMATS, load_log
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.rules.requests import requests_by_spec
from kubestow.testing import SchedulerHarness, builders, in_virtual_time
from kubestow_contrib.queues.availability import Availability, Demand, Occupation, PodKind
from kubestow_contrib.queues.configuration import BackfillMode, JobQueuesArgs, QueueArgs, read_queues
from kubestow_contrib.queues.jobs import JobRecord
from kubestow_contrib.queues.planning import Policy, RunningJob, Situation, WaitingJob, plan
from kubestow_contrib.queues.queue_report import bounded_slowdown, quantile
from kubestow_contrib.volcano.conversion import to_scheduler_configuration
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import PodOutcome
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.workloads.workload import RUN_TIME

_QUEUES = ("heavy", "a", "b", "c")
_DAY = 86_400.0
#: Two of our rounds of planning are so far apart, in seconds, and pods take so long to start.
_INTERVAL, _START_UP = 30, 5
#: Args of JobQueues, by the name of the policy.
_QUEUES_ARGS: dict[str, dict[str, Any]] = {
    "fifo": {"fairShare": {"enabled": False}, "backfill": {"mode": "none"}},
    "easy": {"fairShare": {"enabled": False}, "backfill": {"mode": "easy"}},
    "conservative": {"fairShare": {"enabled": False}, "backfill": {"mode": "conservative"}},
    "fair": {"backfill": {"mode": "easy"}},
    "decay": {"fairShare": {"usageHalfLife": "24h"}, "backfill": {"mode": "easy"}},
    "decay-bounded": {"fairShare": {"usageHalfLife": "24h"}, "backfill": {"mode": "easy"}, "maxWait": "24h"},
}
#: The plugin of Volcano that divides the cluster, by the name of the policy.
_VOLCANO_SHARES = {"volcano": "proportion", "volcano-capacity": "capacity"}
_POLICIES = (*_QUEUES_ARGS, "kube-scheduler", "gang-scheduling", *_VOLCANO_SHARES)
_GANG_LABEL, _VOLCANO_GROUP = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"
_GPU = "nvidia.com/gpu"
_HOUR = 3_600.0


def job_queues(
    trace: Literal["swf", "philly", "helios", "acme"] = "swf",
    policies: Sequence[str] = (),
    jobs: int = 500,
    nodes: int = 0,
    load: float = 0.9,
    seed: int = 1,
    run_times: Literal["requested", "learned"] = "requested",
    starved: float = 10.0,
) -> Rows:
    """Waits, slowdown, utilisation, starvation and kept reservations of jobs by policy, on a log in a published format.

    The log is generated with the published statistics of its cluster, written in its format, and read by its reader.
    Policies are JobQueues in order, with EASY and conservative backfill, with fair shares, and with decay; those of
    kube-scheduler, which has no queues, pod by pod, and with GangScheduling; and the front end of Volcano with gang,
    drf and either proportion or capacity, with which queues deserve what their weights are of the cluster, and may use
    what is free. The pods of a job work from when all of them have nodes. Users request one to five times the run time,
    or, with ``learned``, say nothing.

    Jobs are starved that wait for more than ``starved`` times the mean. Utilisation is until the last job was
    submitted, without pods that wait for others of their job; these are idle. A reserved start is kept if the job
    starts in the first round after the first one that it got. ``nodes`` of 0 are those of the format.
    """
    log = load_log(trace, jobs, nodes or LOG_FORMATS[trace].nodes, load, seed)
    for name in chosen(_POLICIES, policies):
        began = process_time()
        yield name, _LogRun(*log, name, run_times, seed).figures(starved) | {"s of CPU": process_time() - began}


class _LogRun:
    """A log that a scheduler has run with a policy."""

    def __init__(
        self,
        cluster: ClusterObjects,
        arrivals: Arrivals,
        weights: dict[str, float],
        policy: str,
        run_times: str,
        seed: int,
    ) -> None:
        self._job_of = {arrival.pod.key: _job_of(arrival) for arrival in arrivals.pods}
        self._last = max(arrival.time for arrival in arrivals.pods)
        resource = _GPU if any(_GPU in node.status.allocatable for node in cluster.nodes) else "cpu"
        self._width = {arrival.pod.key: requests_by_spec(arrival.pod)[resource] for arrival in arrivals.pods}
        if policy in _VOLCANO_SHARES:
            whole = sum(int(node.status.allocatable[resource]) for node in cluster.nodes)
            configuration, arrivals = _volcano(policy, arrivals, weights, resource, whole)
        else:
            configuration, arrivals = _scheduler(policy, arrivals, weights, run_times, seed)
        self._result = result = Simulation(
            cluster, arrivals, configuration, options=SimulationOptions(samples=10)
        ).run()
        self._capacity = sum(node.allocatable[resource] for node in result.nodes)
        self._records = list(self._read_records())

    def _read_records(self) -> Iterator[JobRecord]:
        """The jobs that have started and ended: they start when all of their pods have nodes."""
        report = self._result.plugin_reports.get("JobQueues")
        reserved = {} if report is None else {each["job"]: each["reserved"] for each in report.data["ended"]}
        outcomes: dict[str, list[PodOutcome]] = {}
        for outcome in self._result.outcomes:
            outcomes.setdefault(self._job_of[outcome.key], []).append(outcome)
        for name, pods in outcomes.items():
            bound = [pod.bound for pod in pods if pod.bound is not None]
            ended = [pod.ended for pod in pods if pod.ended is not None]
            if len(ended) == len(pods):
                known = reserved.get(f"podgroup/{name}", reserved.get(f"pod/{name}"))
                queue, arrived = name.partition("/")[0], pods[0].arrived
                yield JobRecord(name, queue, len(pods), arrived, max(bound), max(ended), known)

    def figures(self, starved: float) -> dict[str, Any]:
        """What is measured."""
        records = self._records
        waits = [_wait(record) for record in records]
        longest = max(records, key=_wait)
        width = sum(self._width[key] for key, job in self._job_of.items() if job == longest.name)
        [(busiest, _)] = Counter(record.queue for record in records).most_common(1)
        reserved = [record for record in records if record.reserved is not None]
        kept = sum(record.started <= (record.reserved or 0.0) + _INTERVAL + _START_UP for record in reserved)
        working, idle = self._uses()
        return {
            "jobs": len(records),
            "jobs never started": len(set(self._job_of.values())) - len(records),
            "h mean wait": mean(waits) / _HOUR,
            "h p95 wait": quantile(waits, 0.95) / _HOUR,
            "bounded slowdown": mean(map(bounded_slowdown, records)),
            "% utilisation": 100 * working,
            "% idle": 100 * idle,
            "h longest wait": max(waits) / _HOUR,
            "% of the cluster that it needs": 100 * width / self._capacity,
            "jobs starved": sum(wait > starved * mean(waits) for wait in waits),
            "h mean wait, busiest queue": mean(_wait(each) for each in records if each.queue == busiest) / _HOUR,
            "h mean wait, others": mean(_wait(each) for each in records if each.queue != busiest) / _HOUR,
            "jobs reserved": len(reserved),
            "jobs kept": kept,
        }

    def _uses(self) -> tuple[float, float]:
        """The parts of the cluster that worked, and that waited for other pods, until the last job was submitted."""
        starts = {record.name: record.started for record in self._records}
        working = idle = 0.0
        for outcome in self._result.outcomes:
            if outcome.bound is not None:
                width, start = self._width[outcome.key], starts.get(self._job_of[outcome.key], self._last)
                end = self._last if outcome.ended is None else outcome.ended
                bound, start, end = (min(time, self._last) for time in (outcome.bound, start, end))
                idle += width * (start - bound)
                working += width * (end - start)
        whole = self._capacity * self._last
        return working / whole, idle / whole


def _job_of(arrival: Arrival) -> str:
    """The namespace and name of a pod's job."""
    metadata = arrival.pod.metadata
    return f"{metadata.namespace}/{metadata.labels.get(_GANG_LABEL, metadata.name)}"


def _wait(record: JobRecord) -> float:
    return record.started - record.arrived


def _scheduler(
    policy: str, arrivals: Arrivals, weights: dict[str, float], run_times: str, seed: int
) -> tuple[dict[str, Any] | None, Arrivals]:
    """The configuration of a policy, and the pods with what it reads of them."""
    if policy == "kube-scheduler":
        return None, arrivals
    if policy == "gang-scheduling":
        return _profile("GangScheduling"), arrivals
    queues = [{"name": name, "weight": weight} for name, weight in weights.items()]
    args = {"queues": queues, "namespaceQueues": {name: name for name in weights}, "interval": f"{_INTERVAL}s"}
    configuration = _profile("JobQueues", **args, **_QUEUES_ARGS[policy])
    return configuration, replace(arrivals, pods=[_declared(each, run_times, seed) for each in arrivals.pods])


def _profile(plugin: str, **args: Any) -> dict[str, Any]:
    plugins = {"multiPoint": {"enabled": [{"name": plugin}], "disabled": [{"name": "DefaultPreemption"}]}}
    config = [{"name": plugin, "args": args}] if args else []
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins, "pluginConfig": config}],
    }


def _declared(arrival: Arrival, run_times: str, seed: int) -> Arrival:
    """A pod with the run time that its user requested: that of the log, or else one to five times the true one."""
    if run_times == "learned":
        return _annotated(arrival, {}, arrival.pod.metadata.labels)
    if RUN_TIME in arrival.pod.metadata.annotations or arrival.duration is None:
        return arrival
    asked = math.ceil(arrival.duration * Random(f"{seed}/{_job_of(arrival)}").uniform(1, 5))
    return _annotated(arrival, {RUN_TIME: f"{asked}s"}, arrival.pod.metadata.labels)


def _annotated(arrival: Arrival, annotations: dict[str, str], labels: dict[str, str]) -> Arrival:
    pod = arrival.pod
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, labels=labels)
    return replace(arrival, pod=msgspec.structs.replace(pod, metadata=metadata))


def _volcano(
    policy: str, arrivals: Arrivals, weights: dict[str, float], resource: str, whole: int
) -> tuple[dict[str, Any], Arrivals]:
    """The configuration of Volcano, and the same jobs as PodGroups of Volcano, in queues that divide a resource."""
    shares = _VOLCANO_SHARES[policy]
    tiers = [("priority", "gang"), ("drf", "predicates", shares, "nodeorder")]
    configuration = to_scheduler_configuration(
        {
            "actions": "enqueue, allocate, backfill",
            "schedulerName": "default-scheduler",
            "tiers": [{"plugins": [{"name": name} for name in tier]} for tier in tiers],
        }
    )
    objects = []
    for name, weight in weights.items():
        spec: dict[str, Any] = {"weight": round(weight)}
        if shares == "capacity":
            spec["deserved"] = {resource: str(max(1, round(whole * weight / sum(weights.values()))))}
        objects.append(_volcano_object("Queue", {"name": name}, spec))
    sizes = Counter(map(_job_of, arrivals.pods))
    for job, size in sizes.items():
        namespace, _, name = job.partition("/")
        metadata = {"namespace": namespace, "name": name}
        objects.append(_volcano_object("PodGroup", metadata, {"queue": namespace, "minMember": size}))
    pods = [_annotated(each, {_VOLCANO_GROUP: _job_of(each).partition("/")[2]}, {}) for each in arrivals.pods]
    return configuration, replace(arrivals, pods=pods, custom_resources=objects)


def _volcano_object(kind: str, metadata: dict[str, str], spec: dict[str, Any]) -> SourceObject:
    version = "scheduling.volcano.sh/v1beta1"
    manifest = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    return SourceObject(version, kind, msgspec.json.encode(manifest), metadata["name"], "log")


def queue_planning(nodes: int = 5_000, waiting: int = 1_000, running: int = 1_000, seed: int = 1) -> Rows:
    """What one round of planning costs in a full cluster: the CPU time with each mode of backfill.

    Jobs have 1 to 32 pods of one to eight of the eight GPUs of a node, which are all in use.
    """
    random = Random(seed)
    queues = read_queues(JobQueuesArgs(queues=[QueueArgs(name) for name in _QUEUES]))
    free = np.full((nodes, 2), [8, 110], np.int64)
    everywhere = np.ones(nodes, np.bool_)

    def demand() -> Demand:
        return Demand([PodKind(random.randint(1, 32), np.array([random.choice((1, 2, 4, 8)), 1]), everywhere)])

    started = []
    for number in range(running):
        needed, end = demand(), random.uniform(60, 2 * _DAY)
        placement = Availability(0, free, np.zeros((0, 2), np.int64)).at(0, needed, end)
        if placement is None:
            break
        for rows, amounts in placement.amounts(needed):
            free[rows] -= amounts
        started.append(RunningJob(f"r{number}", random.choice(_QUEUES), 0, [Occupation(needed, placement, end)]))
    pending = [
        WaitingJob(f"w{number}", random.choice(_QUEUES), 0, number, demand(), random.uniform(60, _DAY))
        for number in range(waiting)
    ]
    free[:, 0] = 0  # what is left is in use otherwise
    situation = Situation(0, ["gpu", "pods"], {"gpu": 8.0 * nodes}, free, queues, pending, started)
    modes: tuple[BackfillMode, ...] = ("none", "easy", "conservative")
    for mode in modes:
        began = process_time()
        made = plan(situation, Policy(mode=mode))
        reserved = sum(delay.reservation is not None for delay in made.delays.values())
        yield mode, {"s of CPU": process_time() - began, "jobs running": len(started), "reservations": reserved}


def without_queues(nodes: int = 200, pods: int = 1_500) -> Rows:
    """Python calls for each pod of a scheduler that enables no queue, and those in contributed plugins."""
    profiler = Profile()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.settle()
        made = builders.pods(pods, cpu="100m")
        profiler.enable()
        for pod in made:
            harness.cluster.put(pod)
        await harness.settle()
        profiler.disable()

    in_virtual_time(scenario, *(builders.node(f"n{n:03}", cpu="64", memory="256Gi") for n in range(nodes)))
    profiler.create_stats()
    calls = {place: found[1] for place, found in profiler.stats.items()}
    contributed = sum(count for (file, _, _), count in calls.items() if "kubestow_contrib" in file)
    yield "no queues", {"calls/pod": sum(calls.values()) / pods, "calls of contrib": contributed}
