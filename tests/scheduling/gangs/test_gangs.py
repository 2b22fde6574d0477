"""Gangs: all their pods are scheduled, or none (semantics 11.6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kubestow.api.core import Pod
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.plugins.gang_scheduling.plugin import GangScheduling
from kubestow.testing import node, pod
from tests.scheduling.gangs.groups import APIS, gang_scheduling, group, member, members
from tests.scheduling.running import Living, in_virtual_time

BLOCKER = pod("blocker", cpu="2", priority=100, node="n")
BOTH = gang_scheduling()
INCOMPLETE = "waiting for minCount pods from a gang to appear in scheduling queue"
OF_THREE = "of the 3 pods that pod group default/train needs are there"


def running(world: Living, pods: Sequence[Pod]) -> int:
    """How many of some pods have a node."""
    return sum(bool(world.node_of(pod.metadata.name)) for pod in pods)


def put(world: Living, pods: Sequence[Pod]) -> None:
    for each in pods:
        world.cluster.put(each)


def verdict(world: Living, name: str) -> tuple[str, str] | None:
    """The status and reason of a group's condition."""
    conditions = world.cluster.objects(PodGroup)["default", name].status.conditions
    return next(((c.status, c.reason) for c in conditions if c.type == "PodGroupScheduled"), None)


def why(world: Living, name: str) -> str:
    condition = world.cluster.condition(name)
    return "" if condition is None else condition.message


@pytest.mark.parametrize("api", APIS)
def test_a_gang_that_fits_is_scheduled(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1")

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 3

    in_virtual_time(story, node("n", cpu="4"), group("train", 3, api=api), **BOTH)


@pytest.mark.parametrize("api", APIS)
def test_a_gang_that_does_not_fit_holds_nothing(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="2")

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 0
        world.cluster.put(pod("other", cpu="4"))
        await world.settles()
        assert world.node_of("other") == "n"

    in_virtual_time(story, node("n", cpu="4"), group("train", 3, api=api), **BOTH)


def test_without_its_gate_a_field_of_the_api_means_nothing() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(member("a", "train"))
        await world.settles()
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"), profiles=gang_scheduling()["profiles"])


def test_without_the_plugin_labels_mean_nothing() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(member("a", "train", api=PodGroupAPI.COSCHEDULING))
        await world.settles()
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"), group("train", 3, api=PodGroupAPI.COSCHEDULING))


def test_a_group_whose_pods_are_scheduled_says_so() -> None:
    async def story(world: Living) -> None:
        put(world, members(3, "train", cpu="1"))
        await world.settles()
        assert verdict(world, "train") == ("True", "Scheduled")

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)


def test_a_gang_waits_until_enough_of_its_pods_are_there() -> None:
    gang = members(3, "train", cpu="1")

    async def story(world: Living) -> None:
        put(world, gang[:2])
        await world.passes(60)
        assert running(world, gang[:2]) == 0
        assert "2 of the 3 pods that pod group default/train needs are there" in why(world, "train-0")
        world.cluster.put(gang[2])
        await world.settles()
        assert running(world, gang) == 3

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)


def test_a_pod_that_waits_for_its_siblings_is_promised_nothing() -> None:
    waiting = member("train-0", "train", cpu="4", priority=100, nominated="n")

    async def story(world: Living) -> None:
        world.cluster.put(pod("other", cpu="4"))
        await world.passes(10)
        assert world.node_of("other") == "n"
        assert world.cluster.pod("train-0").status.nominated_node_name == ""

    in_virtual_time(story, node("n", cpu="4"), group("train", 2), waiting, **BOTH)


def test_who_has_only_just_come_is_not_told_early() -> None:
    async def story(world: Living) -> None:
        put(world, members(1, "train"))
        await world.passes(2)
        world.cluster.put(member("late", "train"))
        await world.passes(1.5)
        assert (why(world, "train-0"), why(world, "late")) == (f"{INCOMPLETE}: 2 {OF_THREE}", "")
        await world.passes(3)
        assert why(world, "late") == f"{INCOMPLETE}: 2 {OF_THREE}"

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)


def test_pods_that_come_one_by_one_are_not_asked_about_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    hint, gang = GangScheduling._is_schedulable_after_pod_added, members(20, "train", cpu="100m")

    def completes(self: GangScheduling, pod: PodInfo, old: None, new: PodInfo) -> bool:
        asked.append(pod.name)
        return hint(self, pod, old, new)

    monkeypatch.setattr(GangScheduling, "_is_schedulable_after_pod_added", completes)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 20
        assert len(asked) <= 20

    in_virtual_time(story, node("n", cpu="4"), group("train", 20), **BOTH)


def test_who_knows_of_fewer_is_told_again() -> None:
    async def story(world: Living) -> None:
        put(world, members(1, "train"))
        await world.passes(5)
        assert why(world, "train-0") == f"{INCOMPLETE}: 1 {OF_THREE}"
        world.cluster.put(member("late", "train"))
        await world.passes(5)
        assert why(world, "train-0") == f"{INCOMPLETE}: 2 {OF_THREE}"

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)


