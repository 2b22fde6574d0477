"""Deployments create ReplicaSets and roll pods over from the old ones to the new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devcluster_tests.client import PODS
from devcluster_tests.scenarios import DEPLOYMENTS, REPLICA_SETS, Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

REVISION = "deployment.kubernetes.io/revision"


async def deployment(cluster: Cluster) -> dict[str, Any]:
    deployment: dict[str, Any] = (await cluster.get(f"{DEPLOYMENTS}/web")).json
    return deployment


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{DEPLOYMENTS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def images(cluster: Cluster) -> set[str]:
    return {one["spec"]["containers"][0]["image"] for one in await cluster.pods()}


async def progressing(cluster: Cluster) -> str:
    conditions = (await deployment(cluster))["status"]["conditions"]
    return str(next(one["reason"] for one in conditions if one["type"] == "Progressing"))


def test_a_deployment_becomes_available() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.pass_time(2)
        current = await deployment(cluster)
        status = {name: value for name, value in current["status"].items() if name != "conditions"}
        counts = {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
        assert status == {"observedGeneration": 1, **counts}
        assert [condition["type"] for condition in current["status"]["conditions"]] == ["Available", "Progressing"]
        assert current["metadata"]["annotations"][REVISION] == "1"
        assert {one["type"]: one["status"] for one in current["status"]["conditions"]} == {
            "Progressing": "True",
            "Available": "True",
        }
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    run_scenario(scenario)


@pytest.mark.parametrize(("max_surge", "max_unavailable"), [("25%", "25%"), (1, 0), (0, 1), ("100%", 0), (0, "10%")])
def test_a_rolling_update_respects_max_surge_and_max_unavailable(
    max_surge: int | str, max_unavailable: int | str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        rolling = {"maxSurge": max_surge, "maxUnavailable": max_unavailable}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        await cluster.post(DEPLOYMENTS, workload(replicas=4, strategy=strategy))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        max_pods = 4 + {"25%": 1, 1: 1, 0: 0, "100%": 4}[max_surge]
        min_ready = 4 - {"25%": 1, 1: 1, 0: 0, "10%": 1}[max_unavailable]
        for _ in range(60):
            await cluster.pass_time(0.1)
            live = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
            ready = [one for one in live if one["status"]["phase"] == "Running"]
            assert len(live) <= max_pods and len(ready) >= min_ready
        assert await images(cluster) == {"x:2"}
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    run_scenario(scenario)


def test_recreate_creates_new_pods_only_when_the_old_ones_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2, strategy={"type": "Recreate"}))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        for _ in range(30):
            await cluster.pass_time(0.1)
            assert len(await images(cluster)) <= 1
        assert await images(cluster) == {"x:2"} and len(await cluster.pods()) == 2

    run_scenario(scenario)


def test_a_rollback_scales_up_the_old_replica_set_under_a_new_revision() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2))
        await cluster.pass_time(2)
        for image in ("x:2", "x:1"):
            await set_image(cluster, image)
            await cluster.pass_time(3)
        sets = await cluster.items(REPLICA_SETS)
        revisions = {
            one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"][REVISION]
            for one in sets
        }
        assert revisions == {"x:1": "3", "x:2": "2"} and await images(cluster) == {"x:1"}
        assert (await deployment(cluster))["metadata"]["annotations"][REVISION] == "3"

    run_scenario(scenario)


def test_replica_sets_beyond_the_revision_history_limit_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1, revisionHistoryLimit=1))
        for number in range(4):
            await set_image(cluster, f"x:{number}")
            await cluster.pass_time(3)
        assert len(await cluster.items(REPLICA_SETS)) == 2

    run_scenario(scenario)


def test_a_paused_deployment_is_scaled_but_not_updated() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1))
        await cluster.pass_time(2)
        await cluster.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": True, "replicas": 2}})
        await set_image(cluster, "x:2")
        await cluster.pass_time(2)
        assert await images(cluster) == {"x:1"} and len(await cluster.pods()) == 2
        assert await progressing(cluster) == "DeploymentPaused"
        await cluster.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": False}})
        await cluster.pass_time(3)
        assert await images(cluster) == {"x:2"}

    run_scenario(scenario)


def test_an_update_without_progress_exceeds_its_progress_deadline() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1, progressDeadlineSeconds=60))
        await cluster.pass_time(30, binding=False)
        assert await progressing(cluster) in ("NewReplicaSetCreated", "ReplicaSetUpdated")
        await cluster.pass_time(40, binding=False)
        assert await progressing(cluster) == "ProgressDeadlineExceeded"
        await cluster.pass_time(2)
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    run_scenario(scenario)


def test_the_replica_sets_and_pods_of_a_deleted_deployment_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2))
        await cluster.pass_time(2)
        await cluster.delete(f"{DEPLOYMENTS}/web")
        await cluster.pass_time(2)
        assert await cluster.items(REPLICA_SETS) == [] == await cluster.items(PODS)

    run_scenario(scenario)


@pytest.mark.parametrize("max_surge", ["many", "-1%", -1])
async def test_an_invalid_max_surge_is_rejected(client: Any, max_surge: Any) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max_surge}}
    response = await client.post(DEPLOYMENTS, workload(strategy=rolling))
    assert response.status == 422
    assert response.json["details"]["causes"][0]["field"] == "spec.strategy.rollingUpdate.maxSurge"


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}, "maxUnavailable"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "101%"}}, "maxUnavailable"),
        ({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}, "rollingUpdate"),
        ({"type": "BlueGreen"}, "type"),
    ],
)
async def test_an_invalid_strategy_is_rejected(client: Any, strategy: dict[str, Any], field: str) -> None:
    response = await client.post(DEPLOYMENTS, workload(strategy=strategy))
    assert response.status == 422
    assert response.json["details"]["causes"][0]["field"].rpartition(".")[2] == field


async def replicas_by_image(cluster: Cluster) -> dict[str, int]:
    """The replicas of each ReplicaSet by its image."""
    sets = await cluster.items(REPLICA_SETS)
    return {one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"] for one in sets}


@pytest.mark.parametrize(("replicas", "proportional"), [(20, {"x:1": 15, "x:2": 10}), (4, {"x:1": 3, "x:2": 2})])
def test_scaling_during_a_rolling_update_is_proportional(replicas: int, proportional: dict[str, int]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=10))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        await cluster.pass_time(1, binding=False)
        assert await replicas_by_image(cluster) == {"x:1": 8, "x:2": 5}
        await cluster.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}})
        await asyncio.sleep(0.05)
        assert await replicas_by_image(cluster) == proportional
        await cluster.pass_time(10)
        assert await replicas_by_image(cluster) == {"x:1": 0, "x:2": replicas}

    run_scenario(scenario)


def test_a_deployment_reports_replica_failure_while_pods_are_rejected() -> None:
    async def scenario(cluster: Cluster) -> None:
        rejected = workload(replicas=1)
        rejected["spec"]["template"]["spec"]["priorityClassName"] = "late"
        await cluster.post(DEPLOYMENTS, rejected)
        await cluster.pass_time(2)
        conditions = {one["type"]: one for one in (await deployment(cluster))["status"]["conditions"]}
        assert "no PriorityClass with name late was found" in conditions["ReplicaFailure"]["message"]
        await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "late"}, "value": 7})
        await cluster.pass_time(20)
        conditions = {one["type"]: one for one in (await deployment(cluster))["status"]["conditions"]}
        assert conditions.keys() == {"Available", "Progressing"}

    run_scenario(scenario)


def test_a_deployment_adopts_a_matching_replica_set_and_continues_its_revisions() -> None:
    async def scenario(cluster: Cluster) -> None:
        orphan = workload("old", replicas=2)
        orphan["metadata"] = {
            "name": "old",
            "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": "3546343826724305832"},
        }
        orphan["spec"]["selector"] = {"matchLabels": {"app": "web"}}
        orphan["spec"]["template"]["metadata"] = {"labels": {"app": "web"}}
        await cluster.post(REPLICA_SETS, orphan)
        await cluster.pass_time(2)
        await cluster.post(DEPLOYMENTS, workload(replicas=2, image="x:2"))
        await cluster.pass_time(10)
        sets = {one["metadata"]["name"]: one for one in await cluster.items(REPLICA_SETS)}
        owners = [one["metadata"]["ownerReferences"][0]["name"] for one in sets.values()]
        assert owners == ["web", "web"] and sets["old"]["spec"]["replicas"] == 0
        annotations = (await deployment(cluster))["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/revision"] == "3546343826724305833"
        assert (await deployment(cluster))["status"]["availableReplicas"] == 2

    run_scenario(scenario)


def test_a_replica_set_that_no_longer_matches_is_released() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1))
        await cluster.pass_time(2)
        (replica_set,) = await cluster.items(REPLICA_SETS)
        path = f"{REPLICA_SETS}/{replica_set['metadata']['name']}"
        await cluster.patch(path, {"metadata": {"labels": {"app": "other"}}})
        await cluster.pass_time(2)
        assert "ownerReferences" not in (await cluster.get(path)).json["metadata"]

    run_scenario(scenario)
