"""Counterfactuals from a process of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core_tests.hang_limit import HANG_LIMIT
from kubestow import config
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.dashboard import counterfactual_searches as counterfactuals
from kubestow.dashboard.counterfactual_searches import CounterfactualSearches, SearchFailed
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin, Plugin
from kubestow.framework.profile import implements
from kubestow.framework.status import Status
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import running_scheduler


class Never(NodeFilterPlugin):
    """Rejects every node; in a module that another process can import."""

    name = "Never"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        return Status.unresolvable("not today")


@asynccontextmanager
async def searches(
    *objects: Any, plugins: Iterable[type[Plugin]] = ()
) -> AsyncIterator[tuple[Scheduler, CounterfactualSearches]]:
    """The searches of a scheduler with further plugins."""
    registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
    enabled = {"plugins": {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}}
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [enabled]}
    configuration = config.load(document, implements=implements(registry))
    async with running_scheduler(objects, plugins=plugins, profiles=[enabled]) as harness:
        await asyncio.wait_for(harness.scheduler.started(), HANG_LIMIT)
        yield harness.scheduler, CounterfactualSearches(harness.scheduler, configuration, FeatureGates(), WallClock())


async def search(scheduler: Scheduler, found: CounterfactualSearches, name: str) -> dict[str, Any]:
    return await found.search([pending(scheduler, name)])


def pending(scheduler: Scheduler, name: str) -> PodInfo:
    info = scheduler.pods.named("default", name)
    assert info is not None
    return info


async def test_the_smallest_change_is_verified_in_a_copy_of_the_cluster() -> None:
    placed = pod("other", cpu="3", node="a")
    async with searches(node("a", cpu="4"), placed, pod("big", cpu="2")) as (scheduler, found):
        result = await search(scheduler, found, "big")
        assert result["feasible"] == 0
        assert "request 1 cpu instead of 2" in result["counterfactuals"][0]["text"]
        assert any("default/other" in change["text"] for change in result["counterfactuals"])
        assert scheduler.cluster.placed_pod("uid-default-other") is not None


async def test_a_pod_that_fits_needs_no_change() -> None:
    async with searches(node("a"), pod("small", cpu="1")) as (scheduler, found):
        result = await search(scheduler, found, "small")
        assert (result["feasible"], result["counterfactuals"]) == (1, [])


async def test_what_helps_most_pods_of_a_group_comes_first() -> None:
    """With a request of 3 CPU, one fits beside the other pod; without that pod, or on one more node, three do."""
    waiting = [pod(f"web-{number}", cpu="4") for number in range(5)]
    async with searches(node("a", cpu="12"), pod("other", cpu="9", node="a"), *waiting) as (scheduler, found):
        infos = [pending(scheduler, f"web-{number}") for number in range(5)]
        result = await found.search(infos, "the group")
        assert (result["pod"], result["pods"]) == ("default/web-0", 5)
        helped = [(change["helped"], change["text"].partition(":")[0]) for change in result["counterfactuals"]]
        assert helped == [
            (3, "delete default/other from node a"),
            (3, "add one more node like a"),
            (1, "request 3 cpu instead of 4"),
        ]


async def test_a_result_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with searches(node("a"), pod("big", cpu="100")) as (scheduler, found):
        first = await search(scheduler, found, "big")

        async def fail(messages: object) -> dict[str, Any]:
            raise AssertionError("searched again")

        monkeypatch.setattr(counterfactuals, "_run", fail)
        assert await search(scheduler, found, "big") is first


async def test_only_so_many_searches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()

    async def run(messages: object) -> dict[str, Any]:
        await release.wait()
        return {"feasible": 0}

    monkeypatch.setattr(counterfactuals, "_run", run)
    async with searches(node("a"), *(pod(f"p{number}", cpu="100") for number in range(5))) as (scheduler, found):
        waiting = [asyncio.create_task(search(scheduler, found, f"p{number}")) for number in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(SearchFailed, match="other searches are in progress"):
            await search(scheduler, found, "p4")
        release.set()
        assert await asyncio.gather(*waiting) == [{"feasible": 0}] * 4


async def test_the_failure_of_the_process_is_reported() -> None:
    async with searches(node("a"), pod("big", cpu="100", scheduler="other")) as (scheduler, found):
        with pytest.raises(SearchFailed, match="schedulerName is other"):
            await search(scheduler, found, "big")


async def test_third_party_plugins_take_part() -> None:
    async with searches(node("a"), pod("small", cpu="1"), plugins=[Never]) as (scheduler, found):
        result = await search(scheduler, found, "small")
        assert result["feasible"] == 0
        assert any("Never: not today" in line for line in result["summary"])


async def test_a_plugin_that_cannot_be_passed_is_an_error() -> None:
    class Local(Never):
        name = "Local"

    with pytest.raises(SearchFailed, match="process of its own"):
        counterfactuals._framed([Local])
