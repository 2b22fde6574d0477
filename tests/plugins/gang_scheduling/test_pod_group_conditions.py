"""The condition PodGroupScheduled of Kubernetes' pod groups (semantics 4.10)."""

from __future__ import annotations

import msgspec

from kubestow.api.scheduling import Condition, PodGroup, PodGroupStatus
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.framework.gang import GangOutcome
from tests.plugins.gang_scheduling.fixture import Groups
from tests.scheduling.gangs.groups import group, member


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
