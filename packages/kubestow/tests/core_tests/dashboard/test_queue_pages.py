"""Pages of the queue: in the order in which pods are tried, searched, and with their reasons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from core_tests.observability.harness import Observed, observe
from core_tests.observability.test_metrics import WaitOnPermit
from kubestow.dashboard.queue_pages import PLACES, QueuePages, QueueRows
from kubestow.observability.pod_states import PodStates
from kubestow.testing import node, pod


def look(scenario: Callable[[Observed, QueuePages], Awaitable[None]], *objects: Any, **options: Any) -> None:
    async def run_scenario(observed: Observed) -> None:
        scheduler, clock = observed.harness.scheduler, observed.harness.scheduler.environment.clock
        states = PodStates(scheduler, observed.observability.attempts, clock)
        await scenario(observed, QueuePages(scheduler, lambda: QueueRows(scheduler, states, clock), clock))

    observe(run_scenario, *objects, **options)


def test_pages_follow_each_other_in_the_order_of_the_queue() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        for number in range(250):
            observed.harness.cluster.put(pod(f"big-{number:03}", cpu="100"))
            if number % 50 == 0:
                await observed.harness.advance(1)  # attempted earlier than those that follow
        observed.harness.cluster.put(pod("gated", gates=["example.com/wait"]))
        await observed.harness.settle()
        found = [pages.page("", "", "", offset) for offset in (0, 100, 200, 300)]
        assert [page["matches"] for page in found] == [251] * 4
        assert [len(page["pods"]) for page in found] == [100, 100, 51, 0]
        rows = [row for page in found for row in page["pods"]]
        assert len({row["pod"] for row in rows}) == 251
        assert rows[-1]["place"] == "gated"
        since = [row["since"] for row in rows[:-1]]
        assert since == sorted(since) and len(set(since)) > 1

    look(scenario, node("a"))


def test_a_text_is_searched_in_the_namespace_and_the_name() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        for name in ("web-1", "web-2", "batch"):
            observed.harness.cluster.put(pod(name, cpu="100"))
        await observed.harness.settle()
        assert {row["pod"] for row in pages.page("", "", "web", 0)["pods"]} == {"default/web-1", "default/web-2"}
        assert pages.page("", "", "default/b", 0)["matches"] == 1
        assert pages.page("gated", "", "web", 0)["matches"] == 0
        assert pages.page("nowhere", "", "", 0)["matches"] == 0

    look(scenario, node("a"))


def test_the_reasons_of_a_page_come_with_it() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        for name in ("web-1", "web-2"):
            observed.harness.cluster.put(pod(name, cpu="100"))
        observed.harness.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await observed.harness.settle()
        page = pages.page("", "", "web", 0)
        (group,) = page["groups"]
        assert {row["group"] for row in page["pods"]} == {group["id"]}
        assert group["words"] == ["1 node: too little CPU is free"]
        assert len(pages.page("", "", "", 0)["groups"]) == 2

    look(scenario, node("a"))


def test_all_pods_of_a_group_are_listed_page_by_page() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        for number in range(130):
            observed.harness.cluster.put(pod(f"big-{number:03}", cpu="100"))
        observed.harness.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await observed.harness.settle()
        (alone,) = pages.page("", "", "picky", 0)["groups"]
        (group,) = pages.page("", "", "big-000", 0)["groups"]
        found = [pages.page("", group["id"], "", offset) for offset in (0, 100)]
        assert [page["matches"] for page in found] == [130, 130]
        assert len({row["pod"] for page in found for row in page["pods"]}) == 130
        assert [each["id"] for each in found[0]["groups"]] == [group["id"]]
        assert pages.page("gated", group["id"], "", 0)["matches"] == 0
        assert pages.page("", group["id"], "big-12", 0)["matches"] == 10
        assert [queued.info.name for queued in pages.pods_of(alone["id"])] == ["picky"]
        assert pages.pods_of("none") == []

    look(scenario, node("a"))


def test_pods_after_the_queue_are_listed_too() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        observed.harness.cluster.put(pod("held"))
        await observed.harness.settle()
        (row,) = pages.page("waiting on permit", "", "", 0)["pods"]
        assert (row["pod"], row["node"]) == ("default/held", "a")
        assert row["place"] in PLACES

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "WaitOnPermit"}]}}}
    look(scenario, node("a"), plugins=[WaitOnPermit], profiles=[enabled])


def test_a_change_shows_after_a_second() -> None:
    async def scenario(observed: Observed, pages: QueuePages) -> None:
        assert pages.page("", "", "", 0)["matches"] == 0
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()
        assert pages.page("", "", "", 0)["matches"] == 0  # the order of all viewers is made once per second
        await observed.harness.advance(1)
        assert pages.page("", "", "", 0)["matches"] == 1

    look(scenario, node("a"))
