"""The victim search of workload-aware preemption, compared with a linear search and with the reference algorithm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from core_tests.scheduling.gangs.groups import GATES, group, member
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.scheduling.gangs.preemption import fewest_removed
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

ON: dict[str, Any] = {"gates": GATES | {"WorkloadAwarePreemption": True}}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@given(weights=st.lists(st.integers(0, 4), min_size=1, max_size=40), wanted=st.integers(0, 60))
def test_the_bisecting_search_equals_the_linear_search(weights: list[int], wanted: int) -> None:
    async def fits(removed: NDArray[np.bool_]) -> bool:
        return int(np.array(weights)[removed].sum()) >= wanted

    removed = [True] * len(weights)
    for number, _ in enumerate(weights):
        removed[number] = False
        if sum(w for w, g in zip(weights, removed, strict=True) if g) < wanted:
            removed[number] = True
    found = asyncio.run(fewest_removed(len(weights), fits))
    assert (None if found is None else found.tolist()) == (removed if sum(weights) >= wanted else None)


def test_the_bisecting_search_needs_few_trials_for_few_victims() -> None:
    trials = []

    async def fits(removed: NDArray[np.bool_]) -> bool:
        trials.append(int(removed.sum()))
        return trials[-1] >= 3

    found = asyncio.run(fewest_removed(10_000, fits))
    assert found is not None and np.flatnonzero(found).tolist() == [9_997, 9_998, 9_999]
    assert len(trials) < 20 and max(trials) == 4


@dataclass(frozen=True)
class Unit:
    """Pods that are evicted together, each with its node and CPUs; a unit of several pods is a group.

    With ``has_port``, all of them have the host port 80, on one node several at once.
    """

    name: str
    pods: tuple[tuple[str, int], ...]
    priority: int
    started: int
    guarded: bool = False
    has_port: bool = False

    def objects(self) -> list[object]:
        status = {"startTime": (BEGAN + timedelta(minutes=self.started)).strftime("%Y-%m-%dT%H:%M:%SZ")}
        labels = {"guarded": "yes"} if self.guarded else {"guarded": "no"}
        same: dict[str, Any] = {"priority": self.priority, "status": status, "labels": labels}
        same["host_ports"] = [80] if self.has_port else []
        if len(self.pods) == 1:
            (on, cpu), *_ = self.pods
            return [pod(self.name, node=on, cpu=str(cpu), **same)]
        mode: dict[str, Any] = {"priority": self.priority, "disruptionMode": {"all": {}}}
        members = [
            member(f"{self.name}-{n}", self.name, node=on, cpu=str(cpu), **same)
            for n, (on, cpu) in enumerate(self.pods)
        ]
        return [group(self.name, 1, **mode), *members]


@dataclass(frozen=True)
class Scenario:
    """Nodes and their CPUs, units on them, and a gang of ``size`` pods with ``cpu`` CPUs and maybe the host port 80."""

    nodes: dict[str, int]
    units: list[Unit]
    size: int
    cpu: int
    allowed: int
    wants_port: bool

    def fits(self, evicted: set[Unit]) -> bool:
        free = dict(self.nodes)
        for unit in self.units:
            for on, cpu in unit.pods if unit not in evicted else ():
                free[on] -= cpu
        if self.wants_port:
            taken = self.taken_ports(evicted)
            return sum(cpus >= self.cpu and on not in taken for on, cpus in free.items()) >= self.size
        return sum(cpus // self.cpu for cpus in free.values()) >= self.size

    def taken_ports(self, evicted: set[Unit]) -> set[str]:
        """The nodes with the port taken: freed by every unit that may be evicted, taken by those that are put back."""
        with_port = [unit for unit in self.units if unit.has_port]
        taken = {on for unit in with_port if unit.priority >= 100 for on, _ in unit.pods}
        taken -= {on for unit in with_port if unit.priority < 100 for on, _ in unit.pods}
        return taken | {on for unit in with_port if unit.priority < 100 and unit not in evicted for on, _ in unit.pods}

    def survivors(self) -> set[str]:
        """The units that survive by the rules of (semantics 9.7)."""
        lower = [unit for unit in self.units if unit.priority < 100]
        lower.sort(key=lambda unit: (-unit.priority, len(unit.pods) == 1, -len(unit.pods), unit.started))
        evicted = set(lower)
        if self.fits(set()) or not self.fits(evicted):
            return {unit.name for unit in self.units}
        allowed, violating = self.allowed, []
        for unit in lower:
            if unit.guarded:
                allowed -= len(unit.pods)
                if allowed < 0:
                    violating.append(unit)
        for unit in [*violating, *(unit for unit in lower if unit not in violating)]:
            if self.fits(evicted - {unit}):
                evicted -= {unit}
        return {unit.name for unit in self.units if unit not in evicted}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    nodes = {f"node-{number}": draw(st.integers(1, 5)) for number in range(draw(st.integers(1, 4)))}
    free, units, wants_port = dict(nodes), [], draw(st.booleans())
    for number in range(draw(st.integers(1, 10))):
        placed = []
        for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
            on, cpu = draw(st.sampled_from(sorted(nodes))), draw(st.integers(1, 2))
            if free[on] >= cpu:
                free[on] -= cpu
                placed.append((on, cpu))
        if placed:
            priority = draw(st.sampled_from((0, 0, 10, 20, 200)))
            guarded, has_port = draw(st.booleans()), wants_port and draw(st.booleans())
            units.append(Unit(f"unit{number}", tuple(placed), priority, number, guarded, has_port))
    size, cpu, allowed = draw(st.integers(1, 5)), draw(st.integers(1, 2)), draw(st.integers(0, 3))
    return Scenario(nodes, units, size, cpu, allowed, wants_port)


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(example=scenarios(), alike=st.booleans())
def test_a_group_evicts_the_victims_of_the_reference_algorithm(example: Scenario, alike: bool) -> None:
    """Members of one shape are counted per node; members of several shapes are placed one by one."""
    budget = convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"guarded": "yes"}}},
            "status": {"disruptionsAllowed": example.allowed},
        },
    )
    gang = [
        member(
            f"train-{n}",
            "train",
            cpu=str(example.cpu),
            priority=100,
            labels={"n": "" if alike else str(n)},
            host_ports=[80] if example.wants_port else [],
        )
        for n in range(example.size)
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.advance(30)
        left = {each.metadata.name.partition("-")[0] for each in harness.cluster.pods() if not _is_member(each)}
        assert left == example.survivors()
        assert all(harness.node_of(each.metadata.name) for each in gang) == example.fits(
            {unit for unit in example.units if unit.priority < 100}
        )

    nodes = [node(name, cpu=str(cpu)) for name, cpu in example.nodes.items()]
    others = [each for unit in example.units for each in unit.objects()]
    in_virtual_time(scenario, *nodes, *others, budget, group("train", example.size, priority=100), **ON)


def _is_member(pod: Pod) -> bool:
    return pod.metadata.name.startswith("train-")
