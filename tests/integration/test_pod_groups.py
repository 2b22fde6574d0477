"""Pod groups (semantics 11.6): gangs of all three APIs, from the API objects to their conditions.

Topology constraints are in test_pod_group_topology.py, and workload-aware preemption in
test_pod_group_preemption.py. TestPodGroupAdmission tests the API server: see tests/devcluster/apiserver.
A gang preempts as a whole or not at all; the details are in tests/scheduling/gangs.
"""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.pod_groups import APIS, gang_scheduling, member, members
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupAPI
from kubestow.errors import APIError
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from kubestow_contrib.coscheduling import COSCHEDULING
from kubestow_contrib.volcano.pod_groups import VOLCANO
from tests.integration.fixture import ClusterFixture, Object, SchedulerProbe

GANG_SCHEDULING = gang_scheduling()
VERSIONS = {KUBERNETES.name: "v1alpha2", COSCHEDULING.name: "v1alpha1", VOLCANO.name: "v1beta1"}


def group(name: str, minimum: int, *, api: PodGroupAPI = KUBERNETES) -> Object:
    """The manifest of a pod group; a minimum of 0 gives the basic policy."""
    spec: dict[str, Any] = {"minMember": minimum}
    if api is KUBERNETES:
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}} if minimum else {"basic": {}}}
    version = f"{api.name}/{VERSIONS[api.name]}"
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def group_conditions(probe: SchedulerProbe, name: str) -> list[tuple[str, str]]:
    """The status and reason of a group's conditions, as the scheduler's watch has delivered them."""
    cached = probe.scheduler.cluster.catalog(PodGroup).get("default", name)
    return [(c.status, c.reason) for c in cached.status.conditions] if cached is not None else []


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_is_scheduled_when_it_fits(cluster: ClusterFixture, api: PodGroupAPI) -> None:
    await cluster.create(node("n"), group("train", 3, api=api), *members(3, "train", api=api, cpu="1"))
    async with cluster.scheduler(**GANG_SCHEDULING):
        assert await cluster.bound("train-0", "train-1", "train-2") == ["n"] * 3


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_waits_for_min_count_pods(cluster: ClusterFixture, api: PodGroupAPI) -> None:
    first, second, third = members(3, "train", api=api, cpu="1")
    await cluster.create(node("n"), group("train", 3, api=api), first, second)
    async with cluster.scheduler(**GANG_SCHEDULING) as probe:
        await probe.until(lambda: [probe.place(f"train-{n}") for n in range(2)] == [Place.GATED] * 2)
        await cluster.create(third)
        await cluster.bound("train-0", "train-1", "train-2")


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_waits_for_its_group_and_then_for_capacity(cluster: ClusterFixture, api: PodGroupAPI) -> None:
    blocker = pod("blocker", cpu="2", priority=100, node="n")
    await cluster.create(node("n", cpu="4"), blocker, *members(3, "train", api=api, cpu="1", priority=100))
    async with cluster.scheduler(**GANG_SCHEDULING) as probe:
        await probe.until(lambda: probe.place("train-0") is Place.GATED)
        await cluster.create(group("train", 3, api=api))
        await cluster.pending_messages("train-0", "train-1", "train-2")
        assert "default/train needs 3 pods, 2 of 3 fit" in cluster.message("train-1")
        await cluster.delete(blocker)
        await cluster.bound("train-0", "train-1", "train-2")


async def test_the_condition_of_a_group_follows_its_pods(cluster: ClusterFixture) -> None:
    blocker = pod("blocker", cpu="2", priority=100, node="n")
    train = members(3, "train", cpu="1", priority=100)
    await cluster.create(node("n", cpu="4"), blocker, group("train", 3), *train)
    async with cluster.scheduler(**GANG_SCHEDULING) as probe:
        await probe.until(lambda: group_conditions(probe, "train") == [("False", "Unschedulable")])
        await cluster.delete(blocker)
        await probe.until(lambda: group_conditions(probe, "train") == [("True", "Scheduled")])


