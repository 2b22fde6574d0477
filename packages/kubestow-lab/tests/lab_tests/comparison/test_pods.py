"""What differs between the outcomes of two simulations."""

from __future__ import annotations

import pytest

from kubestow_lab.comparison.pods import Change, difference_groups, pod_differences
from kubestow_lab.simulation.outcomes import PodOutcome, PodState

RUNNING, COMPLETED, PENDING, PREEMPTED = (
    PodState.RUNNING,
    PodState.COMPLETED,
    PodState.PENDING,
    PodState.PREEMPTED,
)


def outcome(name: str, state: PodState = RUNNING, node: str = "a", message: str = "") -> PodOutcome:
    node = "" if state is PENDING else node
    return PodOutcome("default", name, "ReplicaSet/web", 0, 0.0, state=state, node=node, message=message)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (outcome("p"), outcome("p"), None),
        (outcome("p"), outcome("p", COMPLETED), None),
        (outcome("p", PENDING), outcome("p", PENDING, message="another reason"), None),
        (outcome("p"), outcome("p", node="b"), Change.MOVED),
        (outcome("p", COMPLETED), outcome("p", COMPLETED, node="b"), Change.MOVED),
        (outcome("p"), outcome("p", PENDING), Change.LOST),
        (outcome("p", PENDING), outcome("p"), Change.WON),
        (outcome("p"), outcome("p", PREEMPTED), Change.PREEMPTED),
        (None, outcome("p", PREEMPTED), Change.PREEMPTED),
        (outcome("p", PREEMPTED), None, Change.SPARED),
        (outcome("p", PREEMPTED), outcome("p", PREEMPTED), None),
        (None, outcome("p"), Change.ADDED),
        (outcome("p"), None, Change.MISSING),
    ],
)
def test_a_pod_has_one_change_or_none(
    before: PodOutcome | None, after: PodOutcome | None, change: Change | None
) -> None:
    found = pod_differences([before] if before else [], [after] if after else [])
    assert [difference.change for difference in found] == ([] if change is None else [change])


def test_pods_of_one_name_are_compared_in_order() -> None:
    before = [outcome("web-0", PREEMPTED), outcome("web-0", node="b")]
    after = [outcome("web-0", PREEMPTED), outcome("web-0", PENDING)]
    assert [difference.change for difference in pod_differences(before, after)] == [Change.LOST]


def test_groups_have_one_change_owner_and_reason() -> None:
    before = [outcome(f"p{i}") for i in range(5)]
    after = [
        outcome("p0", node="b"),
        outcome("p1", PENDING, message="x"),
        outcome("p2", PENDING, message="x"),
        outcome("p3", PENDING, message="y"),
        outcome("p4"),
    ]
    groups = difference_groups(pod_differences(before, after))
    assert [(group.change, group.reason, group.pods) for group in groups] == [
        (Change.LOST, "x", ("default/p1", "default/p2")),
        (Change.LOST, "y", ("default/p3",)),
        (Change.MOVED, "", ("default/p0",)),
    ]
