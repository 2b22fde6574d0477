"""What the pods of groups cost grows no faster than their number, as single pods (1.36) and as entities (1.37).

Cost is counted in calls of functions, as in :mod:`.test_tenants`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from core_tests.scheduling.gangs.groups import group, member
from kubestow.api.core import Pod
from kubestow.rules.minors import Minor
from kubestow.testing import node
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


SCENARIOS: list[Scenario] = [one_group, gates_removed_one_by_one, pods_of_another_group]


def cost(scenario: Scenario, size: int, minor: Minor) -> int:
    calls = Calls()

    async def counted(harness: SchedulerHarness) -> None:
        with calls:
            await scenario(harness, size)

    in_virtual_time(counted, node("n", cpu="1"), minor=minor, gates=GATES_OF[minor.number])
    return calls.count


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_twice_as_many_pods_or_groups_cost_about_twice_as_much(scenario: Scenario, minor: int) -> None:
    cost(scenario, 1, Minor(minor))  # imports and caches of the process
    assert cost(scenario, 160, Minor(minor)) < 2.6 * cost(scenario, 80, Minor(minor))
