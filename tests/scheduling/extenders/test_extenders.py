"""What extenders make of a pod: filtering, scoring, binding, and what goes wrong there."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.scheduling.extenders.port import PodGone
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.running import Living, in_virtual_time

NODES = (node("a"), node("b"), node("c"))


def placed(extender: ScriptedExtender, *others: ScriptedExtender, **of_pod: object) -> tuple[str, str, str]:
    """Where a pod goes on three equal nodes; else the condition's reason and message."""
    found: list[tuple[str, str, str]] = []

    async def story(world: Living) -> None:
        world.cluster.put(pod("p", **of_pod))  # type: ignore[arg-type]
        await world.settles()
        condition = world.cluster.condition("p")
        reason, message = ("", "") if condition is None else (condition.reason, condition.message)
        found.append((world.node_of("p"), reason, message))

    in_virtual_time(story, *NODES, extenders=[extender, *others])
    return found[0]


def test_a_pod_goes_where_the_extender_lets_it() -> None:
    extender = ScriptedExtender("filter", passes={"b"})
    assert placed(extender) == ("b", "", "")
    assert extender.asked == [("filter", "p", ["a", "b", "c"])]


def test_each_extender_is_asked_about_what_the_others_left_over() -> None:
    first = ScriptedExtender("filter", passes={"a", "c"})
    second = ScriptedExtender("filter", passes={"b", "c"})
    assert placed(first, second)[0] == "c"
    assert second.asked == [("filter", "p", ["a", "c"])]


def test_no_extender_is_asked_once_nothing_is_left() -> None:
    first, second = ScriptedExtender("filter", passes=()), ScriptedExtender("filter")
    assert placed(first, second)[0] == ""
    assert second.asked == []


def test_those_that_may_be_ignored_are_asked_last() -> None:
    first, second = ScriptedExtender("filter", ignorable=True), ScriptedExtender("filter", passes={"a"})
    placed(first, second)
    assert first.asked == [("filter", "p", ["a"])]


def test_the_reasons_of_extenders_are_counted_like_those_of_plugins() -> None:
    extender = ScriptedExtender("filter", passes=(), failed={"a": "no licence", "b": "no licence"})
    _, reason, message = placed(extender)
    assert reason == "Unschedulable"
    assert message.startswith("0/3 nodes are available: 2 no licence.")


def test_an_unresolvable_refusal_outweighs_the_other() -> None:
    extender = ScriptedExtender("filter", passes=(), failed={"a": "one"}, unresolvable={"a": "other"})
    _, _, message = placed(extender)
    assert message.startswith("0/3 nodes are available: 1 other.")


def test_scores_of_extenders_decide_with_their_weights() -> None:
    light = ScriptedExtender("prioritize", scores={"a": 10, "b": 4}, weight=1)
    heavy = ScriptedExtender("prioritize", scores={"b": 5}, weight=4)
    assert placed(light, heavy)[0] == "b"


def test_a_single_node_is_taken_without_scoring() -> None:
    extender = ScriptedExtender("filter", "prioritize", passes={"b"})
    assert placed(extender)[0] == "b"
    assert [verb for verb, _, _ in extender.asked] == ["filter"]


def test_an_absurd_score_does_no_harm() -> None:
    extender = ScriptedExtender("prioritize", scores={"c": 2**62, "nowhere": 1}, weight=2**40)
    assert placed(extender)[0] == "c"


def test_an_extender_that_fails_to_score_adds_nothing() -> None:
    broken = ScriptedExtender("prioritize", fails="no")
    assert placed(broken, ScriptedExtender("prioritize", scores={"c": 1}))[0] == "c"


def test_an_extender_that_fails_to_filter_costs_the_pod_its_attempt() -> None:
    assert placed(ScriptedExtender("filter", fails="out of order")) == ("", "SchedulerError", "out of order")


def test_an_extender_that_may_be_ignored_is_when_it_fails() -> None:
    assert placed(ScriptedExtender("filter", fails="out of order", ignorable=True))[0] != ""


def test_pods_without_the_managed_resource_are_none_of_its_business() -> None:
    extender = ScriptedExtender("filter", managedResources=[{"name": "x.y/gpu"}])
    assert placed(extender)[0] != ""
    assert extender.asked == []


@pytest.mark.parametrize("asks", [{"requests": {"x.y/gpu": "1"}}, {"limits": {"x.y/gpu": "1"}}])
def test_any_container_that_asks_for_the_managed_resource_makes_it_its_business(asks: dict[str, object]) -> None:
    extender = ScriptedExtender("filter", passes=(), managedResources=[{"name": "x.y/gpu"}])
    container = {"name": "first", "image": "i", "resources": asks}

    async def story(world: Living) -> None:
        world.cluster.put(pod("p", spec={"initContainers": [container]}))
        await world.settles()

    in_virtual_time(story, node("a", allocatable={"x.y/gpu": "1"}), extenders=[extender])
    assert {name for _, name, _ in extender.asked} == {"p"}


def test_a_refused_pod_is_tried_again_after_any_event() -> None:
    extender = ScriptedExtender("filter", passes={"d"})

    async def story(world: Living) -> None:
        world.cluster.put(pod("p"))
        await world.settles()
        world.cluster.put(node("d"))
        await world.passes(3)
        assert world.node_of("p") == "d"

    in_virtual_time(story, *NODES, extenders=[extender])


