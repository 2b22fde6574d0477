"""Plugins at every extension point (semantics 11.2).

TestActivatePods is in test_retries, TestSchedulerExtender in tests/extenders, where the extenders are processes. Not
here: TestBatchScenarios, because nothing is batched; that remembered answers are those of asking afresh is held by
tests/framework.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Permission, PreFilterResult, Queued, QueueSortPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import node, pod
from tests.integration.fixture import Stage, Troupe
from tests.integration.scripted_plugins import FAIL, REJECT, profile, puppet


async def reason(stage: Stage, name: str) -> str:
    """The reason of a pod's condition, once it has one."""
    await stage.refused(name)
    return next(c.reason for c in stage.pod(name).status.conditions if c.type == "PodScheduled")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (PreFilterResult(frozenset({"n"})), "n"),
        (REJECT, "Unschedulable"),
        (FAIL, "SchedulerError"),
        (PreFilterResult(frozenset({"n", "missing"})), "n"),
        (PreFilterResult(frozenset({"missing"})), "Unschedulable"),
    ],
    ids=["a node", "rejection", "error", "a node that exists", "a node that does not"],
)
async def test_what_prefilter_answers_decides(stage: Stage, answer: Any, outcome: str) -> None:
    await stage.create(node("n"), node("other"), pod("a"))
    async with stage.scheduler(**profile(puppet(pre_filter=answer))):
        found = (await stage.bound("a"))[0] if outcome == "n" else await reason(stage, "a")
        assert found == outcome


@pytest.mark.parametrize(
    "point", ["filter", "pre_filter", "reserve", "permit", "pre_bind", "bind", "pre_score", "score"]
)
@pytest.mark.parametrize(
    ("answer", "why"), [(REJECT, "Unschedulable"), (FAIL, "SchedulerError")], ids=["rejects", "fails"]
)
async def test_a_pod_that_a_plugin_refuses_stays_pending(stage: Stage, point: str, answer: Status, why: str) -> None:
    await stage.create(node("n"), node("m"), pod("a"))
    asked = puppet(at={point: answer})
    async with stage.scheduler(**profile(asked)):
        found = await reason(stage, "a")
        assert found == ("SchedulerError" if point in ("pre_score", "score") else why)
        assert not stage.node_of("a")
        assert ("post_bind", "a") not in asked.asked


@pytest.mark.parametrize("point", ["pre_score", "score"])
async def test_postfilter_is_not_asked_when_scoring_fails(stage: Stage, point: str) -> None:
    await stage.create(node("n"), node("m"), pod("a"))
    asked = puppet(at={point: FAIL})
    async with stage.scheduler(**profile(asked)):
        await stage.refused("a")
        assert ("post_filter", "a") not in asked.asked


@pytest.mark.parametrize(("first", "second_is_asked"), [(REJECT, True), (SUCCESS, False), (FAIL, False)])
async def test_postfilter_plugins_are_asked_until_one_decides(
    stage: Stage, first: Status, second_is_asked: bool
) -> None:
    await stage.create(node("n"), pod("a"))
    one, two = puppet("One", filter=REJECT, post_filter=first), puppet("Two")
    points = {"postFilter": {"disabled": [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}]}}
    async with stage.scheduler(**profile(one, two, **points)):
        await stage.refused("a")
        assert ("post_filter", "a") in one.asked
        assert (("post_filter", "a") in two.asked) is second_is_asked


@pytest.mark.parametrize("best", ["n", "m"])
async def test_the_node_with_the_highest_score_wins(stage: Stage, best: str) -> None:
    await stage.create(node("n"), node("m"), pod("a"))
    async with stage.scheduler(
        **profile(puppet(score=best), score={"disabled": [{"name": "*"}], "enabled": [{"name": "Puppet"}]})
    ):
        assert await stage.bound("a") == [best]


class OldestLast(QueueSortPlugin):
    """By the time of creation, the newest first."""

    name = "OldestLast"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> float:
        return -queued.timestamp


@pytest.mark.parametrize("custom", [False, True], ids=["by priority", "newest first"])
async def test_the_queue_is_in_the_order_of_its_plugin(stage: Stage, custom: bool) -> None:
    asked = puppet()
    points = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "OldestLast"}]}} if custom else {}
    configured = profile(asked, **points)
    configured["plugins"] = (asked, OldestLast)
    pods = [pod("low", priority=1), pod("high", priority=10), pod("middle", priority=5)]
    await stage.create(node("n"), *pods)
    async with stage.scheduler(**configured):
        await stage.bound("low", "high", "middle")
    order = [name for point, name in asked.asked if point == "pre_filter"]
    if custom:
        assert sorted(order) == ["high", "low", "middle"]
    else:
        assert order == ["high", "middle", "low"]


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "bind"])
async def test_whatever_fails_later_is_unreserved_in_reverse_order(stage: Stage, point: str) -> None:
    await stage.create(node("n"), pod("a"))
    one, two = puppet("One"), puppet("Two", at={point: REJECT})
    two.journal = one.journal
    async with stage.scheduler(**profile(one, two)):
        await stage.refused("a")
        taken_back = [name for name, at in one.journal if at == "unreserve"]
        assert taken_back[:2] == ["Two", "One"]


