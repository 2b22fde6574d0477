"""Plugins at every extension point (semantics 11.2).

TestActivatePods is in test_retries, TestSchedulerExtender in tests/extender_server, where the extenders are processes.
Not here: TestBatchScenarios, because nothing is batched; tests/framework checks that cached plugin results equal fresh
ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Permission, PreFilterResult, Queued, QueueSortPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, SchedulerProbe
from tests.integration.scripted_plugins import FAIL, REJECT, profile, scripted_plugin


async def reason(cluster: ClusterFixture, name: str) -> str:
    """Wait until a pod has a PodScheduled condition; its reason."""
    await cluster.pending_messages(name)
    return next(c.reason for c in cluster.pod(name).status.conditions if c.type == "PodScheduled")


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (PreFilterResult(frozenset({"n"})), "n"),
        (REJECT, "Unschedulable"),
        (FAIL, "SchedulerError"),
        (PreFilterResult(frozenset({"n", "missing"})), "n"),
        (PreFilterResult(frozenset({"missing"})), "Unschedulable"),
    ],
    ids=["a node", "rejection", "error", "a node that exists", "a node that does not"],
)
async def test_the_pre_filter_result_restricts_or_rejects(cluster: ClusterFixture, result: Any, outcome: str) -> None:
    await cluster.create(node("n"), node("other"), pod("a"))
    async with cluster.scheduler(**profile(scripted_plugin(pre_filter=result))):
        found = (await cluster.bound("a"))[0] if outcome == "n" else await reason(cluster, "a")
        assert found == outcome


@pytest.mark.parametrize(
    "point", ["filter", "pre_filter", "reserve", "permit", "pre_bind", "bind", "pre_score", "score"]
)
@pytest.mark.parametrize(
    ("result", "expected"), [(REJECT, "Unschedulable"), (FAIL, "SchedulerError")], ids=["rejects", "fails"]
)
async def test_a_pod_that_a_plugin_rejects_stays_pending(
    cluster: ClusterFixture, point: str, result: Status, expected: str
) -> None:
    await cluster.create(node("n"), node("m"), pod("a"))
    plugin = scripted_plugin(at={point: result})
    async with cluster.scheduler(**profile(plugin)):
        found = await reason(cluster, "a")
        assert found == ("SchedulerError" if point in ("pre_score", "score") else expected)
        assert not cluster.node_of("a")
        assert ("post_bind", "a") not in plugin.calls


@pytest.mark.parametrize("point", ["pre_score", "score"])
async def test_post_filter_is_not_called_when_scoring_fails(cluster: ClusterFixture, point: str) -> None:
    await cluster.create(node("n"), node("m"), pod("a"))
    plugin = scripted_plugin(at={point: FAIL})
    async with cluster.scheduler(**profile(plugin)):
        await cluster.pending_messages("a")
        assert ("post_filter", "a") not in plugin.calls


@pytest.mark.parametrize(("first", "second_is_called"), [(REJECT, True), (SUCCESS, False), (FAIL, False)])
async def test_post_filter_plugins_are_called_until_one_succeeds_or_fails(
    cluster: ClusterFixture, first: Status, second_is_called: bool
) -> None:
    await cluster.create(node("n"), pod("a"))
    one, two = scripted_plugin("One", filter=REJECT, post_filter=first), scripted_plugin("Two")
    points = {"postFilter": {"disabled": [{"name": "DefaultPreemption"}, {"name": "DynamicResources"}]}}
    async with cluster.scheduler(**profile(one, two, **points)):
        await cluster.pending_messages("a")
        assert ("post_filter", "a") in one.calls
        assert (("post_filter", "a") in two.calls) is second_is_called


@pytest.mark.parametrize("best", ["n", "m"])
async def test_the_node_with_the_highest_score_wins(cluster: ClusterFixture, best: str) -> None:
    await cluster.create(node("n"), node("m"), pod("a"))
    async with cluster.scheduler(
        **profile(
            scripted_plugin(score=best), score={"disabled": [{"name": "*"}], "enabled": [{"name": "ScriptedPlugin"}]}
        )
    ):
        assert await cluster.bound("a") == [best]


class NewestFirst(QueueSortPlugin):
    """Sorts by queueing time, the newest first."""

    name = "NewestFirst"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> float:
        return -queued.timestamp


@pytest.mark.parametrize("custom", [False, True], ids=["by priority", "newest first"])
async def test_the_queue_sort_plugin_orders_the_queue(cluster: ClusterFixture, custom: bool) -> None:
    plugin = scripted_plugin()
    points = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "NewestFirst"}]}} if custom else {}
    configured = profile(plugin, **points)
    configured["plugins"] = (plugin, NewestFirst)
    pods = [pod("low", priority=1), pod("high", priority=10), pod("middle", priority=5)]
    await cluster.create(node("n"), *pods)
    async with cluster.scheduler(**configured):
        await cluster.bound("low", "high", "middle")
    order = [name for point, name in plugin.calls if point == "pre_filter"]
    if custom:
        assert sorted(order) == ["high", "low", "middle"]
    else:
        assert order == ["high", "middle", "low"]


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "bind"])
async def test_a_failure_after_reserve_unreserves_in_reverse_order(cluster: ClusterFixture, point: str) -> None:
    await cluster.create(node("n"), pod("a"))
    one, two = scripted_plugin("One"), scripted_plugin("Two", at={point: REJECT})
    two.log = one.log
    async with cluster.scheduler(**profile(one, two)):
        await cluster.pending_messages("a")
        unreserved = [name for name, at in one.log if at == "unreserve"]
        assert unreserved[:2] == ["Two", "One"]


async def test_a_bound_pod_is_never_unreserved(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a"))
    plugin = scripted_plugin(pre_bind=SUCCESS)
    async with cluster.scheduler(**profile(plugin)):
        await cluster.bound("a")
    assert ("unreserve", "a") not in plugin.calls


async def test_a_pod_is_retried_after_a_pre_bind_failure(cluster: ClusterFixture) -> None:
    results = [FAIL, SUCCESS, SUCCESS]
    await cluster.create(node("n"), pod("a"))
    plugin = scripted_plugin(pre_bind=lambda pod: results.pop(0))
    async with cluster.scheduler(podInitialBackoffSeconds=1, **profile(plugin)):
        await cluster.bound("a")
    assert [at for at, _ in plugin.calls].count("pre_bind") == 2


async def test_a_pre_bind_failure_frees_capacity_for_other_pods(cluster: ClusterFixture) -> None:
    async def fail(info: PodInfo) -> Status:
        await cluster.pending_messages("waits")
        await probe.until(lambda: probe.queued("waits") is not None)
        return REJECT

    await cluster.create(node("n", cpu="1"))
    plugin = scripted_plugin(pre_bind=lambda info: fail(info) if info.name == "fails" else SUCCESS)
    async with cluster.scheduler(**profile(plugin)) as probe:
        await cluster.create(pod("fails", cpu="1", priority=10))
        await plugin.until_called("pre_bind", "fails")
        await cluster.create(pod("waits", cpu="1"))
        assert await cluster.bound("waits") == ["n"]


@pytest.mark.parametrize(
    ("first", "second", "is_bound"),
    [
        (Status(Code.SKIP), "bind", True),
        ("bind", FAIL, True),
        (Status(Code.SKIP), Status(Code.SKIP), True),
        (FAIL, "bind", False),
    ],
    ids=["skip calls the next", "success ends it", "the default binder is last", "failure ends it"],
)
async def test_bind_plugins_are_called_in_order(
    cluster: ClusterFixture, first: Any, second: Any, is_bound: bool
) -> None:
    await cluster.create(node("n"), pod("a"))
    one, two = scripted_plugin("One", bind=first), scripted_plugin("Two", bind=second)
    async with cluster.scheduler(**profile(one, two)):
        if is_bound:
            await cluster.bound("a")
            await cluster.until(lambda: cluster.events("Scheduled"))
            assert (("bind", "a") in two.calls) is (first != "bind")
        else:
            await cluster.pending_messages("a")
            assert ("unreserve", "a") in one.calls
            assert ("bind", "a") not in two.calls


async def test_a_pod_that_no_bind_plugin_binds_stays_pending(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a"))
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "ScriptedPlugin"}]}
    async with cluster.scheduler(**profile(scripted_plugin(), bind=only)):
        assert await reason(cluster, "a") == "SchedulerError"


async def test_post_bind_runs_only_after_a_successful_binding(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("good"), pod("bad"))
    plugin = scripted_plugin(bind=lambda info: FAIL if info.name == "bad" else Status(Code.SKIP))
    async with cluster.scheduler(**profile(plugin)):
        await cluster.bound("good")
        await cluster.pending_messages("bad")
        await plugin.until_called("post_bind", "good")
        assert ("post_bind", "bad") not in plugin.calls


# -- permit ------------------------------------------------------------------------------------------------------


def waiting_pods(probe: SchedulerProbe) -> dict[str, Any]:
    return {each.info.name: each for each in probe.scheduler.waiting_pods.all()}


async def test_a_pod_waits_until_every_permit_plugin_allows_it(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a"))
    one, two = scripted_plugin("One", permit=Permission.wait(600)), scripted_plugin("Two", permit=Permission.wait(600))
    async with cluster.scheduler(**profile(one, two)) as probe:
        await cluster.until(lambda: cluster.nomination("a") == "n")
        waiting_pods(probe)["a"].allow("One")
        assert waiting_pods(probe)["a"].pending_plugins == ["Two"]
        assert not cluster.node_of("a")
        waiting_pods(probe)["a"].allow("Two")
        assert await cluster.bound("a") == ["n"]


async def test_a_waiting_pod_is_rejected_at_its_timeout(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a"))
    async with cluster.scheduler(**profile(scripted_plugin(permit=Permission.wait(0.05)))):
        (message,) = await cluster.pending_messages("a")
        assert "rejected due to timeout after waiting" in message


@pytest.mark.parametrize("released", [True, False], ids=["releases", "rejects"])
async def test_a_permit_plugin_can_allow_or_reject_waiting_pods(cluster: ClusterFixture, released: bool) -> None:
    def permit(info: PodInfo) -> Permission | Status:
        if info.name == "first":
            return Permission.wait(600)
        for each in probe.scheduler.waiting_pods.all():
            if released:
                each.allow("ScriptedPlugin")
            else:
                each.reject("ScriptedPlugin", "rejected by the last one")
        return SUCCESS if released else REJECT

    await cluster.create(node("n"))
    async with cluster.scheduler(**profile(scripted_plugin(permit=permit))) as probe:
        await cluster.create(pod("first"))
        await cluster.until(lambda: cluster.nomination("first") == "n")
        await cluster.create(pod("last"))
        if released:
            await cluster.bound("first", "last")
        else:
            assert "rejected by the last one" in (await cluster.pending_messages("first", "last"))[0]


async def test_shutdown_rejects_waiting_pods(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a"))
    async with cluster.scheduler(**profile(scripted_plugin(permit=Permission.wait(600)))):
        await cluster.until(lambda: cluster.nomination("a") == "n")
    assert not cluster.node_of("a")


async def test_a_waiting_victim_is_requeued_instead_of_deleted(cluster: ClusterFixture) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "low" else Permission()

    await cluster.create(node("n", cpu="1"), pod("low", cpu="1", priority=1))
    async with cluster.scheduler(**profile(scripted_plugin(permit=permit))) as probe:
        await cluster.until(lambda: cluster.nomination("low") == "n")
        await cluster.create(pod("high", cpu="1", priority=10))
        assert await cluster.bound("high") == ["n"]
        await probe.until(lambda: probe.queued("low") is not None)
        assert cluster.pod("low").metadata.name == "low"


@pytest.mark.parametrize("how", ["rejected", "deleted"])
async def test_a_rejected_or_deleted_waiting_pod_frees_its_capacity_at_once(cluster: ClusterFixture, how: str) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "holds" else Permission()

    await cluster.create(node("n", cpu="1"), pod("holds", cpu="1"))
    async with cluster.scheduler(**profile(scripted_plugin(permit=permit))) as probe:
        await cluster.until(lambda: cluster.nomination("holds") == "n")
        await cluster.create(pod("waits", cpu="1"))
        await cluster.pending_messages("waits")
        if how == "rejected":
            waiting_pods(probe)["holds"].reject("ScriptedPlugin", "no")
        else:
            await cluster.delete(pod("holds"))
        assert await cluster.bound("waits") == ["n"]


# -- PreEnqueue and nominations ------------------------------------------------------------------------------------


async def test_a_gated_pod_is_never_filtered(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("gated"), pod("free"))
    plugin = scripted_plugin(pre_enqueue=lambda info: REJECT if info.name == "gated" else SUCCESS)
    async with cluster.scheduler(**profile(plugin)):
        await cluster.bound("free")
    assert ("filter", "gated") not in plugin.calls


@pytest.mark.parametrize("registered", [True, False])
async def test_pre_enqueue_runs_again_on_the_events_that_its_plugin_registered(
    cluster: ClusterFixture, registered: bool
) -> None:
    open_gate: list[bool] = []
    requeues = [on(EventResource.NODE, Action.ADD)] if registered else []
    gate = scripted_plugin(requeues=requeues, pre_enqueue=lambda info: SUCCESS if open_gate else REJECT)
    await cluster.create(node("n"), pod("gated"))
    async with cluster.scheduler(**profile(gate)) as probe:
        await probe.until(lambda: probe.queued("gated") is not None)
        open_gate.append(True)
        await cluster.create(node("new"))
        await probe.until(lambda: "new" in probe.scheduler.cluster.nodes.rows)
        if registered:
            await cluster.bound("gated")
        else:
            assert probe.place("gated") is not None
            assert not cluster.node_of("gated")


@pytest.mark.parametrize(
    ("pre_bind", "permit", "nominated"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
async def test_a_pod_is_nominated_before_it_waits_at_permit_or_pre_bind(
    cluster: ClusterFixture, pre_bind: bool, permit: bool, nominated: bool
) -> None:
    async def wait_for_nomination() -> Status:
        await cluster.until(lambda: cluster.nomination("a") == "n")
        return SUCCESS

    results: dict[str, Any] = {}
    if pre_bind:
        results["pre_bind"] = lambda info: wait_for_nomination()
    if permit:
        results["permit"] = Permission.wait(600)
    await cluster.create(node("n"), pod("a"))
    async with cluster.scheduler(**profile(scripted_plugin(at=results))) as probe:
        if permit:
            await cluster.until(lambda: cluster.nomination("a") == "n")
            waiting_pods(probe)["a"].allow("ScriptedPlugin")
        await cluster.bound("a")
    assert ("n" in cluster.nominations("a")) is nominated
    assert cluster.nomination("a") == ""


async def test_an_external_nomination_is_honoured_if_feasible(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), node("m"), pod("a", nominated="m"))
    async with cluster.scheduler():
        await cluster.bound("a")
        assert cluster.nomination("a") == ""


async def test_an_infeasible_nomination_is_cleared(cluster: ClusterFixture) -> None:
    await cluster.create(node("n", cpu="1"), pod("a", cpu="4", nominated="n"))
    async with cluster.scheduler():
        await cluster.pending_messages("a")
        await cluster.until(lambda: not cluster.nomination("a"))


async def test_nominations_of_lower_priority_do_not_block_higher_priorities(cluster: ClusterFixture) -> None:
    await cluster.create(node("n", cpu="1"), pod("low", cpu="1", priority=1, nominated="n", gates=["wait"]))
    async with cluster.scheduler():
        await cluster.create(pod("high", cpu="1", priority=10))
        assert await cluster.bound("high") == ["n"]
