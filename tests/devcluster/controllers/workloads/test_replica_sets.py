"""Replica sets keep as many pods as are wanted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import PODS, pod
from tests.devcluster.scenarios import REPLICA_SETS, REPLICATION_CONTROLLERS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")


async def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{REPLICA_SETS}/web")).json["status"]
    return found


def test_as_many_pods_as_wanted_come_and_are_counted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=3))
        await cluster.pass_time(1)
        counts = {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
        assert await status(cluster) == {**counts, "observedGeneration": 1}
        assert {one["metadata"]["ownerReferences"][0]["name"] for one in await cluster.pods()} == {"web"}

    told(story)


def test_a_deleted_pod_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        victim = (await cluster.pods())[0]["metadata"]["name"]
        await cluster.delete(f"{PODS}/{victim}")
        await cluster.pass_time(1)
        names = [one["metadata"]["name"] for one in await cluster.pods()]
        assert len(names) == 2 and victim not in names

    told(story)


def test_of_too_many_pods_those_without_a_node_go_first() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        running = {one["metadata"]["name"] for one in await cluster.pods()}
        await cluster.patch(f"{REPLICA_SETS}/web", {"spec": {"replicas": 4}})
        await cluster.pass_time(1, binding=False)
        assert len(await cluster.pods()) == 4
        await cluster.patch(f"{REPLICA_SETS}/web/scale", {"spec": {"replicas": 2}})
        await cluster.pass_time(1, binding=False)
        assert {one["metadata"]["name"] for one in await cluster.pods()} == running

    told(story)


@pytest.mark.parametrize(
    ("path", "selector"),
    [(REPLICA_SETS, {"matchLabels": {"app": "web"}}), (REPLICATION_CONTROLLERS, {"app": "web"})],
)
def test_pods_that_match_are_adopted_and_those_that_cease_to_are_released(path: str, selector: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("mine", labels={"app": "web"}))
        owner = workload(replicas=1)
        owner["spec"]["selector"] = selector
        await cluster.post(path, owner)
        await cluster.pass_time(1)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["mine"]
        await cluster.patch(f"{PODS}/mine", {"metadata": {"labels": {"app": "other"}}})
        await cluster.pass_time(1)
        owners = {one["metadata"]["name"]: one["metadata"].get("ownerReferences") for one in await cluster.pods()}
        assert len(owners) == 2 and owners["mine"] is None

    told(story)


def test_pods_count_as_available_when_they_have_been_ready_for_long_enough() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=1, minReadySeconds=30))
        await cluster.pass_time(10)
        before = await status(cluster)
        assert (before["readyReplicas"], before.get("availableReplicas")) == (1, None)
        await cluster.pass_time(30)
        assert (await status(cluster))["availableReplicas"] == 1

    told(story)


def test_pods_that_are_refused_are_told_of_and_tried_again() -> None:
    async def story(cluster: Cluster) -> None:
        broken = workload(replicas=1)
        broken["spec"]["template"]["spec"]["priorityClassName"] = "late"
        await cluster.post(REPLICA_SETS, broken)
        await cluster.pass_time(1)
        condition = (await status(cluster))["conditions"][0]
        assert condition["type"] == "ReplicaFailure" and "no PriorityClass with name late" in condition["message"]
        assert "FailedCreate" in await cluster.reasons()
        await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "late"}, "value": 7})
        await cluster.pass_time(60)
        assert len(await cluster.pods()) == 1 and "conditions" not in await status(cluster)

    told(story)
