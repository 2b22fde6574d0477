"""What differs between the outcomes of two simulations."""

from __future__ import annotations

import pytest

from kubestow_lab.comparison.pod_differences import PodChange, difference_groups, pod_differences
from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome

RUNNING, COMPLETED, PENDING, PREEMPTED = (
    OutcomeState.RUNNING,
    OutcomeState.COMPLETED,
    OutcomeState.PENDING,
    OutcomeState.PREEMPTED,
)


def outcome(name: str, state: OutcomeState = RUNNING, node: str = "a", message: str = "") -> PodOutcome:
    node = "" if state is PENDING else node
    return PodOutcome("default", name, "ReplicaSet/web", 0, 0.0, state=state, node=node, message=message)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (outcome("p"), outcome("p"), None),
        (outcome("p"), outcome("p", COMPLETED), None),
        (outcome("p", PENDING), outcome("p", PENDING, message="another reason"), None),
        (outcome("p"), outcome("p", node="b"), PodChange.MOVED),
        (outcome("p", COMPLETED), outcome("p", COMPLETED, node="b"), PodChange.MOVED),
        (outcome("p"), outcome("p", PENDING), PodChange.LOST),
        (outcome("p", PENDING), outcome("p"), PodChange.WON),
        (outcome("p"), outcome("p", PREEMPTED), PodChange.PREEMPTED),
        (None, outcome("p", PREEMPTED), PodChange.PREEMPTED),
        (outcome("p", PREEMPTED), None, PodChange.SPARED),
        (outcome("p", PREEMPTED), outcome("p", PREEMPTED), None),
        (None, outcome("p"), PodChange.ADDED),
        (outcome("p"), None, PodChange.MISSING),
    ],
)
def test_a_pod_has_one_change_or_none(
    before: PodOutcome | None, after: PodOutcome | None, change: PodChange | None
) -> None:
    found = pod_differences([before] if before else [], [after] if after else [])
    assert [difference.change for difference in found] == ([] if change is None else [change])


def test_pods_of_one_name_are_compared_in_order() -> None:
    before = [outcome("web-0", PREEMPTED), outcome("web-0", node="b")]
    after = [outcome("web-0", PREEMPTED), outcome("web-0", PENDING)]
    assert [difference.change for difference in pod_differences(before, after)] == [PodChange.LOST]


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
        (PodChange.LOST, "x", ("default/p1", "default/p2")),
        (PodChange.LOST, "y", ("default/p3",)),
        (PodChange.MOVED, "", ("default/p0",)),
    ]
