"""What the pods of groups cost grows no faster than their number, as single pods (1.36) and as entities (1.37).

Cost is counted in calls of functions, as in :mod:`.test_tenants`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from core_tests.scheduling.gangs.groups import composite, group, member
from core_tests.scheduling.gangs.test_composite_pod_groups import leaf
from kubestow.api.core import Pod
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from tests.security.test_tenants import Calls

GATES_OF = {36: {"GenericWorkload": True, "GangScheduling": True}, 37: {"GenericWorkload": True}}
#: No pod of a group fits on the node.
LARGE, SMALL = "9", "1m"

Scenario = Callable[[SchedulerHarness, int], Awaitable[None]]


def without_gates(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=[]))


async def one_group(harness: SchedulerHarness, size: int) -> None:
    """A gang that does not fit, with a pod too many, which is gated and deleted again."""
    harness.cluster.put(group("g", size))
    for number in range(size + 1):
        gates = ["wait"] if number == size else []
        harness.cluster.put(member(f"g-{number}", "g", cpu=LARGE, gates=gates))
    await harness.settle()
    harness.cluster.remove(harness.cluster.pod(f"g-{size}"))
    await harness.advance(0.5)
    for number in range(size):
        harness.cluster.remove(harness.cluster.pod(f"g-{number}"))
    await harness.settle()


async def gates_removed_one_by_one(harness: SchedulerHarness, size: int) -> None:
    """A controller such as Kueue removes the scheduling gates of the pods of a gang, one after another."""
    harness.cluster.put(group("g", size))
    for number in range(size):
        harness.cluster.put(member(f"g-{number}", "g", cpu=LARGE, gates=["wait"]))
    await harness.settle()
    for number in range(size):
        harness.cluster.put(without_gates(harness.cluster.pod(f"g-{number}")))
        await harness.settle()


async def pods_of_another_group(harness: SchedulerHarness, size: int) -> None:
    """Pods are added to one group, and deleted, while as many other groups wait for their last pods."""
    harness.cluster.put(group("basic", 0))
    for number in range(size):
        harness.cluster.put(group(f"g{number}", 3))
        for its in range(2):
            harness.cluster.put(member(f"g{number}-{its}", f"g{number}", cpu=LARGE))
    await harness.settle()
    for number in range(size):
        harness.cluster.put(member(f"basic-{number}", "basic", cpu=SMALL))
        harness.cluster.put(member(f"gated-{number}", "basic", cpu=SMALL, gates=["wait"]))
    await harness.settle()
    for number in range(size):
        harness.cluster.remove(harness.cluster.pod(f"gated-{number}"))
    await harness.settle()


async def groups_of_a_tree(harness: SchedulerHarness, size: int) -> None:
    """A tree of groups is created group by group with its pods, is tried once, and is deleted again."""
    harness.cluster.put(composite("tree", size))
    for number in range(size):
        name = f"g{number}"
        harness.cluster.put(leaf(name, 2, "tree"))
        harness.cluster.put(member(f"{name}-0", name, cpu=LARGE))
        gates = ["wait"] if number == size - 1 else []
        harness.cluster.put(member(f"{name}-1", name, cpu=LARGE, gates=gates))
        await harness.settle()
    harness.cluster.put(without_gates(harness.cluster.pod(f"g{size - 1}-1")))
    await harness.advance(0.5)
    for number in range(size):
        for its in range(2):
            harness.cluster.remove(harness.cluster.pod(f"g{number}-{its}"))
    await harness.settle()


async def trees_in_one_namespace(harness: SchedulerHarness, size: int) -> None:
    """Pods join and leave a tree that never has enough of them, while as many other trees wait, too."""
    harness.cluster.put(composite("tree", 2))
    harness.cluster.put(leaf("few", 2, "tree"))
    for number in range(size):
        harness.cluster.put(composite(f"tree{number}", 2))
        harness.cluster.put(leaf(f"g{number}", 2, f"tree{number}"))
        harness.cluster.put(member(f"g{number}-0", f"g{number}", cpu=LARGE))
    await harness.settle()
    for number in range(size):
        harness.cluster.put(member(f"few-{number}", "few", cpu=LARGE))
    await harness.settle()
    for number in range(size):
        harness.cluster.remove(harness.cluster.pod(f"few-{number}"))
    await harness.settle()


SCENARIOS: list[Scenario] = [one_group, gates_removed_one_by_one, pods_of_another_group]
#: The same with the gate CompositePodGroup of 1.37.
OF_TREES: list[Scenario] = [groups_of_a_tree, trees_in_one_namespace]


def cost(scenario: Scenario, size: int, minor: Minor) -> int:
    calls = Calls()

    async def counted(harness: SchedulerHarness) -> None:
        with calls:
            await scenario(harness, size)

    gates = GATES_OF[minor.number] | ({"CompositePodGroup": True} if scenario in OF_TREES else {})
    in_virtual_time(counted, node("n", cpu="1"), minor=minor, gates=gates)
    return calls.count


@pytest.mark.parametrize(
    ("scenario", "minor"),
    [*((scenario, minor) for scenario in SCENARIOS for minor in (36, 37)), *((scenario, 37) for scenario in OF_TREES)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_twice_as_many_pods_or_groups_cost_about_twice_as_much(scenario: Scenario, minor: int) -> None:
    cost(scenario, 1, Minor(minor))  # imports and caches of the process
    assert cost(scenario, 160, Minor(minor)) < 2.6 * cost(scenario, 80, Minor(minor))


def preemption_cost(groups: int, preemptor: str) -> int:
    """The calls of a preemption in the pool ``a`` while so many groups have pods in another pool."""
    calls = Calls()

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(groups):
            harness.cluster.put(group(f"g{number}", 1, priority=100, disruptionMode={"all": {}}))
            harness.cluster.put(member(f"g{number}", f"g{number}", cpu=SMALL, node="other"))
        for number in range(2):
            harness.cluster.put(pod(f"low-{number}", cpu="1", priority=1, node=f"n{number}"))
            harness.cluster.put(group(f"high-{number}", 1, priority=50))
        await harness.settle()
        for number in range(2):
            same: dict[str, Any] = {"cpu": "1", "priority": 50, "node_selector": {"pool": "a"}}
            name = f"high-{number}"
            high = pod(name, **same) if preemptor == "pod" else member(name, name, **same)
            if number:  # the first preemption makes what is kept from then on
                with calls:
                    harness.cluster.put(high)
                    await harness.settle()
            else:
                harness.cluster.put(high)
                await harness.settle()
        assert not {each.metadata.name for each in harness.cluster.pods()} & {"low-0", "low-1"}

    nodes = node("n0", cpu="1", labels={"pool": "a"}), node("n1", cpu="1", labels={"pool": "a"}), node("other", cpu="1")
    in_virtual_time(scenario, *nodes, minor=Minor(37), gates=GATES_OF[37])
    return calls.count


@pytest.mark.parametrize("preemptor", ["pod", "podgroup"])
def test_a_preemption_costs_the_same_however_many_groups_are_placed_elsewhere(preemptor: str) -> None:
    preemption_cost(1, preemptor)
    assert preemption_cost(200, preemptor) < 1.1 * preemption_cost(20, preemptor)