async def test_a_member_beyond_min_count_is_scheduled_when_capacity_is_freed(cluster: ClusterFixture) -> None:
    small = pod("small", cpu="1", priority=100, node="n")
    await cluster.create(node("n", cpu="4"), small, group("train", 3), *members(4, "train", cpu="1", priority=100))
    names = [f"train-{number}" for number in range(4)]
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.until(lambda: sum(bool(cluster.node_of(name)) for name in names) == 3)
        await cluster.until(lambda: sum(bool(cluster.message(name)) for name in names) >= 1)
        await cluster.delete(small)
        await cluster.bound(*names)


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
async def test_two_gangs_do_not_block_each_other(cluster: ClusterFixture, first: str, second: str) -> None:
    await cluster.create(node("n", cpu="4"), group("a", 3), group("b", 3))
    async with cluster.scheduler(**GANG_SCHEDULING):
        for pair in zip(members(3, first, cpu="1"), members(3, second, cpu="1"), strict=True):
            await cluster.create(*pair)
        await cluster.bound(*(f"{first}-{number}" for number in range(3)))
        await cluster.pending_messages(*(f"{second}-{number}" for number in range(3)))
        assert not any(cluster.node_of(f"{second}-{number}") for number in range(3))


@pytest.mark.parametrize("minimum", [4, 0], ids=["gang", "basic"])
async def test_a_group_preempts_pods_of_lower_priority(cluster_with_kubelets: ClusterFixture, minimum: int) -> None:
    cluster, low = cluster_with_kubelets, pod("low", cpu="2", priority=10, node="n")
    await cluster.create(node("n", cpu="4"), low, group("train", minimum), *members(4, "train", cpu="1", priority=100))
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.bound(*(f"train-{number}" for number in range(4)))
        await cluster.deleted("low")


async def test_no_pod_is_evicted_for_part_of_a_gang(cluster: ClusterFixture) -> None:
    low, high = pod("low", cpu="2", priority=1, node="n"), pod("high", cpu="2", priority=100, node="n")
    await cluster.create(node("n", cpu="4"), low, high, group("train", 3), *members(3, "train", cpu="1", priority=100))
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.pending_messages("train-0", "train-1", "train-2")
        assert cluster.node_of("low") == "n"
        assert not cluster.events("Preempted")


async def test_the_second_gang_is_scheduled_after_the_first_is_deleted(cluster: ClusterFixture) -> None:
    first, second = (members(3, name, cpu="1") for name in "ab")
    await cluster.create(node("n", cpu="4"), group("a", 3), group("b", 3))
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.create(*first)
        await cluster.bound("a-0", "a-1", "a-2")
        await cluster.create(*second)
        await cluster.pending_messages("b-0", "b-1", "b-2")
        for each in first:
            await cluster.delete(each)
        await cluster.bound("b-0", "b-1", "b-2")


async def test_the_pods_of_a_basic_group_are_scheduled_one_by_one(cluster: ClusterFixture) -> None:
    await cluster.create(node("n", cpu="2"), group("serve", 0), member("a", "serve", cpu="1"))
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.bound("a")
        await cluster.create(member("b", "serve", cpu="1"), member("c", "serve", cpu="1"))
        await cluster.bound("b")
        await cluster.pending_messages("c")


async def test_the_scheduling_group_field_is_ignored_without_its_feature_gate(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), member("a", "train"))
    async with cluster.scheduler():
        await cluster.bound("a")


async def test_a_server_without_the_pod_group_api_is_supported(cluster: ClusterFixture) -> None:
    """Pod groups are optional: a server may not serve the resource."""
    with pytest.raises(APIError):
        await cluster.request("GET", "/apis/scheduling.k8s.io/v9/podgroups")
    await cluster.create(node("n"), pod("a"))
    async with cluster.scheduler(**GANG_SCHEDULING):
        await cluster.bound("a")