def test_who_waits_for_siblings_once_more_has_the_same_time_again() -> None:
    gang = members(2, "train", cpu="8")

    async def story(world: Living) -> None:
        put(world, gang[:1])
        await world.passes(0.5)
        world.cluster.put(gang[1])
        await world.passes(1.5)
        world.cluster.remove(gang[1])
        world.cluster.put(node("bigger", cpu="16"))
        await world.passes(1.5)
        assert INCOMPLETE not in why(world, "train-0")
        await world.passes(3)
        assert INCOMPLETE in why(world, "train-0")

    in_virtual_time(story, node("n", cpu="2"), group("train", 2), **BOTH)


def test_pods_with_scheduling_gates_do_not_count() -> None:
    gang = [*members(2, "train", cpu="1"), member("gated", "train", cpu="1", gates=("quota",))]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 0
        world.cluster.put(member("gated", "train", cpu="1"))
        await world.settles()
        assert running(world, gang) == 3

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)


@pytest.mark.parametrize("api", APIS)
def test_a_gang_waits_for_its_group_then_for_room(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(10)
        assert why(world, "train-0") == 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        world.cluster.put(group("train", 3, api=api))
        await world.settles()
        assert running(world, gang) == 0
        assert "pod group is unschedulable: default/train needs 3 pods, 2 of 3 fit" in why(world, "train-1")
        world.cluster.remove(BLOCKER)
        await world.passes(5)
        assert running(world, gang) == 3

    in_virtual_time(story, node("n", cpu="4"), BLOCKER, **BOTH)


def test_the_groups_condition_follows_what_becomes_of_it() -> None:
    async def story(world: Living) -> None:
        put(world, members(3, "train", cpu="1", priority=100))
        await world.settles()
        assert verdict(world, "train") == ("False", "Unschedulable")
        world.cluster.remove(BLOCKER)
        await world.passes(5)
        assert verdict(world, "train") == ("True", "Scheduled")

    in_virtual_time(story, node("n", cpu="4"), BLOCKER, group("train", 3), **BOTH)


def test_who_is_left_over_waits_like_any_other_pod() -> None:
    gang = members(4, "train", cpu="1", priority=100)
    small = pod("small", cpu="1", priority=100, node="n")

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 3
        world.cluster.remove(small)
        await world.passes(5)
        assert running(world, gang) == 4

    in_virtual_time(story, node("n", cpu="4"), small, group("train", 3), **BOTH)


@pytest.mark.parametrize("first, second", [("a", "b"), ("b", "a")])
def test_of_two_gangs_that_fit_only_one_at_a_time_the_first_to_be_complete_runs(first: str, second: str) -> None:
    ahead, behind = members(3, first, cpu="1"), members(3, second, cpu="1")

    async def story(world: Living) -> None:
        for pair in zip(ahead, behind, strict=True):
            put(world, pair)
        await world.settles()
        assert (running(world, ahead), running(world, behind)) == (3, 0)
        for each in ahead:
            world.cluster.remove(each)
        await world.passes(15)
        assert running(world, behind) == 3

    in_virtual_time(story, node("n", cpu="4"), group("a", 3), group("b", 3), **BOTH)


def test_a_stuck_gang_does_not_block_the_head_of_the_queue() -> None:
    async def story(world: Living) -> None:
        put(world, members(3, "train", cpu="8", priority=1000))
        for number in range(20):
            world.cluster.put(pod(f"other-{number}", cpu="100m"))
        await world.passes(1)
        assert all(world.node_of(f"other-{number}") for number in range(20))

    in_virtual_time(story, node("n", cpu="4"), group("train", 3), **BOTH)


def test_a_stuck_gang_is_not_tried_again_without_a_reason() -> None:
    async def story(world: Living) -> None:
        put(world, members(3, "train", cpu="8"))
        await world.settles()
        told = len(world.cluster.events)
        await world.passes(60)
        assert len(world.cluster.events) == told == 3

    in_virtual_time(story, node("n", cpu="4"), group("train", 3), **BOTH)


def test_the_pods_of_a_basic_group_need_each_other_for_nothing() -> None:
    pods = members(3, "serve", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, pods[:1])
        await world.settles()
        assert running(world, pods[:1]) == 1
        put(world, pods[1:])
        await world.settles()
        assert running(world, pods) == 2
        world.cluster.remove(BLOCKER)
        await world.passes(5)
        assert running(world, pods) == 3

    in_virtual_time(story, node("n", cpu="4"), BLOCKER, group("serve", 0), **BOTH)


def test_choosy_pods_go_first_where_the_ordinary_order_is_too_greedy() -> None:
    gang = [
        member("any", "train", cpu="2", priority=10),
        member("choosy", "train", cpu="2", node_selector={"kubernetes.io/hostname": "a"}),
    ]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert [world.node_of("any"), world.node_of("choosy")] == ["b", "a"]

    full = pod("full", cpu="2", node="b")
    in_virtual_time(story, node("a", cpu="2"), node("b", cpu="4"), full, group("train", 2), **BOTH)


def test_a_gang_must_be_of_one_scheduler() -> None:
    gang = [*members(2, "train"), member("stray", "train", scheduler="other")]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        assert running(world, gang) == 0
        assert 'got: "default-scheduler" and "other"' in why(world, "train-0")

    in_virtual_time(story, node("n"), group("train", 3), **BOTH)
