"""Workload-aware preemption (semantics 11.6): the cases of TestPodGroupScheduling with the gate
WorkloadAwarePreemption or a topology, TestWorkloadAwarePreemptionInvocation and TestPostFilterInvocationCount.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, members
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import FilterRunner, PostFilterPlugin, PostFilterResult
from kubestow.framework.status import Status
from kubestow.testing import node, pods
from tests.integration.fixture import ClusterFixture, Object

TOPOLOGY = {"TopologyAwareWorkloadScheduling": True}
WORKLOAD_AWARE = {"WorkloadAwarePreemption": True}


async def group(cluster: ClusterFixture, name: str, minimum: int, *, priority: int = 100, **spec: Any) -> None:
    """Create a pod group with a priority; a minimum of 0 gives the basic policy."""
    policy: Object = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    class_name = await cluster.priority_class(priority)
    full_spec = {"schedulingPolicy": policy, "priorityClassName": class_name} | spec
    await cluster.create(
        {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": full_spec}
    )


def on_node(count: int, prefix: str, priority: int) -> list[Pod]:
    """Existing pods with one CPU each."""
    return pods(count, prefix=prefix, cpu="1", priority=priority, node="n")


@pytest.mark.parametrize("gates", [WORKLOAD_AWARE, WORKLOAD_AWARE | TOPOLOGY], ids=["", "topology"])
async def test_a_gang_preempts_all_pods_of_lower_priority(
    cluster_with_kubelets: ClusterFixture, gates: dict[str, bool]
) -> None:
    cluster = cluster_with_kubelets
    await cluster.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(cluster, "train", 3)
    async with cluster.scheduler(gates=GATES | gates):
        await cluster.create(*members(4, "train", cpu="1", priority=100))
        await cluster.bound(*(f"train-{number}" for number in range(4)))
        await cluster.deleted(*(f"low-{number}" for number in range(4)))


@pytest.mark.parametrize("gates", [WORKLOAD_AWARE, WORKLOAD_AWARE | TOPOLOGY], ids=["", "topology"])
async def test_a_gang_preempts_the_pods_of_lowest_priority(
    cluster_with_kubelets: ClusterFixture, gates: dict[str, bool]
) -> None:
    cluster = cluster_with_kubelets
    await cluster.create(node("n", cpu="4"), *on_node(2, "low", 10), *on_node(2, "lowest", 1))
    await group(cluster, "middle", 2, priority=50)
    async with cluster.scheduler(gates=GATES | gates):
        await cluster.create(*members(2, "middle", cpu="1", priority=50))
        await cluster.bound("middle-0", "middle-1")
        await cluster.deleted("lowest-0", "lowest-1")
        assert cluster.node_of("low-0") == cluster.node_of("low-1") == "n"


@pytest.mark.parametrize("gates", [{}, WORKLOAD_AWARE], ids=["default", "workload-aware"])
async def test_a_gang_with_a_topology_constraint_preempts_no_pod(
    cluster: ClusterFixture, gates: dict[str, bool]
) -> None:
    await cluster.create(node("n", cpu="4", labels={"rack": "r"}), *on_node(2, "low", 10), *on_node(2, "lowest", 1))
    await group(cluster, "middle", 2, priority=50, schedulingConstraints={"topology": [{"key": "rack"}]})
    async with cluster.scheduler(gates=GATES | TOPOLOGY | gates):
        await cluster.create(*members(2, "middle", cpu="1", priority=50))
        messages = await cluster.pending_messages("middle-0", "middle-1")
        assert "not eligible due to placement-based pod group scheduling limitation" in messages[0]
        assert not cluster.events("Preempted")


async def test_the_events_of_victims_name_the_pod_group(cluster_with_kubelets: ClusterFixture) -> None:
    cluster = cluster_with_kubelets
    await cluster.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(cluster, "train", 3, disruptionMode="PodGroup")
    async with cluster.scheduler(gates=GATES | WORKLOAD_AWARE):
        await cluster.create(*members(3, "train", cpu="1", priority=100))
        await cluster.bound("train-0", "train-1", "train-2")
        await cluster.until(lambda: len(cluster.events("Preempted")) == 3)
        for event in cluster.events("Preempted"):
            assert event.note.startswith("Preempted by podgroup ") and event.note.endswith(" on node cluster")


class CountsPostFilter(PostFilterPlugin):
    """Counts the PostFilter calls per pod until its evictions start."""

    name = "CountsPostFilter"
    calls: Counter[str] = Counter()

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        if not self.handle.is_preempting(pod.uid) and not pod.status.nominated_node_name:
            CountsPostFilter.calls[pod.name] += 1
        return PostFilterResult(Status.unschedulable("no"))


async def test_post_filter_runs_once_per_pod_and_not_for_the_group(cluster_with_kubelets: ClusterFixture) -> None:
    cluster, CountsPostFilter.calls = cluster_with_kubelets, Counter()
    await cluster.create(node("n", cpu="4"), *on_node(4, "low", 10))
    await group(cluster, "train", 3, disruptionMode="PodGroup")
    profiles = [{"plugins": {"postFilter": {"enabled": [{"name": "CountsPostFilter"}, {"name": "DefaultPreemption"}]}}}]
    async with cluster.scheduler(gates=GATES | WORKLOAD_AWARE, plugins=[CountsPostFilter], profiles=profiles):
        await cluster.create(*members(3, "train", cpu="1", priority=100))
        await cluster.bound("train-0", "train-1", "train-2")
        assert CountsPostFilter.calls == {"train-0": 1, "train-1": 1, "train-2": 1}
