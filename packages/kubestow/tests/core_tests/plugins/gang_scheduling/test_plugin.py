"""GangScheduling: gangs of Kubernetes and another project, PreEnqueue, Permit and queueing hints (semantics 8.18)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.plugins.gang_scheduling.fixture import Groups
from core_tests.scheduling.gangs.groups import APIS, TEAMS, group, member, members
from kubestow.api.core import Pod
from kubestow.api.resource import DeviceTaintRule
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName
from kubestow.framework.gang import Segments
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.events.resources import WATCHED, resource_of, watched
from kubestow.testing import PluginHarness, pod

PODGROUPS = resource_of(PodGroup)


@pytest.mark.parametrize("api", APIS)
def test_a_pod_names_its_group_as_the_api_defines_it(api: PodGroupAPI) -> None:
    harness = PluginHarness(pod_group_apis=[TEAMS])
    info = harness.info(member("a", "train", api=api))
    assert list(harness.cluster.pod_groups.memberships(info)) == [PodGroupName(api.name, "default", "train")]


def test_a_kubernetes_pod_group_takes_precedence_over_other_apis() -> None:
    harness = Groups()
    both = pod("a", labels={"team": "b"}, spec={"schedulingGroup": {"podGroupName": "a"}})
    harness.add_pods(both)
    harness.add(group("a", 2))
    harness.add(group("b", 2, api=TEAMS))
    gang = harness.gang(both)
    assert gang is not None and str(gang.name) == "default/a"


@pytest.mark.parametrize("api", APIS)
def test_a_gang_has_the_minimum_count_of_its_group(api: PodGroupAPI) -> None:
    harness = Groups(*members(2, "train", api=api))
    harness.add(group("train", 7, api=api))
    gang = harness.gang(member("train-0", "train", api=api))
    assert gang is not None
    assert (gang.min_count, gang.timeout, len(gang.members.pods)) == (7, 300.0, 2)


def test_without_the_gate_only_pod_groups_of_other_apis_are_read_and_watched() -> None:
    harness = Groups(gates={})
    harness.add(group("train", 2))
    assert harness.gang(member("a", "train")) is None
    assert [resource.prefix for resource in watched(harness.plugin.kinds) if resource not in WATCHED] == [
        "/apis/example.com/v1"
    ]
    assert PODGROUPS not in watched(harness.plugin.kinds)


def test_without_a_gang_plugin_no_pod_groups_are_watched() -> None:
    assert set(WATCHED) - set(watched(())) == {PODGROUPS, resource_of(DeviceTaintRule)}


def test_a_pod_is_gated_until_its_group_exists() -> None:
    harness = Groups()
    a = harness.info(member("a", "train"))
    status = harness.plugin.pre_enqueue(a)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == 'waiting for pods\'s pod group "train" to appear in scheduling queue'


def test_a_pod_is_gated_until_its_gang_is_complete() -> None:
    harness = Groups(*members(2, "train"))
    harness.add(group("train", 3))
    first = harness.info(member("train-0", "train"))
    assert harness.plugin.pre_enqueue(first).message.startswith(
        "waiting for minCount pods from a gang to appear in scheduling queue"
    )
    harness.add_pods(member("train-2", "train"))
    assert harness.plugin.pre_enqueue(first).ok


def test_terminating_pods_do_not_count() -> None:
    harness = Groups(member("a", "train", deleting=True), member("b", "train"))
    harness.add(group("train", 2))
    assert not harness.plugin.pre_enqueue(harness.info(member("b", "train"))).ok


def test_a_pod_without_its_group_label_is_no_longer_a_member() -> None:
    api = TEAMS
    harness = Groups(member("a", "train", api=api))
    harness.add_pods(pod("a"))
    assert len(harness.cluster.pod_groups) == 0


def requeues(harness: Groups, waiting: Pod, event: ClusterEvent, old: Any, new: Any) -> bool:
    """Whether the plugin's hints requeue a pod after an event."""
    matching = [registration for registration in harness.plugin.events_to_register if registration.event.matches(event)]
    info = harness.info(waiting)
    return any(registration.hint is None or registration.hint(info, old, new) for registration in matching)


