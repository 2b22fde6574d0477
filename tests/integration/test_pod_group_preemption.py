"""Pod groups that preempt as a whole (semantics 11.6): what of TestPodGroupScheduling has the gate
WorkloadAwarePreemption or a topology, TestWorkloadAwarePreemptionInvocation and TestPostFilterInvocationCount.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import FilterRunner, PostFilterPlugin, PostFilterResult
from kubestow.framework.status import Status
from kubestow.testing import node, pods
from tests.integration.fixture import Object, Stage
from tests.scheduling.gangs.groups import GATES, members

TOPOLOGY = {"TopologyAwareWorkloadScheduling": True}
AS_A_WHOLE = {"WorkloadAwarePreemption": True}


async def group(stage: Stage, name: str, minimum: int, *, priority: int = 100, **spec: Any) -> None:
    """Create a pod group with a priority; with the minimum 0 it is a basic one."""
    policy: Object = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    chosen = await stage.priority_class(priority)
    made = {"schedulingPolicy": policy, "priorityClassName": chosen} | spec
    await stage.create(
        {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": made}
    )


def on_node(count: int, prefix: str, priority: int) -> list[Pod]:
    """Pods of one CPU each that are there already."""
    return pods(count, prefix=prefix, cpu="1", priority=priority, node="n")


@pytest.mark.parametrize("gates", [AS_A_WHOLE, AS_A_WHOLE | TOPOLOGY], ids=["", "topology"])
async def test_a_gang_takes_the_places_of_all_others(live_stage: Stage, gates: dict[str, bool]) -> None:
    stage = live_stage
    await stage.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(stage, "train", 3)
    async with stage.scheduler(gates=GATES | gates):
        await stage.create(*members(4, "train", cpu="1", priority=100))
        await stage.bound(*(f"train-{number}" for number in range(4)))
        await stage.gone(*(f"low-{number}" for number in range(4)))


@pytest.mark.parametrize("gates", [AS_A_WHOLE, AS_A_WHOLE | TOPOLOGY], ids=["", "topology"])
async def test_a_gang_takes_the_places_of_the_lowest(live_stage: Stage, gates: dict[str, bool]) -> None:
    stage = live_stage
    await stage.create(node("n", cpu="4"), *on_node(2, "low", 10), *on_node(2, "lowest", 1))
    await group(stage, "middle", 2, priority=50)
    async with stage.scheduler(gates=GATES | gates):
        await stage.create(*members(2, "middle", cpu="1", priority=50))
        await stage.bound("middle-0", "middle-1")
        await stage.gone("lowest-0", "lowest-1")
        assert stage.node_of("low-0") == stage.node_of("low-1") == "n"


@pytest.mark.parametrize("gates", [{}, AS_A_WHOLE], ids=["one by one", "as a whole"])
async def test_a_gang_that_stays_together_preempts_nobody(stage: Stage, gates: dict[str, bool]) -> None:
    await stage.create(node("n", cpu="4", labels={"rack": "r"}), *on_node(2, "low", 10), *on_node(2, "lowest", 1))
    await group(stage, "middle", 2, priority=50, schedulingConstraints={"topology": [{"key": "rack"}]})
    async with stage.scheduler(gates=GATES | TOPOLOGY | gates):
        await stage.create(*members(2, "middle", cpu="1", priority=50))
        told = await stage.refused("middle-0", "middle-1")
        assert "not eligible due to placement-based pod group scheduling limitation" in told[0]
        assert not stage.events("Preempted")


async def test_victims_are_told_that_it_is_for_a_group(live_stage: Stage) -> None:
    stage = live_stage
    await stage.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(stage, "train", 3, disruptionMode="PodGroup")
    async with stage.scheduler(gates=GATES | AS_A_WHOLE):
        await stage.create(*members(3, "train", cpu="1", priority=100))
        await stage.bound("train-0", "train-1", "train-2")
        await stage.until(lambda: len(stage.events("Preempted")) == 3)
        for event in stage.events("Preempted"):
            assert event.note.startswith("Preempted by podgroup ") and event.note.endswith(" on node cluster")


class Counting(PostFilterPlugin):
    """Counts how often it is asked to make room for each pod until evictions begin."""

    name = "Counting"
    asked: Counter[str] = Counter()

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        if not self.handle.is_preempting(pod.uid) and not pod.status.nominated_node_name:
            Counting.asked[pod.name] += 1
        return PostFilterResult(Status.unschedulable("no"))


async def test_post_filter_is_asked_once_for_each_pod_and_not_for_the_group(live_stage: Stage) -> None:
    stage, Counting.asked = live_stage, Counter()
    await stage.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(stage, "train", 3, disruptionMode="PodGroup")
    profiles = [{"plugins": {"postFilter": {"enabled": [{"name": "Counting"}, {"name": "DefaultPreemption"}]}}}]
    async with stage.scheduler(gates=GATES | AS_A_WHOLE, plugins=[Counting], profiles=profiles):
        await stage.create(*members(3, "train", cpu="1", priority=100))
        await stage.bound("train-0", "train-1", "train-2")
        assert Counting.asked == {"train-0": 1, "train-1": 1, "train-2": 1}
