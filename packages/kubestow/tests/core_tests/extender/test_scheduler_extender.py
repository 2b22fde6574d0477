"""Extenders as separate processes, over HTTP (semantics 11.2, TestSchedulerExtender)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.extender.harness import ExtenderProcess, api_server, extender, running_scheduler
from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.config import API_VERSION, KIND
from kubestow.errors import InputError

ALL = ("filter", "prioritize", "preempt")


def configured(running: ExtenderProcess, *verbs: str, **settings: Any) -> dict[str, Any]:
    return {"urlPrefix": running.url, "weight": 1, **{f"{verb}Verb": verb for verb in verbs}, **settings}


async def test_several_extenders_filter_and_prioritize_and_one_binds() -> None:
    async with (
        api_server("n1", "n2", "n3") as server,
        extender(allows=["n1", "n2"], scores={"n1": 10, "n2": 1}) as first,
        extender(allows=["n1", "n2", "n3"], scores={"n2": 5, "n3": 10}, apiserver=server.url) as second,
        extender(scores={"n2": 10}) as caching,
        extender(allows=["n3"]) as of_gpus,
        running_scheduler(
            server,
            configured(first, "filter", "prioritize"),
            configured(second, "filter", "prioritize", "bind", weight=2),
            configured(caching, "filter", "prioritize", nodeCacheCapable=True),
            configured(of_gpus, "filter", managedResources=[{"name": "x.y/gpu"}]),
        ) as harness,
    ):
        await harness.pod("p")
        assert await harness.bound("p") == "n2"  # 10 + 20 * 5 + 10 * 10 against 10 * 10
        await first.first("prioritize")
        await second.first("bind")
        assert first.verbs() == ["filter", "prioritize"]
        assert second.verbs() == ["filter", "prioritize", "bind"]
        assert (await caching.first("filter"))["NodeNames"] == ["n1", "n2"]
        assert of_gpus.requests == []


async def test_an_extender_gets_full_objects() -> None:
    async with (
        api_server("n1") as server,
        extender() as running,
        running_scheduler(server, configured(running, "filter")) as harness,
    ):
        await harness.pod("p")
        await harness.bound("p")
        body = await running.first("filter")
        (node,) = body["Nodes"]["items"]
        assert node["metadata"]["annotations"]["colour"] == "green"
        assert node["status"]["capacity"]["cpu"] == "1"
        assert body["Pod"]["spec"]["terminationGracePeriodSeconds"] == 0
        assert body["NodeNames"] is None


async def test_an_ignored_resource_is_left_to_its_extender() -> None:
    managed = {"name": "x.y/slots", "ignoredByScheduler": True}
    async with (
        api_server("n1", "n2") as server,
        extender(allows=["n2"]) as running,
        running_scheduler(server, configured(running, "filter", managedResources=[managed])) as harness,
    ):
        await harness.pod("p", requests={"x.y/slots": "7"})
        assert await harness.bound("p") == "n2"


async def test_the_extenders_reason_is_in_the_pod_condition() -> None:
    async with (
        api_server("n1") as server,
        extender(allows=[]) as running,
        running_scheduler(server, configured(running, "filter")) as harness,
    ):
        await harness.pod("p")
        assert (await harness.unschedulable_message("p")).startswith("0/1 nodes are available: 1 not allowed.")


async def test_an_unschedulable_pod_is_retried_when_a_node_is_added() -> None:
    async with (
        api_server("n1") as server,
        extender(allows=["n2"]) as running,
        running_scheduler(server, configured(running, "filter", nodeCacheCapable=True)) as harness,
    ):
        await harness.pod("p")
        await harness.unschedulable_message("p")
        await harness.node("n2")
        assert await harness.bound("p") == "n2"


@pytest.mark.parametrize("caching", [False, True])
async def test_an_extender_limits_the_preemption_candidates(caching: bool) -> None:
    async with (
        api_server() as server,
        extender(allows=["n2"]) as running,
        running_scheduler(server, configured(running, "preempt", nodeCacheCapable=caching)) as harness,
    ):
        for node, pod, priority in (("n1", "cheap", 1), ("n2", "dear", 2)):
            await harness.node(node)
            await harness.pod(pod, priority=priority, requests={"cpu": "1"})
            await harness.bound(pod)
        await harness.pod("p", priority=10, requests={"cpu": "1"})
        assert await harness.bound("p") == "n2"
        body = await running.first("preempt")
        victims = body["NodeNameToMetaVictims" if caching else "NodeNameToVictims"]
        assert sorted(victims) == ["n1", "n2"]


async def test_an_ignorable_extender_can_be_unavailable() -> None:
    async with (
        api_server("n1") as server,
        extender() as running,
        running_scheduler(server, configured(running, *ALL, ignorable=True)) as harness,
    ):
        await running.stop()
        await harness.pod("p")
        assert await harness.bound("p") == "n1"


async def test_pods_are_unschedulable_while_an_extender_is_unavailable() -> None:
    async with (
        api_server("n1") as server,
        extender() as running,
        running_scheduler(server, configured(running, "filter")) as harness,
    ):
        await running.stop()
        await harness.pod("p")
        assert await harness.unschedulable_message("p") == f'Post "{running.url}/filter": connection refused'


async def test_invalid_tls_settings_are_reported_at_startup() -> None:
    broken = {"urlPrefix": "https://x", "filterVerb": "filter", "tlsConfig": {"caFile": "/nowhere"}}
    app = SchedulerApp.create(source={"apiVersion": API_VERSION, "kind": KIND, "extenders": [broken]})
    with pytest.raises(InputError, match="extender https://x: tlsConfig: /nowhere: No such file or directory"):
        await app.run(kubeconfig="/nowhere", master="", on_ready=lambda scheduler: None)