POD_ADDED = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.ADD)
GROUP_ADDED = ClusterEvent(EventResource.POD_GROUP, Action.ADD)
GROUP_CHANGED = ClusterEvent(EventResource.POD_GROUP, Action.UPDATE)


@pytest.mark.parametrize(("of", "minimum", "requeued"), [("train", 2, True), ("train", 3, False), ("other", 2, False)])
def test_a_pod_that_completes_its_gang_requeues_the_others(of: str, minimum: int, requeued: bool) -> None:
    harness = Groups(member("a", "train"))
    harness.add(group("train", minimum))
    new = member("b", of)
    harness.add_pods(new)
    assert requeues(harness, member("a", "train"), POD_ADDED, None, harness.info(new)) is requeued


def test_a_new_or_changed_group_requeues_its_pods() -> None:
    harness, waiting = Groups(), member("a", "train")
    assert requeues(harness, waiting, GROUP_ADDED, None, group("train", 1))
    assert not requeues(harness, waiting, GROUP_ADDED, None, group("other", 1))
    assert requeues(harness, waiting, GROUP_CHANGED, group("train", 2), group("train", 1))
    assert not requeues(harness, waiting, GROUP_CHANGED, group("train", 1), group("train", 1))


def test_permit_rejects_a_pod_while_too_few_members_are_placed() -> None:
    harness = Groups(*members(2, "train"))
    harness.add(group("train", 2))
    infos = [harness.info(each) for each in members(2, "train")]
    harness.cluster.assume(infos[0], "n")
    state = harness.decide(pod("any")).state
    rejected = harness.plugin.permit(state, infos[0], "n")
    assert rejected == Status.unschedulable("waiting for minCount pods from a gang to be scheduled")
    harness.cluster.assume(infos[1], "n")
    assert getattr(harness.plugin.permit(state, infos[1], "n"), "ok", False)


def annotated(**annotations: str) -> PodGroup:
    """The group ``train`` with annotations of kubestow, given with underscores for hyphens."""
    made = group("train", 2)
    written = {f"kubestow.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return replace(made, metadata=replace(made.metadata, annotations=written))  # type: ignore[no-any-return]


def terms_of(made: PodGroup) -> tuple[Segments | None, list[tuple[str, Segments | None]]]:
    """The segments that a group requires, and what it prefers to that."""
    harness = Groups(*members(2, "train"))
    harness.add(made)
    gang = harness.gang(member("train-0", "train"))
    assert gang is not None
    return gang.segments, [(each.level, each.segments) for each in gang.preferences]


def test_a_pod_without_a_group_is_not_gated() -> None:
    harness = Groups()
    info = harness.info(pod("alone"))
    assert harness.plugin.pre_enqueue(info) == SUCCESS
    assert harness.gang(info.pod) is None


def test_a_group_requires_and_prefers_segments_by_annotations() -> None:
    racks, blocks = Segments("rack", 4), Segments("block", 4)
    assert terms_of(annotated()) == (None, [])
    assert terms_of(annotated(segment_size="4", segment_topology="rack")) == (racks, [])
    preferring = annotated(segment_size="4", segment_topology="block", segment_preferred_topology="rack")
    assert terms_of(preferring) == (blocks, [("", racks)])
    assert terms_of(annotated(segment_size="4", segment_preferred_topology="rack,block")) == (
        None,
        [("", racks), ("", blocks)],
    )


def test_a_narrow_domain_of_the_whole_group_is_preferred_to_those_of_its_segments() -> None:
    assert terms_of(annotated(preferred_topology="rack, ,block")) == (None, [("rack", None), ("block", None)])
    both = annotated(preferred_topology="block", segment_size="2", segment_preferred_topology="rack")
    racks = Segments("rack", 2)
    assert terms_of(both) == (None, [("block", racks), ("block", None), ("", racks)])


@pytest.mark.parametrize(
    "annotations",
    [
        {"segment_size": "2"},
        {"segment_topology": "rack"},
        {"segment_preferred_topology": "rack"},
        {"segment_size": "two", "segment_topology": "rack"},
        {"segment_size": "-2", "segment_topology": "rack"},
        {"segment_size": "0", "segment_topology": "rack"},
    ],
)
def test_segments_have_a_size_and_a_key(annotations: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected a number and a key"):
        terms_of(annotated(**annotations))
