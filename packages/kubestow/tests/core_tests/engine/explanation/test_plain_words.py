"""The scheduler's messages in plain words."""

from __future__ import annotations

import pytest

from kubestow.engine.explanation.plain_words import explain_gate, plain_words, reasons_in


def test_reasons_are_sorted_by_the_number_of_nodes() -> None:
    message = "0/5 nodes are available: 1 Insufficient memory, 4 Insufficient cpu. preemption: 0/5 nodes are available."
    assert plain_words(message) == ["4 nodes: too little CPU is free", "1 node: too little memory is free"]


def test_a_comma_within_a_reason_does_not_end_it() -> None:
    message = "0/3 nodes are available: 1 Too many pods, 2 rejected, because it is late."
    assert list(reasons_in(message)) == [(1, "Too many pods"), (2, "rejected, because it is late")]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("node(s) were unschedulable", "scheduling is disabled (cordoned)"),
        ("node(s) had untolerated taint {a: b}", "there is a taint that the pod does not tolerate (a: b)"),
        ("node(s) had untolerated taint(s)", "there is a taint that the pod does not tolerate"),
        ("Insufficient example.com/gpu", "too little example.com/gpu is free"),
        ("a reason of an unknown plugin", "a reason of an unknown plugin"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_a_reason_in_plain_words(reason: str, words: str) -> None:
    assert plain_words(f"0/1 nodes are available: 1 {reason}.") == [f"1 node: {words}"]


@pytest.mark.parametrize("message", ["", "no nodes available to schedule pods", "0/2 nodes are available:."])
def test_a_message_without_reasons_has_none(message: str) -> None:
    assert plain_words(message) == []


def test_an_unknown_gate_names_its_plugin() -> None:
    assert "MyGate" in explain_gate("MyGate")
    assert "schedulingGates" in explain_gate("SchedulingGates")
    assert explain_gate("GangScheduling") == "the pod group does not exist, or fewer of its pods than it needs"
    assert "have not ended yet" in explain_gate("DefaultPreemption")
