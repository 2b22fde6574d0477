"""What an attempt to schedule a gang makes of the failures of its pods."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import Shapes
from kubestow.framework.event_registration import EVERYTHING
from kubestow.framework.gang import Gang, Segments
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.cycle.failure_handler import SchedulingFailure
from kubestow.scheduling.gangs.attempt import GangAttempt, MemberFailure
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import pod

#: A profile with a plugin for gangs.
FILTERS = [
    SimpleNamespace(name="Ports", events_to_register=()),
    SimpleNamespace(name="Any", events_to_register=EVERYTHING),
]
PLUGINS = SimpleNamespace(gang_source=SimpleNamespace(name="Gangs"), placement_generate=None, filter=FILTERS)
PROFILE: Any = SimpleNamespace(runtime=SimpleNamespace(plugins=PLUGINS))
NO = Status.unschedulable("no")


def failure(
    status: Status = NO, *, rejectors: set[str] | None = None, pending: set[str] | None = None, **same: Any
) -> MemberFailure:
    queued = QueuedPod(Shapes().info(pod("a")), 0.0)
    return MemberFailure(queued, status, "why", frozenset(rejectors or ()), frozenset(pending or ()), **same)


def attempt(*failures: MemberFailure, keeps_nominations: bool | None = None) -> GangAttempt:
    gang = Gang("train", "uid-train", 2, 300.0, Members({}.keys(), {}, {}))
    queued = [each.queued for each in failures]
    return GangAttempt(gang, PROFILE, queued, 0.0, failures=list(failures), keeps_nominations=keeps_nominations)


def test_a_gang_waits_for_all_plugins_that_rejected_its_pods() -> None:
    tried = attempt(failure(rejectors={"Fit"}), failure(rejectors={"Ports"}, pending={"Devices"}))
    assert tried.failure("too few") == SchedulingFailure(
        "Unschedulable", "too few", frozenset({"Gangs", "Fit", "Ports"}), frozenset({"Devices"}), ""
    )


@pytest.mark.parametrize(
    ("search", "segments", "helps"),
    [
        (SUCCESS, None, False),
        (SUCCESS, Segments("rack", 2), True),
        (Status.unschedulable("there is no placement"), None, True),
    ],
    ids=["one pod", "whole segments", "no placement exists"],
)
def test_another_node_for_any_pod_may_help_a_gang_that_does_not_fit_together(
    search: Status, segments: Segments | None, helps: bool
) -> None:
    """Of the plugins with events of their own; those of every event count if they have rejected a pod."""
    tried = attempt(failure(rejectors={"Any"}))
    tried.search, tried.gang = search, replace(tried.gang, segments=segments)
    expected = {"Gangs", "Any"} | ({"Ports"} if helps else set())
    assert tried.failure("too few").rejectors == expected
    tried = attempt(failure(rejectors={"Fit"}))
    tried.search, tried.gang = search, replace(tried.gang, segments=segments)
    assert tried.failure("too few").rejectors == {"Gangs", "Fit"} | ({"Ports"} if helps else set())


def test_a_gang_with_a_pod_that_no_plugin_rejected_is_retried_soon() -> None:
    tried = attempt(failure(rejectors={"Fit"}, pending={"Devices"}), failure())
    assert tried.failure("too few") == SchedulingFailure("Unschedulable", "too few", nomination="")


def test_an_error_of_one_pod_is_an_error_of_its_gang() -> None:
    tried = attempt(failure(rejectors={"Fit"}), failure(Status.error("broken")))
    message = "failed to schedule other pod from a pod group: too few"
    assert tried.failure("too few") == SchedulingFailure("SchedulerError", message, nomination="")


@pytest.mark.parametrize(
    ("of_gang", "of_pods", "nomination"),
    [
        (None, [False, False], ""),
        (None, [False, True], None),
        (True, [False, False], None),
        (False, [True, True], ""),
    ],
)
def test_the_pods_keep_their_nominations_if_the_gang_or_else_one_of_them_does(
    of_gang: bool | None, of_pods: list[bool], nomination: str | None
) -> None:
    tried = attempt(*(failure(keeps_nomination=keeps) for keeps in of_pods), keeps_nominations=of_gang)
    assert tried.failure("too few").nomination == nomination


@pytest.mark.parametrize(("keeps_nominations", "nomination"), [(True, None), (False, ""), (None, "")])
def test_a_pod_beyond_the_minimum_waits_for_its_own_plugins_and_those_of_the_gang(
    keeps_nominations: bool | None, nomination: str | None
) -> None:
    tried = attempt(keeps_nominations=keeps_nominations)
    rejected = failure(rejectors={"Fit"}, pending={"Devices"})
    assert tried.failure_of(rejected) == SchedulingFailure(
        "Unschedulable", "why", frozenset({"Gangs", "Fit"}), frozenset({"Devices"}), nomination
    )
    failed = failure(Status.error("broken"))
    assert tried.failure_of(failed) == SchedulingFailure("SchedulerError", "why", nomination=nomination)
