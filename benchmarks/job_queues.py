"""Queues with reservations and backfill, on a generated log of batch jobs, by simulation of the whole scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from cProfile import Profile
from dataclasses import dataclass
from random import Random
from statistics import mean
from time import process_time
from typing import Any

import numpy as np

from benchmarks.harness import Rows, chosen
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.testing import SchedulerHarness, builders, in_virtual_time
from kubestow_contrib.queues.availability import Availability, Demand, Occupation, PodKind
from kubestow_contrib.queues.configuration import BackfillMode, JobQueuesArgs, QueueArgs, read_queues
from kubestow_contrib.queues.jobs import JobRecord
from kubestow_contrib.queues.planning import Policy, RunningJob, Situation, WaitingJob, plan
from kubestow_contrib.queues.queue_report import bounded_slowdown, quantile
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

#: The policies that are compared: args of the plugin.
_POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {"fairShare": {"enabled": False}, "backfill": {"mode": "none"}},
    "easy": {"fairShare": {"enabled": False}, "backfill": {"mode": "easy"}},
    "conservative": {"fairShare": {"enabled": False}, "backfill": {"mode": "conservative"}},
    "fair": {"backfill": {"mode": "easy"}},
    "decay": {"fairShare": {"usageHalfLife": "24h"}, "backfill": {"mode": "easy"}},
    "decay-bounded": {"fairShare": {"usageHalfLife": "24h"}, "backfill": {"mode": "easy"}, "maxWait": "24h"},
}
_QUEUES = ("heavy", "a", "b", "c")
_DAY = 86_400.0
#: Between two rounds of planning, in seconds.
_INTERVAL = 30


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job as in the Standard Workload Format: submit time, processors, run time, requested time, and its queue."""

    number: int
    submitted: float
    processors: int
    run_time: float
    requested_time: float
    queue: str


def generate_log(jobs: int, processors: int, load: float, seed: int) -> Iterator[BatchJob]:
    """Jobs by the statistics that Lublin and Feitelson published (JPDC 63, 2003), at a given load of the machine.

    A quarter of the jobs are serial, most others on powers of two by a two-stage uniform distribution; run times are
    hyper-gamma in their logarithm, and longer for wide jobs. Arrivals are exponential, and users ask for one to five
    times what their jobs run (Mu'alem and Feitelson's f-model). One queue has more than half of the jobs, in bursts.
    """
    random = Random(seed)
    widest = math.log2(processors)
    drawn = []
    for _ in range(jobs):
        width = 1
        if random.random() >= 0.24:
            low, high = (0.8, widest - 2.5) if random.random() < 0.86 else (widest - 2.5, widest)
            exponent = random.uniform(low, high)
            width = 2 ** round(exponent) if random.random() < 0.75 else round(2**exponent)
        width = max(1, min(processors, width))
        long = random.random() >= max(0.0, -0.0054 * width + 0.78)
        logarithm = random.gammavariate(312, 0.03) if long else random.gammavariate(4.2, 0.94)
        drawn.append((width, min(2 * _DAY, max(10.0, math.exp(logarithm)))))
    area = sum(width * run_time for width, run_time in drawn)
    pause = area / (processors * load) / jobs
    time, queue = 0.0, "a"
    for number, (width, run_time) in enumerate(drawn):
        time += random.expovariate(1 / pause)
        if number % 10 == 0 or queue != "heavy":  # bursts of the heavy queue, which gets about six of ten jobs
            queue = random.choice(_QUEUES)
        asked = min(4 * _DAY, run_time * random.uniform(1, 5))
        yield BatchJob(number, time, width, run_time, asked, queue)


def job_queues(
    policies: Sequence[str] = (), jobs: int = 1_000, nodes: int = 16, load: float = 0.9, seed: int = 1
) -> Rows:
    """Waits, slowdown, utilisation and starvation of jobs by policy, on a generated log.

    Nodes have eight cores; a job on more than eight processors has pods of eight each. Utilisation is until the last
    job was submitted; a reserved start is kept if the job started by the first one that it got, or two rounds later;
    starved are jobs that waited for more than a day. The last figures are the mean wait in the queue with most jobs,
    and in the others.
    """
    processors = 8 * nodes
    log = list(generate_log(jobs, processors, load, seed))
    for name in chosen(list(_POLICIES), policies):
        began = process_time()
        records = _simulated(log, nodes, _POLICIES[name])
        waits = [record.started - record.arrived for record in records]
        last = max(job.submitted for job in log)
        origin = min(record.arrived for record in records) - log[0].submitted
        widths = {f"job/default/j{job.number}": job.processors for job in log}
        used = sum(
            widths[record.name] * max(0.0, min(record.ended - origin, last) - min(record.started - origin, last))
            for record in records
        )
        heavy = [record.started - record.arrived for record in records if record.queue == "heavy"]
        light = [record.started - record.arrived for record in records if record.queue != "heavy"]
        reserved = [record for record in records if record.reserved is not None]
        kept = sum(record.started <= (record.reserved or 0.0) + 2 * _INTERVAL for record in reserved)
        yield (
            name,
            {
                "jobs": len(records),
                "s mean wait": mean(waits),
                "s p95 wait": quantile(waits, 0.95),
                "bounded slowdown": mean(map(bounded_slowdown, records)),
                "% utilisation": 100 * used / (processors * last),
                "jobs reserved": len(reserved),
                "% kept": 100 * kept / len(reserved) if reserved else 100.0,
                "jobs starved": sum(wait > _DAY for wait in waits),
                "s longest wait": max(waits),
                "s mean wait, heavy": mean(heavy),
                "s mean wait, others": mean(light),
                "s of CPU": process_time() - began,
            },
        )


def _simulated(log: Sequence[BatchJob], nodes: int, args: dict[str, Any]) -> list[JobRecord]:
    """Run the scheduler with a policy on the log, and return what the plugin has recorded."""
    cluster = ClusterObjects(nodes=[builders.node(f"n{n:03}", cpu="8", memory="64Gi") for n in range(nodes)])
    arrivals = Arrivals(pods=[arrival for job in log for arrival in _pods(job)])
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {
                    "multiPoint": {"enabled": [{"name": "JobQueues"}], "disabled": [{"name": "DefaultPreemption"}]}
                },
                "pluginConfig": [
                    {
                        "name": "JobQueues",
                        "args": {"queues": [{"name": name} for name in _QUEUES], "interval": f"{_INTERVAL}s", **args},
                    }
                ],
            }
        ],
    }
    result = Simulation(cluster, arrivals, configuration, options=SimulationOptions(samples=10)).run()
    data = result.plugin_reports["JobQueues"].data
    return [
        JobRecord(
            each["job"], each["queue"], each["pods"], each["arrived"], each["started"], each["ended"], each["reserved"]
        )
        for each in data["ended"]
    ]


def _pods(job: BatchJob) -> Iterator[Arrival]:
    """The pods of a job: of eight processors each, and one with the rest."""
    whole, rest = divmod(job.processors, 8)
    sizes = [8] * whole + ([rest] if rest else [])
    annotations = {
        "kubestow.dev/queue": job.queue,
        "kubestow.dev/run-time": f"{round(job.requested_time)}s",
        "kubestow.dev/job": f"j{job.number}",
        "kubestow.dev/job-size": str(len(sizes)),
    }
    for index, size in enumerate(sizes):
        pod = builders.pod(f"j{job.number}-{index}", cpu=str(size), metadata={"annotations": annotations})
        yield Arrival(pod, job.submitted, job.run_time, {})


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
