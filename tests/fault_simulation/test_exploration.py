"""The exploration of the protocol finds no violation of the protocol, and finds those of protocols that lack a step."""

from __future__ import annotations

import pytest

from kubestow_lab.fault_simulation.exploration import Protocol, explore


def test_the_protocol_holds_with_a_fault_in_every_order_of_events() -> None:
    explored = explore(faults=1, deletions=0)
    assert explored.violations == {}
    assert explored.states > 5_000


@pytest.mark.parametrize(
    ("protocol", "law"),
    [
        (Protocol(reads_after_lost_answer=False), "no node has more pods of a scheduler than it can run"),
        (Protocol(counts_assumed_pods=False), "no node has more pods of a scheduler than it can run"),
        (Protocol(confirms=False), "at rest nothing is assumed"),
        (Protocol(requests_arrive_late=True), "no node has more pods of a scheduler than it can run"),
    ],
    ids=["no read", "no assumption", "no confirmation", "late requests"],
)
def test_a_protocol_without_a_step_is_found_out(protocol: Protocol, law: str) -> None:
    violations = explore(faults=1, deletions=0, protocol=protocol).violations
    assert law in violations
    assert violations[law][0].startswith("scheduler ")
