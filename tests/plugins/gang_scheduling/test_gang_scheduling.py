"""GangScheduling: gangs of three APIs, PreEnqueue, Permit, queueing hints and the condition PodGroupScheduled."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
import pytest

from kubestow.api.core import Pod
from kubestow.api.scheduling import Condition, PodGroup, PodGroupStatus
from kubestow.cluster.catalog import Described
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.errors import APIError
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.status import Code, Status
from kubestow.plugins.gang_scheduling.plugin import GangScheduling
from kubestow.scheduling.events.resources import WATCHED, watched
from kubestow.simulation.resource_claims import finished_at_once
from kubestow.testing import World, node, pod
from tests.scheduling.gangs.groups import APIS, GATES, group, member, members


class Groups(World):
    """A cluster with a GangScheduling plugin that can patch pod groups."""

    def __init__(self, *pods: Pod, gates: Mapping[str, bool] | None = None) -> None:
        super().__init__([node("n")], gates=GATES if gates is None else gates)
        self.plugin = GangScheduling(None, self)
        #: The number of writes that fail with a conflict.
        self.conflicts = 0
        for each in pods:
            self.know(each)

    def know(self, *pods: Pod) -> None:
        for each in pods:
            self.cluster.pod_groups.put(self.info(each))

    def add(self, obj: Any) -> None:
        self.cluster.catalog(type(obj)).put(obj)

    def gang(self, of: Pod) -> Gang | None:
        return self.plugin.gang_of(self.info(of))

    def conditions(self, name: str = "train") -> list[Condition]:
        found = self.cluster.catalog(PodGroup).get("default", name)
        assert found is not None
        return found.status.conditions

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        finished_at_once(work)

    async def patch(self, obj: Described, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        assert subresource == "status" and isinstance(obj, PodGroup)
        if self.conflicts:
            self.conflicts -= 1
            raise APIError(409, "Conflict", "the object has been modified")
        status = msgspec.convert(changes["status"], PodGroupStatus)
        self.add(msgspec.structs.replace(obj, status=status))
        return "2"


@pytest.mark.parametrize("api", APIS)
def test_a_pod_names_its_group_as_the_api_defines_it(api: PodGroupAPI) -> None:
    info = World().info(member("a", "train", api=api))
    assert list(memberships(info)) == [PodGroupName(api, "default", "train")]


def test_a_kubernetes_pod_group_takes_precedence_over_other_apis() -> None:
    world = Groups()
    both = pod("a", labels={"scheduling.x-k8s.io/pod-group": "b"}, spec={"schedulingGroup": {"podGroupName": "a"}})
    world.know(both)
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
    world.know(member("train-2", "train"))
    assert world.plugin.pre_enqueue(first).ok


def test_terminating_pods_do_not_count() -> None:
    world = Groups(member("a", "train", deleting=True), member("b", "train"))
    world.add(group("train", 2))
    assert not world.plugin.pre_enqueue(world.info(member("b", "train"))).ok


def test_a_pod_without_its_group_label_is_no_longer_a_member() -> None:
    api = PodGroupAPI.COSCHEDULING
    world = Groups(member("a", "train", api=api))
    world.know(pod("a"))
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
    world.know(new)
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


def attempt_ended(world: Groups, outcome: GangOutcome, message: str = "") -> list[tuple[str, str, str]]:
    gang = world.gang(member("a", "train"))
    assert gang is not None
    world.plugin.attempt_ended(gang, outcome, message)
    return [(c.status, c.reason, c.message) for c in world.conditions()]


def test_the_condition_reports_the_outcome_and_stays_true() -> None:
    world = Groups()
    world.add(group("train", 2))
    assert attempt_ended(world, GangOutcome.UNSCHEDULABLE, "too big") == [("False", "Unschedulable", "too big")]
    assert attempt_ended(world, GangOutcome.ERROR, "oops") == [("False", "SchedulerError", "oops")]
    assert attempt_ended(world, GangOutcome.SCHEDULED) == [("True", "Scheduled", "")]
    assert attempt_ended(world, GangOutcome.UNSCHEDULABLE, "a pod is gone") == [("True", "Scheduled", "")]


def test_other_conditions_are_preserved() -> None:
    world = Groups()
    other = Condition(type="Other", status="True", reason="X", last_transition_time="2026-01-01T00:00:00Z")
    train = group("train", 2)
    assert isinstance(train, PodGroup)
    world.add(msgspec.structs.replace(train, status=PodGroupStatus(conditions=[other])))
    attempt_ended(world, GangOutcome.SCHEDULED)
    assert world.conditions()[0] == other


def test_a_write_is_retried_after_a_conflict() -> None:
    world = Groups()
    world.add(group("train", 2))
    world.conflicts = 2
    assert attempt_ended(world, GangOutcome.SCHEDULED) == [("True", "Scheduled", "")]


def test_pod_groups_of_other_apis_have_no_condition() -> None:
    api = PodGroupAPI.VOLCANO
    world = Groups()
    world.add(group("train", 2, api=api))
    gang = world.gang(member("a", "train", api=api))
    assert gang is not None
    world.plugin.attempt_ended(gang, GangOutcome.SCHEDULED, "")
    assert not list(world.cluster.catalog(PodGroup))
