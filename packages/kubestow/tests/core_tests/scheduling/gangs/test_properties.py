"""A gang runs with at least minCount pods or holds no capacity, for random arrivals, failures and node deletions.

Pods of several gangs are created in any order. Either PreBind plugins and bindings fail, or nodes are deleted while
gangs are being bound to them, but not both: a failed binding is retried on the same node, which must still exist and
must not be taken by a pod of higher priority, because the siblings stay bound. A gang that loses a bound pod is
recreated as a whole, as its job controller would do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_tests.scheduling.gangs.groups import gang_scheduling, group, member
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreBindPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

CPUS = 4


class UnreliablePreBind(PreBindPlugin):
    """Takes up to a second, and rejects a tenth of the pods while ``rejects``."""

    name = "UnreliablePreBind"
    random = Random(0)
    rejects = True

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await asyncio.sleep(self.random.random())
        return Status.unschedulable("no") if self.rejects and self.random.random() < 0.1 else SUCCESS


@dataclass(frozen=True)
class Job:
    """A gang: its number of pods, its minCount, and the whole CPUs that each pod requests."""

    name: str
    size: int
    minimum: int
    cpu: int
    priority: int

    def pods(self, generation: int) -> list[Pod]:
        return [
            member(f"{self.name}-{generation}-{n}", self.name, cpu=str(self.cpu), priority=self.priority)
            for n in range(self.size)
        ]


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    made = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 6))
        minimum = draw(st.integers(1, size))
        made.append(Job(f"job{number}", size, minimum, draw(st.integers(1, 3)), draw(st.sampled_from((0, 0, 10)))))
    return made


def bound_pods(harness: SchedulerHarness, job: Job) -> list[Pod]:
    return [pod for pod in harness.cluster.pods() if _job(pod) == job.name and pod.spec.node_name]


def _job(pod: Pod) -> str:
    assert pod.spec.scheduling_group is not None
    return pod.spec.scheduling_group.pod_group_name or ""


async def restart_broken(harness: SchedulerHarness, all_jobs: list[Job], generations: Counter[str]) -> bool:
    """Recreate every job that has lost a pod, as a job controller does; whether there were any."""
    current = Counter(_job(pod) for pod in harness.cluster.pods())
    before = generations.total()
    for job in all_jobs:
        if current[job.name] < job.size:
            for pod in [pod for pod in harness.cluster.pods() if _job(pod) == job.name]:
                harness.cluster.remove(pod)
            await asyncio.sleep(0)
            generations[job.name] += 1
            for pod in job.pods(generations[job.name]):
                harness.cluster.put(pod)
    return generations.total() > before


def delete_node(harness: SchedulerHarness, name: str) -> None:
    for each in [each for each in harness.cluster.nodes() if each.metadata.name == name]:
        harness.cluster.remove(each)
    for pod in [pod for pod in harness.cluster.pods() if pod.spec.node_name == name]:
        harness.cluster.remove(pod)


def fits(harness: SchedulerHarness, job: Job) -> bool:
    """Whether minCount pods of a job fit beside the bound pods, by counting CPUs."""
    used = Counter[str]()
    for pod in harness.cluster.pods():
        used[pod.spec.node_name] += int(pod.spec.containers[0].resources.requests["cpu"])
    free = [CPUS - used[each.metadata.name] for each in harness.cluster.nodes()]
    return sum(cpus // job.cpu for cpus in free) >= job.minimum


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(all_jobs=jobs(), nodes=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_a_gang_runs_with_min_count_pods_or_holds_no_capacity(all_jobs: list[Job], nodes: int, seed: int) -> None:
    random = Random(seed)
    UnreliablePreBind.random, UnreliablePreBind.rejects = Random(seed), True
    names = [f"node-{number}" for number in range(nodes)]
    deletes_nodes = random.random() < 0.5
    if not deletes_nodes:
        all_jobs = [replace(job, priority=0) for job in all_jobs]

    async def scenario(harness: SchedulerHarness) -> None:
        arrivals = [pod for job in all_jobs for pod in job.pods(0)]
        random.shuffle(arrivals)
        generations: Counter[str] = Counter()
        for pod in arrivals:
            harness.cluster.put(pod)
            if random.random() < 0.5:
                await harness.advance(random.choice((0.0, 0.3, 2.0)))
            if not deletes_nodes and random.random() < 0.2:
                harness.cluster.bind_failures.append(APIError(409, "Conflict", "not now"))
        for _ in range(random.randrange(4) if deletes_nodes else 0):
            deleted = random.choice(names)
            delete_node(harness, deleted)
            await harness.advance(random.choice((0.0, 0.3)))
            harness.cluster.put(node(deleted, cpu=str(CPUS)))
            await restart_broken(harness, all_jobs, generations)
            await harness.advance(random.choice((0.0, 1.0, 10.0)))
        UnreliablePreBind.rejects = False
        harness.cluster.bind_failures.clear()
        await harness.advance(120)
        while await restart_broken(harness, all_jobs, generations):
            await harness.advance(120)
        for job in all_jobs:
            count = len(bound_pods(harness, job))
            assert count == 0 or count >= job.minimum, (job, count)
            assert count or not fits(harness, job), job

    objects = [node(name, cpu=str(CPUS)) for name in names] + [group(job.name, job.minimum) for job in all_jobs]
    in_virtual_time(scenario, *objects, plugins=[UnreliablePreBind], **gang_scheduling("UnreliablePreBind"))
