"""GangScheduling: gangs of three APIs, PreEnqueue, Permit and queueing hints (semantics 8.18)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.framework.status import Code, Status
from kubestow.scheduling.events.resources import WATCHED, watched
from kubestow.testing import World, pod
from tests.plugins.gang_scheduling.fixture import Groups
from tests.scheduling.gangs.groups import APIS, group, member, members


@pytest.mark.parametrize("api", APIS)
def test_a_pod_names_its_group_as_the_api_defines_it(api: PodGroupAPI) -> None:
    info = World().info(member("a", "train", api=api))
    assert list(memberships(info)) == [PodGroupName(api, "default", "train")]


def test_a_kubernetes_pod_group_takes_precedence_over_other_apis() -> None:
    world = Groups()
    both = pod("a", labels={"scheduling.x-k8s.io/pod-group": "b"}, spec={"schedulingGroup": {"podGroupName": "a"}})
    world.add_pods(both)
    world.add(group("a", 2))
    world.add(group("b", 2, api=PodGroupAPI.COSCHEDULING))
    gang = world.gang(both)
    assert gang is not None and str(gang.name) == "default/a"


@pytest.mark.parametrize("api", APIS)
def test_a_gang_has_the_minimum_count_of_its_group(api: PodGroupAPI) -> None:
    world = Groups(*members(2, "train", api=api))
    world.add(group("train", 7, api=api))
    gang = world.gang(member("train-0", "train", api=api))
    assert gang is not None
    assert (gang.min_count, gang.timeout, len(gang.members.pods)) == (7, 300.0, 2)


def test_without_the_gate_only_pod_groups_of_other_apis_are_read_and_watched() -> None:
    world = Groups(gates={})
    world.add(group("train", 2))
    assert world.gang(member("a", "train")) is None
    prefixes = {r.prefix for r in watched(world.plugin.kinds) if r.plural == "podgroups"}
    assert prefixes == {"/apis/scheduling.x-k8s.io/v1alpha1", "/apis/scheduling.volcano.sh/v1beta1"}


def test_without_a_gang_plugin_no_pod_groups_are_watched() -> None:
    assert len(WATCHED) - len(watched(())) == len(APIS)


def test_a_pod_is_gated_until_its_group_exists() -> None:
    world = Groups()
    a = world.info(member("a", "train"))
    status = world.plugin.pre_enqueue(a)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == 'waiting for pods\'s pod group "train" to appear in scheduling queue'


def test_a_pod_is_gated_until_its_gang_is_complete() -> None:
    world = Groups(*members(2, "train"))
    world.add(group("train", 3))
    first = world.info(member("train-0", "train"))
    assert world.plugin.pre_enqueue(first).message.startswith(
        "waiting for minCount pods from a gang to appear in scheduling queue"
    )
    world.add_pods(member("train-2", "train"))
    assert world.plugin.pre_enqueue(first).ok


def test_terminating_pods_do_not_count() -> None:
    world = Groups(member("a", "train", deleting=True), member("b", "train"))
    world.add(group("train", 2))
    assert not world.plugin.pre_enqueue(world.info(member("b", "train"))).ok


def test_a_pod_without_its_group_label_is_no_longer_a_member() -> None:
    api = PodGroupAPI.COSCHEDULING
    world = Groups(member("a", "train", api=api))
    world.add_pods(pod("a"))
    assert len(world.cluster.pod_groups) == 0


def requeues(world: Groups, waiting: Pod, event: ClusterEvent, old: Any, new: Any) -> bool:
    """Whether the plugin's hints requeue a pod after an event."""
    matching = [registration for registration in world.plugin.events_to_register if registration.event.matches(event)]
    info = world.info(waiting)
    return any(registration.hint is None or registration.hint(info, old, new) for registration in matching)


POD_ADDED = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.ADD)
GROUP_ADDED = ClusterEvent(EventResource.POD_GROUP, Action.ADD)
GROUP_CHANGED = ClusterEvent(EventResource.POD_GROUP, Action.UPDATE)


@pytest.mark.parametrize(("of", "minimum", "requeued"), [("train", 2, True), ("train", 3, False), ("other", 2, False)])
def test_a_pod_that_completes_its_gang_requeues_the_others(of: str, minimum: int, requeued: bool) -> None:
    world = Groups(member("a", "train"))
    world.add(group("train", minimum))
    new = member("b", of)
    world.add_pods(new)
    assert requeues(world, member("a", "train"), POD_ADDED, None, world.info(new)) is requeued


def test_a_new_or_changed_group_requeues_its_pods() -> None:
    world, waiting = Groups(), member("a", "train")
    assert requeues(world, waiting, GROUP_ADDED, None, group("train", 1))
    assert not requeues(world, waiting, GROUP_ADDED, None, group("other", 1))
    assert requeues(world, waiting, GROUP_CHANGED, group("train", 2), group("train", 1))
    assert not requeues(world, waiting, GROUP_CHANGED, group("train", 1), group("train", 1))


def test_permit_rejects_a_pod_while_too_few_members_are_placed() -> None:
    world = Groups(*members(2, "train"))
    world.add(group("train", 2))
    infos = [world.info(each) for each in members(2, "train")]
    world.cluster.assume(infos[0], "n")
    state = world.decide(pod("any")).state
    rejected = world.plugin.permit(state, infos[0], "n")
    assert rejected == Status.unschedulable("waiting for minCount pods from a gang to be scheduled")
    world.cluster.assume(infos[1], "n")
    assert getattr(world.plugin.permit(state, infos[1], "n"), "ok", False)
