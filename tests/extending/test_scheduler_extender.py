"""Extenders as processes of their own, over HTTP (semantics 11.2, TestSchedulerExtender)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.app import SchedulerApp
from kubestow.config import API_VERSION, KIND
from kubestow.errors import InputError
from tests.extending.scenarios import Running, cluster, extender, story

ALL = ("filter", "prioritize", "preempt")


def configured(running: Running, *verbs: str, **settings: Any) -> dict[str, Any]:
    return {"urlPrefix": running.url, "weight": 1, **{f"{verb}Verb": verb for verb in verbs}, **settings}


async def test_several_extenders_decide_together_and_one_binds() -> None:
    async with (
        cluster("n1", "n2", "n3") as server,
        extender(allows=["n1", "n2"], scores={"n1": 10, "n2": 1}) as first,
        extender(allows=["n1", "n2", "n3"], scores={"n2": 5, "n3": 10}, apiserver=server.url) as second,
        extender(scores={"n2": 10}) as caching,
        extender(allows=["n3"]) as of_gpus,
        story(
            server,
            configured(first, "filter", "prioritize"),
            configured(second, "filter", "prioritize", "bind", weight=2),
            configured(caching, "filter", "prioritize", nodeCacheCapable=True),
            configured(of_gpus, "filter", managedResources=[{"name": "x.y/gpu"}]),
        ) as told,
    ):
        await told.pod("p")
        assert await told.bound("p") == "n2"  # 10 + 20 * 5 + 10 * 10 against 10 * 10
        await first.first("prioritize")
        await second.first("bind")
        assert first.verbs() == ["filter", "prioritize"]
        assert second.verbs() == ["filter", "prioritize", "bind"]
        assert (await caching.first("filter"))["NodeNames"] == ["n1", "n2"]
        assert of_gpus.asked == []


async def test_an_extender_sees_what_scheduling_does_not_read() -> None:
    async with (
        cluster("n1") as server,
        extender() as running,
        story(server, configured(running, "filter")) as told,
    ):
        await told.pod("p")
        await told.bound("p")
        body = await running.first("filter")
        (node,) = body["Nodes"]["items"]
        assert node["metadata"]["annotations"]["colour"] == "green"
        assert node["status"]["capacity"]["cpu"] == "1"
        assert body["Pod"]["spec"]["terminationGracePeriodSeconds"] == 0
        assert body["NodeNames"] is None


async def test_a_resource_that_the_scheduler_ignores_is_the_extenders_alone() -> None:
    managed = {"name": "x.y/slots", "ignoredByScheduler": True}
    async with (
        cluster("n1", "n2") as server,
        extender(allows=["n2"]) as running,
        story(server, configured(running, "filter", managedResources=[managed])) as told,
    ):
        await told.pod("p", requests={"x.y/slots": "7"})
        assert await told.bound("p") == "n2"


async def test_what_an_extender_refuses_is_on_the_pod() -> None:
    async with (
        cluster("n1") as server,
        extender(allows=[]) as running,
        story(server, configured(running, "filter")) as told,
    ):
        await told.pod("p")
        assert (await told.refused("p")).startswith("0/1 nodes are available: 1 not allowed.")


async def test_a_refused_pod_is_tried_again_when_a_node_comes() -> None:
    async with (
        cluster("n1") as server,
        extender(allows=["n2"]) as running,
        story(server, configured(running, "filter", nodeCacheCapable=True)) as told,
    ):
        await told.pod("p")
        await told.refused("p")
        await told.node("n2")
        assert await told.bound("p") == "n2"


@pytest.mark.parametrize("caching", [False, True])
async def test_an_extender_has_a_say_in_who_is_evicted(caching: bool) -> None:
    async with (
        cluster() as server,
        extender(allows=["n2"]) as running,
        story(server, configured(running, "preempt", nodeCacheCapable=caching)) as told,
    ):
        for node, pod, priority in (("n1", "cheap", 1), ("n2", "dear", 2)):
            await told.node(node)
            await told.pod(pod, priority=priority, requests={"cpu": "1"})
            await told.bound(pod)
        await told.pod("p", priority=10, requests={"cpu": "1"})
        assert await told.bound("p") == "n2"
        body = await running.first("preempt")
        victims = body["NodeNameToMetaVictims" if caching else "NodeNameToVictims"]
        assert sorted(victims) == ["n1", "n2"]


async def test_pods_are_scheduled_without_an_extender_that_may_be_ignored() -> None:
    async with (
        cluster("n1") as server,
        extender() as running,
        story(server, configured(running, *ALL, ignorable=True)) as told,
    ):
        await running.stop()
        await told.pod("p")
        assert await told.bound("p") == "n1"


async def test_pods_wait_for_an_extender_that_is_down() -> None:
    async with (
        cluster("n1") as server,
        extender() as running,
        story(server, configured(running, "filter")) as told,
    ):
        await running.stop()
        await told.pod("p")
        assert await told.refused("p") == f'Post "{running.url}/filter": connection refused'


async def test_tls_settings_that_cannot_be_used_are_told_before_anything_starts() -> None:
    broken = {"urlPrefix": "https://x", "filterVerb": "filter", "tlsConfig": {"caFile": "/nowhere"}}
    live = SchedulerApp.create(source={"apiVersion": API_VERSION, "kind": KIND, "extenders": [broken]})
    with pytest.raises(InputError, match="extender https://x: tlsConfig: /nowhere: No such file or directory"):
        await live.run(kubeconfig="/nowhere", master="", on_ready=lambda scheduler: None)