def test_the_promised_node_is_asked_about_alone_and_taken() -> None:
    extender = ScriptedExtender("filter", "prioritize")
    assert placed(extender, nominated="b")[0] == "b"
    assert extender.asked == [("filter", "p", ["b"])]


def test_a_promised_node_that_the_extender_refuses_is_not_insisted_on() -> None:
    extender = ScriptedExtender("filter", passes={"c"})
    assert placed(extender, nominated="b")[0] == "c"
    assert extender.asked == [("filter", "p", ["b"]), ("filter", "p", ["a", "b", "c"])]


def test_a_promised_node_is_not_insisted_on_when_the_extender_fails() -> None:
    async def story(world: Living) -> None:
        async def work_from_now_on(verb: str) -> None:
            extender.fails = "" if len(extender.asked) > 1 else "no"

        extender.meanwhile = work_from_now_on
        world.cluster.put(pod("p", nominated="b"))
        await world.settles()
        assert world.node_of("p") == "c"

    extender = ScriptedExtender("filter", passes={"c"})
    in_virtual_time(story, *NODES, extenders=[extender])


def test_a_cluster_without_nodes_needs_no_extender() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("p"))
        await world.settles()
        condition = world.cluster.condition("p")
        assert condition is not None
        assert condition.message == "no nodes available to schedule pods"

    extender = ScriptedExtender("filter")
    in_virtual_time(story, extenders=[extender])
    assert extender.asked == []


class Broken(FilterPlugin):
    """Raises, or gives an error."""

    name = "Broken"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        if pod.labels.get("raise"):
            raise LookupError("no such thing")
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), Status.error("out of order"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"raise": "yes"}, "plugin 'Broken' failed at Filter: LookupError: no such thing"),
        ({}, 'running "Broken" filter plugin: out of order'),
    ],
)
def test_a_plugin_that_fails_costs_the_pod_its_attempt(labels: dict[str, str], message: str) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("p", labels=labels))
        await world.settles()
        condition = world.cluster.condition("p")
        assert condition is not None
        assert (condition.reason, condition.message) == ("SchedulerError", message)

    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Broken"}]}}}
    in_virtual_time(story, node("a"), plugins=[Broken], extenders=[ScriptedExtender("filter")], profiles=[profile])


def test_an_extender_binds_in_place_of_the_plugins() -> None:
    extender = ScriptedExtender("bind")
    assert placed(extender)[0] == ""
    assert [verb for verb, _, _ in extender.asked] == ["bind"]


def test_binding_falls_to_the_plugins_when_an_extender_may_be_ignored() -> None:
    assert placed(ScriptedExtender("bind", fails="no", ignorable=True))[0] != ""


def test_an_extender_that_fails_to_bind_gives_the_pod_back() -> None:
    assert placed(ScriptedExtender("bind", fails="cannot")) == ("", "SchedulerError", "cannot")


def test_a_binding_that_took_effect_although_its_answer_was_lost_counts() -> None:
    async def story(world: Living) -> None:
        async def bind_all_the_same(verb: str) -> None:
            world.cluster.put(pod("p", node="a"))

        extender.meanwhile = bind_all_the_same
        world.cluster.put(pod("p"))
        await world.settles()
        assert [event.reason for event in world.cluster.events] == ["Scheduled"]

    extender = ScriptedExtender("bind", fails="no answer in time")
    in_virtual_time(story, node("a"), extenders=[extender])


def test_what_an_extender_does_wrong_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: Living) -> None:
        for name in "pqr":
            world.cluster.put(pod(name))
        await world.passes(20)

    with caplog.at_level(logging.WARNING):
        in_virtual_time(story, node("a"), extenders=[ScriptedExtender("filter", fails="out of order")])
    told = [record.getMessage() for record in caplog.records if "out of order" in record.getMessage()]
    assert told == ["extender http://extender failed at filter: out of order"]


def test_that_a_pod_is_gone_is_no_fault_of_the_extender(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: Living) -> None:
        async def gone(verb: str) -> None:
            world.cluster.remove(pod("p"))
            raise PodGone("http://extender", verb, "pod default/p is gone")

        extender.meanwhile = gone
        world.cluster.put(pod("p"))
        await world.settles()
        assert world.scheduler.queue.counts()[Place.IN_FLIGHT] == 0

    extender = ScriptedExtender("filter")
    in_virtual_time(story, node("a"), extenders=[extender])
    assert caplog.text == ""


def test_nodes_that_were_not_sent_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert placed(ScriptedExtender("filter", failed={"elsewhere": "no"}))[0] != ""
    assert 'response contains node "elsewhere", which was not sent' in caplog.text


def test_a_binding_that_took_effect_counts_also_when_its_extender_may_be_ignored() -> None:
    async def story(world: Living) -> None:
        async def bind_all_the_same(verb: str) -> None:
            world.cluster.put(pod("p", node="a"))

        extender.meanwhile = bind_all_the_same
        world.cluster.put(pod("p"))
        await world.settles()
        assert [event.reason for event in world.cluster.events] == ["Scheduled"]
        assert world.cluster.bindings == []

    extender = ScriptedExtender("bind", fails="no answer in time", ignorable=True)
    in_virtual_time(story, node("a"), extenders=[extender])