async def test_what_succeeds_is_never_unreserved(stage: Stage) -> None:
    await stage.create(node("n"), pod("a"))
    asked = puppet(pre_bind=SUCCESS)
    async with stage.scheduler(**profile(asked)):
        await stage.bound("a")
    assert ("unreserve", "a") not in asked.asked


async def test_prebind_that_fails_once_is_tried_again(stage: Stage) -> None:
    answers = [FAIL, SUCCESS, SUCCESS]
    await stage.create(node("n"), pod("a"))
    asked = puppet(pre_bind=lambda pod: answers.pop(0))
    async with stage.scheduler(podInitialBackoffSeconds=1, **profile(asked)):
        await stage.bound("a")
    assert [at for at, _ in asked.asked].count("pre_bind") == 2


async def test_a_prebind_failure_frees_room_for_others(stage: Stage) -> None:
    async def fail(info: PodInfo) -> Status:
        await troupe.until(lambda: troupe.queued("waits") is not None and bool(stage.message("waits")))
        return REJECT

    await stage.create(node("n", cpu="1"))
    asked = puppet(pre_bind=lambda info: fail(info) if info.name == "fails" else SUCCESS)
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.create(pod("fails", cpu="1", priority=10))
        await troupe.until(lambda: ("pre_bind", "fails") in asked.asked)
        await stage.create(pod("waits", cpu="1"))
        assert await stage.bound("waits") == ["n"]


@pytest.mark.parametrize(
    ("first", "second", "is_bound"),
    [
        (Status(Code.SKIP), "bind", True),
        ("bind", FAIL, True),
        (Status(Code.SKIP), Status(Code.SKIP), True),
        (FAIL, "bind", False),
    ],
    ids=["a skip passes on", "the first success ends it", "the default binder comes last", "a failure ends it"],
)
async def test_binders_are_asked_in_turn(stage: Stage, first: Any, second: Any, is_bound: bool) -> None:
    await stage.create(node("n"), pod("a"))
    one, two = puppet("One", bind=first), puppet("Two", bind=second)
    async with stage.scheduler(**profile(one, two)):
        if is_bound:
            await stage.bound("a")
            await stage.until(lambda: stage.events("Scheduled"))
            assert (("bind", "a") in two.asked) is (first != "bind")
        else:
            await stage.refused("a")
            assert ("unreserve", "a") in one.asked
            assert ("bind", "a") not in two.asked


async def test_without_a_binder_that_binds_a_pod_stays_pending(stage: Stage) -> None:
    await stage.create(node("n"), pod("a"))
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "Puppet"}]}
    async with stage.scheduler(**profile(puppet(), bind=only)):
        assert await reason(stage, "a") == "SchedulerError"


async def test_postbind_comes_after_a_binding_and_only_then(stage: Stage) -> None:
    await stage.create(node("n"), pod("good"), pod("bad"))
    asked = puppet(bind=lambda info: FAIL if info.name == "bad" else Status(Code.SKIP))
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.bound("good")
        await stage.refused("bad")
        await troupe.until(lambda: ("post_bind", "good") in asked.asked)
        assert ("post_bind", "bad") not in asked.asked


# -- permit ------------------------------------------------------------------------------------------------------


def waiting(troupe: Troupe) -> dict[str, Any]:
    return {each.info.name: each for each in troupe.scheduler.waiting_pods.all()}


async def test_a_pod_waits_until_every_plugin_that_holds_it_lets_go(stage: Stage) -> None:
    await stage.create(node("n"), pod("a"))
    one, two = puppet("One", permit=Permission.wait(600)), puppet("Two", permit=Permission.wait(600))
    async with stage.scheduler(**profile(one, two)) as troupe:
        await stage.until(lambda: stage.nomination("a") == "n")
        waiting(troupe)["a"].allow("One")
        assert waiting(troupe)["a"].pending_plugins == ["Two"]
        assert not stage.node_of("a")
        waiting(troupe)["a"].allow("Two")
        assert await stage.bound("a") == ["n"]


async def test_a_pod_that_waits_too_long_is_refused(stage: Stage) -> None:
    await stage.create(node("n"), pod("a"))
    async with stage.scheduler(**profile(puppet(permit=Permission.wait(0.05)))):
        (why,) = await stage.refused("a")
        assert "rejected due to timeout after waiting" in why


@pytest.mark.parametrize("released", [True, False], ids=["releases", "rejects"])
async def test_a_pod_may_decide_over_those_that_wait(stage: Stage, released: bool) -> None:
    def permit(info: PodInfo) -> Permission | Status:
        if info.name == "first":
            return Permission.wait(600)
        for each in troupe.scheduler.waiting_pods.all():
            if released:
                each.allow("Puppet")
            else:
                each.reject("Puppet", "the last one said no")
        return SUCCESS if released else REJECT

    await stage.create(node("n"))
    async with stage.scheduler(**profile(puppet(permit=permit))) as troupe:
        await stage.create(pod("first"))
        await stage.until(lambda: stage.nomination("first") == "n")
        await stage.create(pod("last"))
        if released:
            await stage.bound("first", "last")
        else:
            assert "the last one said no" in (await stage.refused("first", "last"))[0]


