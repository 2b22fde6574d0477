"""ReplicaSets keep the desired number of pods."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS, pod
from devcluster_tests.scenarios import REPLICA_SETS, REPLICATION_CONTROLLERS, Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")


async def status(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{REPLICA_SETS}/web")).json["status"]
    return status


def test_the_desired_number_of_pods_is_created_and_counted_in_the_status() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=3))
        await cluster.pass_time(1)
        counts = {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
        assert await status(cluster) == {**counts, "observedGeneration": 1}
        assert {one["metadata"]["ownerReferences"][0]["name"] for one in await cluster.pods()} == {"web"}

    run_scenario(scenario)


def test_a_deleted_pod_is_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        victim = (await cluster.pods())[0]["metadata"]["name"]
        await cluster.delete(f"{PODS}/{victim}")
        await cluster.pass_time(1)
        names = [one["metadata"]["name"] for one in await cluster.pods()]
        assert len(names) == 2 and victim not in names

    run_scenario(scenario)


def test_scaling_down_deletes_unscheduled_pods_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        running = {one["metadata"]["name"] for one in await cluster.pods()}
        await cluster.patch(f"{REPLICA_SETS}/web", {"spec": {"replicas": 4}})
        await cluster.pass_time(1, binding=False)
        assert len(await cluster.pods()) == 4
        await cluster.patch(f"{REPLICA_SETS}/web/scale", {"spec": {"replicas": 2}})
        await cluster.pass_time(1, binding=False)
        assert {one["metadata"]["name"] for one in await cluster.pods()} == running

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("path", "selector"),
    [(REPLICA_SETS, {"matchLabels": {"app": "web"}}), (REPLICATION_CONTROLLERS, {"app": "web"})],
)
def test_matching_pods_are_adopted_and_pods_that_no_longer_match_are_released(
    path: str, selector: dict[str, Any]
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("adopted", labels={"app": "web"}))
        owner = workload(replicas=1)
        owner["spec"]["selector"] = selector
        await cluster.post(path, owner)
        await cluster.pass_time(1)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["adopted"]
        await cluster.patch(f"{PODS}/adopted", {"metadata": {"labels": {"app": "other"}}})
        await cluster.pass_time(1)
        owners = {one["metadata"]["name"]: one["metadata"].get("ownerReferences") for one in await cluster.pods()}
        assert len(owners) == 2 and owners["adopted"] is None

    run_scenario(scenario)


def test_pods_are_available_after_min_ready_seconds() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=1, minReadySeconds=30))
        await cluster.pass_time(10)
        before = await status(cluster)
        assert (before["readyReplicas"], before.get("availableReplicas")) == (1, None)
        await cluster.pass_time(30)
        assert (await status(cluster))["availableReplicas"] == 1

    run_scenario(scenario)


def test_a_failed_pod_creation_is_reported_and_retried() -> None:
    async def scenario(cluster: Cluster) -> None:
        rejected = workload(replicas=1)
        rejected["spec"]["template"]["spec"]["priorityClassName"] = "late"
        await cluster.post(REPLICA_SETS, rejected)
        await cluster.pass_time(1)
        condition = (await status(cluster))["conditions"][0]
        assert condition["type"] == "ReplicaFailure" and "no PriorityClass with name late" in condition["message"]
        assert "FailedCreate" in await cluster.reasons()
        await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "late"}, "value": 7})
        await cluster.pass_time(60)
        assert len(await cluster.pods()) == 1 and "conditions" not in await status(cluster)

    run_scenario(scenario)
