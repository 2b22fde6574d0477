"""Deployments make replica sets and move from one to the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.devcluster.client import PODS
from tests.devcluster.scenarios import DEPLOYMENTS, REPLICA_SETS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

REVISION = "deployment.kubernetes.io/revision"


async def deployment(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{DEPLOYMENTS}/web")).json
    return found


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{DEPLOYMENTS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def images(cluster: Cluster) -> set[str]:
    return {one["spec"]["containers"][0]["image"] for one in await cluster.pods()}


async def progressing(cluster: Cluster) -> str:
    conditions = (await deployment(cluster))["status"]["conditions"]
    return str(next(one["reason"] for one in conditions if one["type"] == "Progressing"))


def test_a_deployment_comes_to_run_all_its_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.pass_time(2)
        found = await deployment(cluster)
        status = {name: value for name, value in found["status"].items() if name != "conditions"}
        counts = {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
        assert status == {"observedGeneration": 1, **counts}
        assert found["metadata"]["annotations"][REVISION] == "1"
        assert {one["type"]: one["status"] for one in found["status"]["conditions"]} == {
            "Progressing": "True",
            "Available": "True",
        }
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    told(story)


@pytest.mark.parametrize(("surge", "unavailable"), [("25%", "25%"), (1, 0), (0, 1), ("100%", 0), (0, "10%")])
def test_a_rolling_update_never_has_too_few_or_too_many_pods(surge: int | str, unavailable: int | str) -> None:
    async def story(cluster: Cluster) -> None:
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        await cluster.post(DEPLOYMENTS, workload(replicas=4, strategy=strategy))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        most = 4 + {"25%": 1, 1: 1, 0: 0, "100%": 4}[surge]
        least = 4 - {"25%": 1, 1: 1, 0: 0, "10%": 1}[unavailable]
        for _ in range(60):
            await cluster.pass_time(0.1)
            alive = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
            ready = [one for one in alive if one["status"]["phase"] == "Running"]
            assert len(alive) <= most and len(ready) >= least
        assert await images(cluster) == {"x:2"}
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    told(story)


def test_recreate_starts_new_pods_only_when_the_old_ones_are_gone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2, strategy={"type": "Recreate"}))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        for _ in range(30):
            await cluster.pass_time(0.1)
            assert len(await images(cluster)) <= 1
        assert await images(cluster) == {"x:2"} and len(await cluster.pods()) == 2

    told(story)


def test_rolling_back_takes_the_old_replica_set_under_a_new_revision() -> None:
    async def story(cluster: Cluster) -> None:
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

    told(story)


def test_only_so_many_revisions_are_kept() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1, revisionHistoryLimit=1))
        for number in range(4):
            await set_image(cluster, f"x:{number}")
            await cluster.pass_time(3)
        assert len(await cluster.items(REPLICA_SETS)) == 2

    told(story)


def test_a_paused_deployment_is_scaled_but_not_updated() -> None:
    async def story(cluster: Cluster) -> None:
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

    told(story)


def test_an_update_that_gets_nowhere_is_late_after_its_deadline() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1, progressDeadlineSeconds=60))
        await cluster.pass_time(30, binding=False)
        assert await progressing(cluster) in ("NewReplicaSetCreated", "ReplicaSetUpdated")
        await cluster.pass_time(40, binding=False)
        assert await progressing(cluster) == "ProgressDeadlineExceeded"
        await cluster.pass_time(2)
        assert await progressing(cluster) == "NewReplicaSetAvailable"

    told(story)


def test_a_deleted_deployment_takes_everything_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2))
        await cluster.pass_time(2)
        await cluster.delete(f"{DEPLOYMENTS}/web")
        await cluster.pass_time(2)
        assert await cluster.items(REPLICA_SETS) == [] == await cluster.items(PODS)

    told(story)


@pytest.mark.parametrize("surge", ["many", "-1%", -1])
async def test_an_impossible_surge_is_refused(client: Any, surge: Any) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge}}
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
async def test_an_impossible_strategy_is_refused(client: Any, strategy: dict[str, Any], field: str) -> None:
    response = await client.post(DEPLOYMENTS, workload(strategy=strategy))
    assert response.status == 422
    assert response.json["details"]["causes"][0]["field"].rpartition(".")[2] == field


async def sizes(cluster: Cluster) -> dict[str, int]:
    """The replicas of the replica sets, by image."""
    sets = await cluster.items(REPLICA_SETS)
    return {one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"] for one in sets}


@pytest.mark.parametrize(("replicas", "shares"), [(20, {"x:1": 15, "x:2": 10}), (4, {"x:1": 3, "x:2": 2})])
def test_a_change_of_scale_in_the_middle_of_an_update_is_shared(replicas: int, shares: dict[str, int]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=10))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        await cluster.pass_time(1, binding=False)
        assert await sizes(cluster) == {"x:1": 8, "x:2": 5}
        await cluster.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}})
        await asyncio.sleep(0.05)
        assert await sizes(cluster) == shares
        await cluster.pass_time(10)
        assert await sizes(cluster) == {"x:1": 0, "x:2": replicas}

    told(story)


def test_a_deployment_whose_pods_are_refused_says_so_until_they_are_not() -> None:
    async def story(cluster: Cluster) -> None:
        made = workload(replicas=1)
        made["spec"]["template"]["spec"]["priorityClassName"] = "late"
        await cluster.post(DEPLOYMENTS, made)
        await cluster.pass_time(2)
        conditions = {one["type"]: one for one in (await deployment(cluster))["status"]["conditions"]}
        assert "no PriorityClass with name late was found" in conditions["ReplicaFailure"]["message"]
        await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "late"}, "value": 7})
        await cluster.pass_time(20)
        conditions = {one["type"]: one for one in (await deployment(cluster))["status"]["conditions"]}
        assert conditions.keys() == {"Available", "Progressing"}

    told(story)