async def test_a_scheduler_that_stops_lets_nobody_wait(stage: Stage) -> None:
    await stage.create(node("n"), pod("a"))
    async with stage.scheduler(**profile(puppet(permit=Permission.wait(600)))):
        await stage.until(lambda: stage.nomination("a") == "n")
    assert not stage.node_of("a")


async def test_a_pod_that_waits_is_a_victim_without_being_deleted(stage: Stage) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "low" else Permission()

    await stage.create(node("n", cpu="1"), pod("low", cpu="1", priority=1))
    async with stage.scheduler(**profile(puppet(permit=permit))) as troupe:
        await stage.until(lambda: stage.nomination("low") == "n")
        await stage.create(pod("high", cpu="1", priority=10))
        assert await stage.bound("high") == ["n"]
        await troupe.until(lambda: troupe.queued("low") is not None)
        assert stage.pod("low").metadata.name == "low"


@pytest.mark.parametrize("how", ["rejected", "deleted"])
async def test_a_pod_that_waits_no_longer_makes_room_at_once(stage: Stage, how: str) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "holds" else Permission()

    await stage.create(node("n", cpu="1"), pod("holds", cpu="1"))
    async with stage.scheduler(**profile(puppet(permit=permit))) as troupe:
        await stage.until(lambda: stage.nomination("holds") == "n")
        await stage.create(pod("waits", cpu="1"))
        await stage.refused("waits")
        if how == "rejected":
            waiting(troupe)["holds"].reject("Puppet", "no")
        else:
            await stage.delete(pod("holds"))
        assert await stage.bound("waits") == ["n"]


# -- PreEnqueue and nominations ------------------------------------------------------------------------------------


async def test_a_gated_pod_is_never_filtered(stage: Stage) -> None:
    await stage.create(node("n"), pod("gated"), pod("free"))
    asked = puppet(pre_enqueue=lambda info: REJECT if info.name == "gated" else SUCCESS)
    async with stage.scheduler(**profile(asked)):
        await stage.bound("free")
    assert ("filter", "gated") not in asked.asked


@pytest.mark.parametrize("registered", [True, False])
async def test_a_gated_pod_is_looked_at_again_on_events_of_its_gate(stage: Stage, registered: bool) -> None:
    open_gate: list[bool] = []
    requeues = [on(EventResource.NODE, Action.ADD)] if registered else []
    gate = puppet(requeues=requeues, pre_enqueue=lambda info: SUCCESS if open_gate else REJECT)
    await stage.create(node("n"), pod("gated"))
    async with stage.scheduler(**profile(gate)) as troupe:
        await troupe.until(lambda: troupe.queued("gated") is not None)
        open_gate.append(True)
        await stage.create(node("new"))
        await troupe.until(lambda: "new" in troupe.scheduler.cluster.nodes.rows)
        if registered:
            await stage.bound("gated")
        else:
            assert troupe.place("gated") is not None
            assert not stage.node_of("gated")


@pytest.mark.parametrize(
    ("pre_bind", "permit", "nominated"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
async def test_a_pod_is_promised_its_node_before_it_waits_for_anything(
    stage: Stage, pre_bind: bool, permit: bool, nominated: bool
) -> None:
    async def get_ready() -> Status:
        await stage.until(lambda: stage.nomination("a") == "n")
        return SUCCESS

    say: dict[str, Any] = {}
    if pre_bind:
        say["pre_bind"] = lambda info: get_ready()
    if permit:
        say["permit"] = Permission.wait(600)
    await stage.create(node("n"), pod("a"))
    async with stage.scheduler(**profile(puppet(at=say))) as troupe:
        if permit:
            await stage.until(lambda: stage.nomination("a") == "n")
            waiting(troupe)["a"].allow("Puppet")
        await stage.bound("a")
    assert ("n" in stage.nominations("a")) is nominated
    assert stage.nomination("a") == ""


async def test_a_promise_somebody_else_made_is_kept_if_it_can_be(stage: Stage) -> None:
    await stage.create(node("n"), node("m"), pod("a", nominated="m"))
    async with stage.scheduler():
        await stage.bound("a")
        assert stage.nomination("a") == ""


async def test_a_promise_that_does_not_fit_is_taken_back(stage: Stage) -> None:
    await stage.create(node("n", cpu="1"), pod("a", cpu="4", nominated="n"))
    async with stage.scheduler():
        await stage.refused("a")
        await stage.until(lambda: not stage.nomination("a"))


async def test_promises_to_lower_priorities_do_not_hold_back_higher_ones(stage: Stage) -> None:
    await stage.create(node("n", cpu="1"), pod("low", cpu="1", priority=1, nominated="n", gates=["wait"]))
    async with stage.scheduler():
        await stage.create(pod("high", cpu="1", priority=10))
        assert await stage.bound("high") == ["n"]
