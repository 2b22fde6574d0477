"""Defragmentation from the plan to the free nodes: on a cluster with controllers, kubelets and a scheduler."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any

import aiohttp

from devcluster_tests.scheduled_cluster import scheduled_cluster, wait_until_cordon_is_seen
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.descheduling.defragmentation.plan import read_plan
from kubestow.descheduling.program.api_requests import list_cluster
from kubestow.descheduling.program.plan_execution import CORDON_PERIOD, ExecutionOptions, PlanExecution, PlanExecutor
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems
from kubestow.process import WallClock
from kubestow_lab.what_if.defragmentation import DomainsToFree, plan_defragmentation

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LABELS = {"app": "web"}
SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "containers": [{"name": "c", "image": "nginx"}],
                "terminationGracePeriodSeconds": 0,
                "topologySpreadConstraints": [SPREAD | {"labelSelector": {"matchLabels": LABELS}}],
            },
        },
    },
}


class HurriedClock(WallClock):
    """The clock of an execution that looks at its pods all the time, once the scheduler has seen its cordons."""

    def __init__(self, wait_for_cordons: Callable[[], Awaitable[None]]) -> None:
        self._wait_for_cordons = wait_for_cordons

    async def sleep(self, seconds: float) -> None:
        if seconds == CORDON_PERIOD:
            await self._wait_for_cordons()
        else:
            await super().sleep(min(seconds, 0.02) if seconds <= 5 else seconds)


async def watched(
    session: aiohttp.ClientSession, url: str, is_reached: Callable[[Collection[Object]], bool]
) -> list[Object]:
    """The objects of a collection once a condition holds."""
    found: dict[str, Object] = {}
    async with session.get(f"{url}?watch=true") as watch:
        async for line in watch.content:
            event = json.loads(line)
            name = event["object"]["metadata"]["name"]
            found[name] = event["object"]
            if event["type"] == "DELETED":
                del found[name]
            if is_reached(found.values()):
                return list(found.values())
    raise AssertionError("the watch has ended")


def nodes_of_ready(pods: Collection[Object]) -> Iterator[str]:
    for pod in pods:
        conditions = pod["status"].get("conditions", [])
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            yield pod["spec"]["nodeName"]


async def read_cluster(url: str) -> ClusterObjects:
    problems = Problems()
    async with Transport(Credentials(url), clock=WallClock()) as transport:
        sources = await list_cluster(transport, for_scheduling=(), metrics=False, problems=problems)
    return ClusterObjects.of_sources(sources, problems, subject="the cluster")


async def test_two_nodes_become_free_one_pod_after_the_other_as_the_budget_allows() -> None:
    async with scheduled_cluster(nodes=3) as cluster, aiohttp.ClientSession(cluster.url) as session:
        budget = {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}}
        for path, body in ((BUDGETS, budget), ("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)):
            async with session.post(path, json=body) as response:
                assert response.status == 201
        await watched(session, PODS, lambda pods: len(set(nodes_of_ready(pods))) == 3)
        await watched(session, BUDGETS, lambda found: any(b["status"].get("disruptionsAllowed") == 1 for b in found))

        made = plan_defragmentation(await read_cluster(cluster.url), None, free=DomainsToFree(2))
        plan = read_plan(json.dumps(made.document()).encode(), "plan.json")
        assert [len(step) for step in plan.steps()] == [1, 1]

        async def wait_for_cordons() -> None:
            for name in plan.cordoned:
                await wait_until_cordon_is_seen(cluster.url, session, name)

        ended: list[PlanExecution] = []
        executor = PlanExecutor(plan, ExecutionOptions(cordons=True), clock=HurriedClock(wait_for_cordons))
        await executor.run(kubeconfig="", master=cluster.url, on_end=ended.append)

        assert [execution.problem for execution in ended] == [""]
        assert ended[0].is_complete
        pods = await watched(session, PODS, lambda pods: len(list(nodes_of_ready(pods))) == 3)
        assert {pod["spec"]["nodeName"] for pod in pods}.isdisjoint(plan.cordoned)
        assert len(plan.cordoned) == 2
