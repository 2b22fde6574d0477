"""Extenders that filter, prioritize and bind, and their failures."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.scheduling.extenders.stages import PodGone
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

NODES = (node("a"), node("b"), node("c"))


def schedule(extender: ScriptedExtender, *others: ScriptedExtender, **fields: object) -> tuple[str, str, str]:
    """The node of a pod among three equal nodes, and the reason and message of its condition."""
    found: list[tuple[str, str, str]] = []

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", **fields))  # type: ignore[arg-type]
        await harness.settle()
        condition = harness.cluster.condition("p")
        reason, message = ("", "") if condition is None else (condition.reason, condition.message)
        found.append((harness.node_of("p"), reason, message))

    in_virtual_time(scenario, *NODES, extenders=[extender, *others])
    return found[0]


def test_a_pod_is_bound_to_a_node_that_the_extender_accepts() -> None:
    extender = ScriptedExtender("filter", passes={"b"})
    assert schedule(extender) == ("b", "", "")
    assert extender.calls == [("filter", "p", ["a", "b", "c"])]


def test_each_extender_filters_the_nodes_that_the_previous_ones_accepted() -> None:
    first = ScriptedExtender("filter", passes={"a", "c"})
    second = ScriptedExtender("filter", passes={"b", "c"})
    assert schedule(first, second)[0] == "c"
    assert second.calls == [("filter", "p", ["a", "c"])]


def test_no_extender_is_called_without_feasible_nodes() -> None:
    first, second = ScriptedExtender("filter", passes=()), ScriptedExtender("filter")
    assert schedule(first, second)[0] == ""
    assert second.calls == []


def test_ignorable_extenders_are_called_last() -> None:
    first, second = ScriptedExtender("filter", ignorable=True), ScriptedExtender("filter", passes={"a"})
    schedule(first, second)
    assert first.calls == [("filter", "p", ["a"])]


def test_the_reasons_of_extenders_are_counted_like_those_of_plugins() -> None:
    extender = ScriptedExtender("filter", passes=(), failed={"a": "no licence", "b": "no licence"})
    _, reason, message = schedule(extender)
    assert reason == "Unschedulable"
    assert message.startswith("0/3 nodes are available: 2 no licence.")


def test_each_reason_of_an_extender_is_that_of_its_nodes() -> None:
    failed = {"a": "no licence", "b": "too far", "c": "no licence"}
    _, _, message = schedule(ScriptedExtender("filter", passes=(), failed=failed))
    assert message.startswith("0/3 nodes are available: 1 too far, 2 no licence.")


def test_an_unresolvable_rejection_overrides_a_resolvable_one() -> None:
    extender = ScriptedExtender("filter", passes=(), failed={"a": "one"}, unresolvable={"a": "other"})
    _, _, message = schedule(extender)
    assert message.startswith("0/3 nodes are available: 1 other.")


def test_scores_of_extenders_are_multiplied_by_their_weights() -> None:
    light = ScriptedExtender("prioritize", scores={"a": 10, "b": 4}, weight=1)
    heavy = ScriptedExtender("prioritize", scores={"b": 5}, weight=4)
    assert schedule(light, heavy)[0] == "b"


def test_a_single_feasible_node_is_chosen_without_scoring() -> None:
    extender = ScriptedExtender("filter", "prioritize", passes={"b"})
    assert schedule(extender)[0] == "b"
    assert [verb for verb, _, _ in extender.calls] == ["filter"]


def test_a_score_out_of_range_does_not_overflow() -> None:
    extender = ScriptedExtender("prioritize", scores={"c": 2**62, "nowhere": 1}, weight=2**40)
    assert schedule(extender)[0] == "c"


def test_an_extender_that_fails_to_prioritize_is_skipped() -> None:
    broken = ScriptedExtender("prioritize", fails="no")
    assert schedule(broken, ScriptedExtender("prioritize", scores={"c": 1}))[0] == "c"


def test_an_extender_that_fails_to_filter_fails_the_attempt() -> None:
    assert schedule(ScriptedExtender("filter", fails="out of order")) == ("", "SchedulerError", "out of order")


def test_an_ignorable_extender_that_fails_is_skipped() -> None:
    assert schedule(ScriptedExtender("filter", fails="out of order", ignorable=True))[0] != ""


def test_an_extender_is_not_called_for_pods_without_its_managed_resource() -> None:
    extender = ScriptedExtender("filter", managedResources=[{"name": "x.y/gpu"}])
    assert schedule(extender)[0] != ""
    assert extender.calls == []


@pytest.mark.parametrize("resources", [{"requests": {"x.y/gpu": "1"}}, {"limits": {"x.y/gpu": "1"}}])
def test_an_extender_is_called_for_a_managed_resource_of_any_container(resources: dict[str, object]) -> None:
    extender = ScriptedExtender("filter", passes=(), managedResources=[{"name": "x.y/gpu"}])
    container = {"name": "first", "image": "i", "resources": resources}

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", spec={"initContainers": [container]}))
        await harness.settle()

    in_virtual_time(scenario, node("a", allocatable={"x.y/gpu": "1"}), extenders=[extender])
    assert {name for _, name, _ in extender.calls} == {"p"}


def test_a_pod_that_an_extender_rejected_is_requeued_by_any_event() -> None:
    extender = ScriptedExtender("filter", passes={"d"})

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p"))
        await harness.settle()
        harness.cluster.put(node("d"))
        await harness.advance(3)
        assert harness.node_of("p") == "d"

    in_virtual_time(scenario, *NODES, extenders=[extender])


def test_the_nominated_node_is_filtered_alone_and_chosen() -> None:
    extender = ScriptedExtender("filter", "prioritize")
    assert schedule(extender, nominated="b")[0] == "b"
    assert extender.calls == [("filter", "p", ["b"])]


def test_all_nodes_are_filtered_when_the_extender_rejects_the_nominated_one() -> None:
    extender = ScriptedExtender("filter", passes={"c"})
    assert schedule(extender, nominated="b")[0] == "c"
    assert extender.calls == [("filter", "p", ["b"]), ("filter", "p", ["a", "b", "c"])]


def test_all_nodes_are_filtered_when_the_extender_fails_for_the_nominated_one() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def recover(verb: str) -> None:
            extender.fails = "" if len(extender.calls) > 1 else "no"

        extender.during_call = recover
        harness.cluster.put(pod("p", nominated="b"))
        await harness.settle()
        assert harness.node_of("p") == "c"

    extender = ScriptedExtender("filter", passes={"c"})
    in_virtual_time(scenario, *NODES, extenders=[extender])


def test_an_extender_is_not_called_in_a_cluster_without_nodes() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p"))
        await harness.settle()
        condition = harness.cluster.condition("p")
        assert condition is not None
        assert condition.message == "no nodes available to schedule pods"

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, extenders=[extender])
    assert extender.calls == []


class FailingFilter(FilterPlugin):
    """Raises, or returns an error."""

    name = "FailingFilter"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        if pod.labels.get("raise"):
            raise LookupError("no such thing")
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), Status.error("out of order"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"raise": "yes"}, "plugin 'FailingFilter' failed at Filter: LookupError: no such thing"),
        ({}, 'running "FailingFilter" filter plugin: out of order'),
    ],
)
def test_a_failing_filter_plugin_fails_the_attempt(labels: dict[str, str], message: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", labels=labels))
        await harness.settle()
        condition = harness.cluster.condition("p")
        assert condition is not None
        assert (condition.reason, condition.message) == ("SchedulerError", message)

    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "FailingFilter"}]}}}
    in_virtual_time(
        scenario, node("a"), plugins=[FailingFilter], extenders=[ScriptedExtender("filter")], profiles=[profile]
    )


def test_an_extender_with_a_bind_verb_binds_instead_of_the_plugins() -> None:
    extender = ScriptedExtender("bind")
    assert schedule(extender)[0] == ""
    assert [verb for verb, _, _ in extender.calls] == ["bind"]


def test_the_bind_plugins_bind_after_an_ignorable_extender_fails() -> None:
    assert schedule(ScriptedExtender("bind", fails="no", ignorable=True))[0] != ""


def test_an_extender_that_fails_to_bind_fails_the_attempt() -> None:
    assert schedule(ScriptedExtender("bind", fails="cannot")) == ("", "SchedulerError", "cannot")


def test_an_extender_binding_whose_response_is_lost_has_succeeded() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def bind_anyway(verb: str) -> None:
            harness.cluster.put(pod("p", node="a"))

        extender.during_call = bind_anyway
        harness.cluster.put(pod("p"))
        await harness.settle()
        assert [event.reason for event in harness.cluster.events] == ["Scheduled"]

    extender = ScriptedExtender("bind", fails="no answer in time")
    in_virtual_time(scenario, node("a"), extenders=[extender])


def test_an_extender_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in "pqr":
            harness.cluster.put(pod(name))
        await harness.advance(20)

    with caplog.at_level(logging.WARNING):
        in_virtual_time(scenario, node("a"), extenders=[ScriptedExtender("filter", fails="out of order")])
    messages = [record.getMessage() for record in caplog.records if "out of order" in record.getMessage()]
    assert messages == ["extender http://extender failed at filter: out of order"]


def test_a_pod_deleted_during_a_call_is_not_logged_as_an_extender_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def delete_pod(verb: str) -> None:
            harness.cluster.remove(pod("p"))
            raise PodGone("http://extender", verb, "pod default/p is gone")

        extender.during_call = delete_pod
        harness.cluster.put(pod("p"))
        await harness.settle()
        assert harness.scheduler.queue.counts()[Place.IN_FLIGHT] == 0

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("a"), extenders=[extender])
    assert caplog.text == ""


def test_nodes_that_were_not_sent_to_the_extender_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert schedule(ScriptedExtender("filter", failed={"elsewhere": "no"}))[0] != ""
    assert 'response contains node "elsewhere", which was not sent' in caplog.text


def test_an_ignorable_extender_binding_whose_response_is_lost_has_succeeded() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def bind_anyway(verb: str) -> None:
            harness.cluster.put(pod("p", node="a"))

        extender.during_call = bind_anyway
        harness.cluster.put(pod("p"))
        await harness.settle()
        assert [event.reason for event in harness.cluster.events] == ["Scheduled"]
        assert harness.cluster.bindings == []

    extender = ScriptedExtender("bind", fails="no answer in time", ignorable=True)
    in_virtual_time(scenario, node("a"), extenders=[extender])
