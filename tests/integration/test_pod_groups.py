"""Pod groups (semantics 11.6): gangs of all three APIs, from the server's objects to its conditions.

Groups that stay together are in test_pod_group_topology.py, those that preempt behind a gate of their own in
test_pod_group_preemption.py. Not here is TestPodGroupAdmission, which is about the server: tests/apiserver has that.
A gang preempts as a whole or not at all; tests/scheduling has that in detail.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.errors import APIError
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage, Troupe
from tests.scheduling.gangs.groups import APIS, gang_scheduling, member, members

NATIVE = PodGroupAPI.KUBERNETES
ON = gang_scheduling()
VERSIONS = {NATIVE: "v1alpha2", PodGroupAPI.COSCHEDULING: "v1alpha1", PodGroupAPI.VOLCANO: "v1beta1"}


def group(name: str, minimum: int, *, api: PodGroupAPI = NATIVE) -> Object:
    """A pod group as a client sends it."""
    spec: dict[str, Any] = {"minMember": minimum}
    if api is NATIVE:
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}} if minimum else {"basic": {}}}
    return {"apiVersion": f"{api}/{VERSIONS[api]}", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def verdicts(troupe: Troupe, name: str) -> list[tuple[str, str]]:
    """The status and reason of a group's condition, as the scheduler's watch has brought it back."""
    seen = troupe.scheduler.cluster.catalog(PodGroup).get("default", name)
    return [(c.status, c.reason) for c in seen.status.conditions] if seen is not None else []


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_is_scheduled_when_it_fits(stage: Stage, api: PodGroupAPI) -> None:
    await stage.create(node("n"), group("train", 3, api=api), *members(3, "train", api=api, cpu="1"))
    async with stage.scheduler(**ON):
        assert await stage.bound("train-0", "train-1", "train-2") == ["n"] * 3


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_waits_for_its_quorum(stage: Stage, api: PodGroupAPI) -> None:
    first, second, third = members(3, "train", api=api, cpu="1")
    await stage.create(node("n"), group("train", 3, api=api), first, second)
    async with stage.scheduler(**ON) as troupe:
        await troupe.until(lambda: [troupe.place(f"train-{n}") for n in range(2)] == [Place.GATED] * 2)
        await stage.create(third)
        await stage.bound("train-0", "train-1", "train-2")


@pytest.mark.parametrize("api", APIS)
async def test_a_gang_waits_for_its_group_then_for_room(stage: Stage, api: PodGroupAPI) -> None:
    blocker = pod("blocker", cpu="2", priority=100, node="n")
    await stage.create(node("n", cpu="4"), blocker, *members(3, "train", api=api, cpu="1", priority=100))
    async with stage.scheduler(**ON) as troupe:
        await troupe.until(lambda: troupe.place("train-0") is Place.GATED)
        await stage.create(group("train", 3, api=api))
        await stage.refused("train-0", "train-1", "train-2")
        assert "default/train needs 3 pods, 2 of 3 fit" in stage.message("train-1")
        await stage.delete(blocker)
        await stage.bound("train-0", "train-1", "train-2")


async def test_the_condition_of_a_group_follows_its_pods(stage: Stage) -> None:
    blocker = pod("blocker", cpu="2", priority=100, node="n")
    train = members(3, "train", cpu="1", priority=100)
    await stage.create(node("n", cpu="4"), blocker, group("train", 3), *train)
    async with stage.scheduler(**ON) as troupe:
        await troupe.until(lambda: verdicts(troupe, "train") == [("False", "Unschedulable")])
        await stage.delete(blocker)
        await troupe.until(lambda: verdicts(troupe, "train") == [("True", "Scheduled")])


async def test_enough_are_scheduled_and_the_last_one_when_there_is_room(stage: Stage) -> None:
    small = pod("small", cpu="1", priority=100, node="n")
    await stage.create(node("n", cpu="4"), small, group("train", 3), *members(4, "train", cpu="1", priority=100))
    names = [f"train-{number}" for number in range(4)]
    async with stage.scheduler(**ON):
        await stage.until(lambda: sum(bool(stage.node_of(name)) for name in names) == 3)
        await stage.until(lambda: sum(bool(stage.message(name)) for name in names) >= 1)
        await stage.delete(small)
        await stage.bound(*names)


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
async def test_two_gangs_do_not_block_each_other(stage: Stage, first: str, second: str) -> None:
    await stage.create(node("n", cpu="4"), group("a", 3), group("b", 3))
    async with stage.scheduler(**ON):
        for pair in zip(members(3, first, cpu="1"), members(3, second, cpu="1"), strict=True):
            await stage.create(*pair)
        await stage.bound(*(f"{first}-{number}" for number in range(3)))
        await stage.refused(*(f"{second}-{number}" for number in range(3)))
        assert not any(stage.node_of(f"{second}-{number}") for number in range(3))


@pytest.mark.parametrize("minimum", [4, 0], ids=["gang", "basic"])
async def test_a_group_takes_the_places_of_lower_priorities(live_stage: Stage, minimum: int) -> None:
    stage, low = live_stage, pod("low", cpu="2", priority=10, node="n")
    await stage.create(node("n", cpu="4"), low, group("train", minimum), *members(4, "train", cpu="1", priority=100))
    async with stage.scheduler(**ON):
        await stage.bound(*(f"train-{number}" for number in range(4)))
        await stage.gone("low")


async def test_nobody_is_evicted_for_half_a_gang(stage: Stage) -> None:
    low, high = pod("low", cpu="2", priority=1, node="n"), pod("high", cpu="2", priority=100, node="n")
    await stage.create(node("n", cpu="4"), low, high, group("train", 3), *members(3, "train", cpu="1", priority=100))
    async with stage.scheduler(**ON):
        await stage.refused("train-0", "train-1", "train-2")
        assert stage.node_of("low") == "n"
        assert not stage.events("Preempted")


async def test_the_second_of_two_gangs_follows_when_the_first_has_left(stage: Stage) -> None:
    first, second = (members(3, name, cpu="1") for name in "ab")
    await stage.create(node("n", cpu="4"), group("a", 3), group("b", 3))
    async with stage.scheduler(**ON):
        await stage.create(*first)
        await stage.bound("a-0", "a-1", "a-2")
        await stage.create(*second)
        await stage.refused("b-0", "b-1", "b-2")
        for each in first:
            await stage.delete(each)
        await stage.bound("b-0", "b-1", "b-2")


async def test_the_pods_of_a_basic_group_come_one_by_one(stage: Stage) -> None:
    await stage.create(node("n", cpu="2"), group("serve", 0), member("a", "serve", cpu="1"))
    async with stage.scheduler(**ON):
        await stage.bound("a")
        await stage.create(member("b", "serve", cpu="1"), member("c", "serve", cpu="1"))
        await stage.bound("b")
        await stage.refused("c")


async def test_with_the_gates_off_the_field_is_only_a_field(stage: Stage) -> None:
    await stage.create(node("n"), member("a", "train"))
    async with stage.scheduler():
        await stage.bound("a")


async def test_a_server_without_pod_groups_is_good_enough(stage: Stage) -> None:
    """Groups are optional: a server that does not serve them has none."""
    with pytest.raises(APIError):
        await stage.request("GET", "/apis/scheduling.k8s.io/v9/podgroups")
    await stage.create(node("n"), pod("a"))
    async with stage.scheduler(**ON):
        await stage.bound("a")
