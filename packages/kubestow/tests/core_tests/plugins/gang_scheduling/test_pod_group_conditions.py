"""The condition PodGroupScheduled of Kubernetes' pod groups (semantics 4.10)."""

from __future__ import annotations

import msgspec

from core_tests.plugins.gang_scheduling.fixture import Groups
from core_tests.scheduling.gangs.groups import TEAMS, group, member
from kubestow.api.scheduling import Condition, PodGroup, PodGroupStatus
from kubestow.framework.gang import GangOutcome


def attempt_ended(harness: Groups, outcome: GangOutcome, message: str = "") -> list[tuple[str, str, str]]:
    gang = harness.gang(member("a", "train"))
    assert gang is not None
    harness.plugin.attempt_ended(gang, outcome, message)
    return [(c.status, c.reason, c.message) for c in harness.conditions()]


def test_the_condition_reports_the_outcome_and_stays_true() -> None:
    harness = Groups()
    harness.add(group("train", 2))
    assert attempt_ended(harness, GangOutcome.UNSCHEDULABLE, "too big") == [("False", "Unschedulable", "too big")]
    assert attempt_ended(harness, GangOutcome.ERROR, "oops") == [("False", "SchedulerError", "oops")]
    assert attempt_ended(harness, GangOutcome.SCHEDULED) == [("True", "Scheduled", "")]
    assert attempt_ended(harness, GangOutcome.UNSCHEDULABLE, "a pod is gone") == [("True", "Scheduled", "")]


def test_other_conditions_are_preserved() -> None:
    harness = Groups()
    other = Condition(type="Other", status="True", reason="X", last_transition_time="2026-01-01T00:00:00Z")
    train = group("train", 2)
    assert isinstance(train, PodGroup)
    harness.add(msgspec.structs.replace(train, status=PodGroupStatus(conditions=[other])))
    attempt_ended(harness, GangOutcome.SCHEDULED)
    assert harness.conditions()[0] == other


def test_a_write_is_retried_after_a_conflict() -> None:
    harness = Groups()
    harness.add(group("train", 2))
    harness.conflicts = 2
    assert attempt_ended(harness, GangOutcome.SCHEDULED) == [("True", "Scheduled", "")]


def test_pod_groups_of_other_apis_have_no_condition() -> None:
    api = TEAMS
    harness = Groups()
    harness.add(group("train", 2, api=api))
    gang = harness.gang(member("a", "train", api=api))
    assert gang is not None
    harness.plugin.attempt_ended(gang, GangOutcome.SCHEDULED, "")
    assert not list(harness.cluster.catalog(PodGroup))
