"""The plugin capacity: what queues deserve is specified, and queues have parents."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from contrib_tests.volcano.objects import member, pod_group, profile, queue, single
from kubestow.testing import SchedulerHarness, in_virtual_time, node
from kubestow_contrib.volcano.configuration import ConfigurationProblem, read_configuration
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup
from kubestow_contrib.volcano.volcano import Volcano


def capacity(
    actions: str = "enqueue, allocate, backfill", *, hierarchy: bool = False, reclaim_level: int = 0
) -> list[dict[str, Any]]:
    """A profile with capacity in the place of proportion, which lets single pods be evicted."""
    profiles = profile(actions, {"gang": {"enablePreemptable": False, "enableReclaimable": False}})
    for tier in profiles[0]["pluginConfig"][0]["args"]["tiers"]:
        for plugin in tier["plugins"]:
            if plugin["name"] == "proportion":
                plugin |= {"name": "capacity", "enableHierarchy": hierarchy}
                plugin["arguments"] = {"ancestorReclaimLevel": reclaim_level}
    return profiles


def running(harness: SchedulerHarness) -> Counter[str]:
    return Counter(p.metadata.name.split("-")[0] for p in harness.cluster.pods() if p.spec.node_name)


def after(objects: list[Any], newcomers: list[Any], profiles: list[dict[str, Any]]) -> Counter[str]:
    """How many pods run, by the first part of their names, some time after further ones came."""
    found = Counter[str]()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(10)
        for each in newcomers:
            harness.cluster.put(each)
        await harness.advance(60)
        found.update(running(harness))

    in_virtual_time(scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=profiles)
    return found


def pods(count: int, queue_name: str, **fields: Any) -> list[Any]:
    return [single(f"{queue_name}-{number}", queue_name, cpu="1", **fields) for number in range(count)]


def test_a_queue_may_use_more_than_it_deserves_up_to_its_capability() -> None:
    objects = [node("n", cpu="8"), queue("a", deserved={"cpu": "1"}, capability={"cpu": "5"}), queue("b")]
    assert after(objects, pods(8, "a"), capacity()) == {"a": 5}
    assert after([node("n", cpu="8"), queue("a", deserved={"cpu": "1"})], pods(8, "a"), capacity()) == {"a": 8}


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        ({"deserved": {"cpu": "3"}}, {"deserved": {"cpu": "1"}}, {"a": 3, "b": 1}),
        ({"deserved": {"cpu": "2"}}, {"deserved": {"cpu": "4"}}, {"a": 2, "b": 2}),
        # What is deserved of nothing is taken first, and nothing is taken for a queue that deserves nothing.
        ({}, {"deserved": {"cpu": "4"}}, {"b": 4}),
        ({"deserved": {"cpu": "1"}}, {}, {"a": 4}),
        ({"guarantee": {"resource": {"cpu": "3"}}}, {"deserved": {"cpu": "4"}}, {"a": 3, "b": 1}),
        ({"deserved": {"cpu": "1"}, "reclaimable": False}, {"deserved": {"cpu": "4"}}, {"a": 4}),
    ],
)
def test_a_queue_gets_back_what_it_deserves(
    of_a: dict[str, Any], of_b: dict[str, Any], expected: dict[str, int]
) -> None:
    objects = [node("n", cpu="4"), queue("a", **of_a), queue("b", **of_b), *pods(4, "a", node="n")]
    assert after(objects, pods(4, "b"), capacity("allocate, reclaim")) == expected


def test_the_queue_with_the_lowest_share_of_what_it_deserves_comes_first() -> None:
    objects = [queue("a", deserved={"cpu": "1"}), queue("b", deserved={"cpu": "3"}), *pods(8, "a"), *pods(8, "b")]
    assert after(objects, [node("n", cpu="8")], capacity()) == {"a": 2, "b": 6}


@pytest.mark.parametrize(("profiles", "expected"), [(profile(), 0), (capacity(), 1)])
def test_jobs_larger_than_what_their_queues_deserve(profiles: list[dict[str, Any]], expected: int) -> None:
    """With proportion they wait for each other on an empty cluster; with capacity the first uses what is free."""
    objects: list[Any] = []
    for name in ("a", "b"):
        objects += [queue(name, deserved={"cpu": "2"}), pod_group(name, name, minMember=3)]
        objects += [member(f"{name}-{number}", name, cpu="1") for number in range(3)]
    found = after(objects, [node("n", cpu="4")], profiles)
    assert len(found) == expected
    assert set(found.values()) <= {3}


def test_a_queue_whose_parent_is_gone_is_reclaimed_from() -> None:
    objects = [
        node("n", cpu="2"),
        queue("a", parent="gone"),
        queue("b", deserved={"cpu": "2"}),
        *pods(2, "a", node="n"),
    ]
    profiles = capacity("allocate, reclaim", hierarchy=True, reclaim_level=1)
    assert after(objects, pods(2, "b"), profiles) == {"b": 2}


def test_only_resources_that_a_queue_deserves_count_for_its_share() -> None:
    """A queue that deserves GPUs alone has a share of these, however many CPUs its pods use."""
    gpu = "nvidia.com/gpu"
    objects: list[Any] = [queue("a", deserved={gpu: "1"}), queue("b", deserved={gpu: "3"})]
    objects += [single(f"{name}-{number}", name, requests={"cpu": "1", gpu: "1"}) for name in "ab" for number in "1234"]
    host = node("n", cpu="8", allocatable={gpu: "4"})
    assert after(objects, [host], capacity()) == {"a": 1, "b": 3}


TREE = [
    queue("team", capability={"cpu": "4"}),
    queue("research", parent="team", capability={"cpu": "3"}),
    queue("production", parent="team"),
    queue("other"),
]


def test_queues_are_limited_by_their_ancestors() -> None:
    newcomers = [*pods(8, "research"), *pods(8, "production"), *pods(8, "other")]
    found = after([node("n", cpu="16"), *TREE], newcomers, capacity(hierarchy=True))
    assert found["research"] + found["production"] == 4
    assert found["research"] <= 3
    assert found["other"] == 8
    assert after([node("n", cpu="32"), *TREE], newcomers, capacity()) == {"research": 3, "production": 8, "other": 8}


def test_a_guarantee_is_kept_from_the_siblings() -> None:
    guaranteed = queue("research", parent="team", guarantee={"resource": {"cpu": "3"}})
    objects = [node("n", cpu="16"), TREE[0], guaranteed, TREE[2]]
    assert after(objects, pods(8, "production"), capacity(hierarchy=True)) == {"production": 1}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("team", "Queue team: is the parent of production, research, so it admits no pods"),
        ("orphan", "Queue orphan: spec.parent: Queue missing does not exist"),
    ],
)
def test_only_leaves_of_the_hierarchy_admit_pods(name: str, problem: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a-0", "a", cpu="1"))
        await harness.advance(10)
        assert running(harness) == {}
        found = harness.scheduler.cluster.catalog(PodGroup).get("default", "a")
        assert found is not None and problem in found.status.conditions[0].message

    objects = [node("n", cpu="16"), *TREE, queue("orphan", parent="missing"), pod_group("a", name)]
    in_virtual_time(scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=capacity(hierarchy=True))


def test_minimum_resources_have_to_fit_the_ancestors() -> None:
    groups = [
        pod_group("first", "research", minResources={"cpu": "3"}),
        pod_group("second", "production", minResources={"cpu": "2"}),
    ]
    newcomers = [member("first-0", "first", cpu="1"), member("second-0", "second", cpu="1")]
    found = after([node("n", cpu="16"), *TREE, *groups], newcomers, capacity(hierarchy=True))
    assert found.total() == 1
    assert after([node("n", cpu="16"), *TREE, *groups], newcomers, capacity()).total() == 2


def test_capacity_and_proportion_exclude_each_other() -> None:
    tiers = [{"plugins": [{"name": "capacity"}]}, {"plugins": [{"name": "proportion"}]}]
    with pytest.raises(ConfigurationProblem, match=r"tiers\[1\].plugins\[0\].name: capacity and proportion exclude"):
        read_configuration({"tiers": tiers})
    with pytest.raises(ConfigurationProblem, match="hierarchical DRF is not supported"):
        read_configuration({"tiers": [{"plugins": [{"name": "drf", "enableHierarchy": True}]}]})
