"""The queue section: counts, pods by place, and groups by reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from core_tests.observability.harness import Observed, observe
from core_tests.observability.test_metrics import WaitOnPermit
from kubestow.dashboard.queue_pages import QueueRows
from kubestow.dashboard.sections import QueueSection
from kubestow.observability.pod_states import PodStates
from kubestow.testing import node, pod


def look(scenario: Callable[[Observed, QueueSection], Awaitable[None]], *objects: Any, **options: Any) -> None:
    async def run_scenario(observed: Observed) -> None:
        scheduler, clock = observed.harness.scheduler, observed.harness.scheduler.environment.clock
        states = PodStates(scheduler, observed.observability.attempts, clock)
        await scenario(observed, QueueSection(scheduler, QueueRows(scheduler, states, clock)))

    observe(run_scenario, *objects, **options)


def by_pod(section: QueueSection) -> dict[str, dict[str, Any]]:
    return {one["pod"]: one for one in section.content()["pods"]}


def test_pods_with_the_same_reason_are_one_group() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        for name in ("big-1", "big-2"):
            observed.harness.cluster.put(pod(name, cpu="100"))
        observed.harness.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await observed.harness.settle()
        section.refresh()
        groups = {tuple(sorted(group["examples"])): group for group in section.content()["groups"]}
        big = groups["default/big-1", "default/big-2"]
        assert (big["count"], big["plugins"], big["words"]) == (
            2,
            ["NodeResourcesFit"],
            ["1 node: too little CPU is free"],
        )
        assert "NodeAdd" in big["waitsFor"]["NodeResourcesFit"]
        assert big["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert groups["default/picky",]["plugins"] == ["NodeAffinity"]
        assert section.content()["counts"]["unschedulable"] == 3

    look(scenario, node("a"))


def test_an_unschedulable_pod_is_tried_again_without_an_event_within_minutes() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()
        section.refresh()
        shown = by_pod(section)["default/big"]
        assert shown["retryAt"] - shown["since"] == 330
        assert shown["group"] == section.content()["groups"][0]["id"]
        await observed.harness.advance(331)
        section.refresh()
        assert by_pod(section)["default/big"]["attempts"] == 2

    look(scenario, node("a"))


def test_a_gated_pod_waits_for_its_gates() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        observed.harness.cluster.put(pod("gated", gates=["example.com/wait"]))
        await observed.harness.settle()
        section.refresh()
        (group,) = section.content()["groups"]
        assert (group["place"], group["plugins"]) == ("gated", ["SchedulingGates"])
        assert by_pod(section)["default/gated"]["retryAt"] is None

    look(scenario, node("a"))


def test_a_pod_that_waits_on_permit_is_listed_with_the_plugin_and_its_deadline() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        observed.harness.cluster.put(pod("held"))
        await observed.harness.settle()
        section.refresh()
        shown = by_pod(section)["default/held"]
        assert (shown["place"], shown["node"], shown["plugins"]) == ("waiting on permit", "a", ["WaitOnPermit"])
        assert shown["deadline"] > 0
        assert section.content()["counts"]["in flight"] == 0

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "WaitOnPermit"}]}}}
    look(scenario, node("a"), plugins=[WaitOnPermit], profiles=[enabled])


def test_only_so_many_pods_are_listed_but_all_are_counted() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        for number in range(70):
            observed.harness.cluster.put(pod(f"big-{number:02}", cpu="100"))
        await observed.harness.settle()
        section.refresh()
        assert section.content()["counts"]["unschedulable"] == 70
        assert section.content()["groups"][0]["count"] == 70
        assert len(section.content()["pods"]) == 50

    look(scenario, node("a"))


def test_without_a_change_there_is_nothing_to_send() -> None:
    async def scenario(observed: Observed, section: QueueSection) -> None:
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()
        assert section.refresh() is not None
        await observed.harness.advance(5)
        assert section.refresh() is None

    look(scenario, node("a"))
