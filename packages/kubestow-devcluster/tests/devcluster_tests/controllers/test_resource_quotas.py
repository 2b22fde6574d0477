"""Resource quotas: their usage, and what they reject."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import PODS, pod
from devcluster_tests.scenarios import REPLICA_SETS, Cluster, run_scenario, workload

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def create_quota(cluster: Cluster, hard: dict[str, str], name: str = "q", **spec: Any) -> None:
    await cluster.post(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
    await asyncio.sleep(5)


async def used(cluster: Cluster, name: str = "q") -> dict[str, str]:
    amounts: dict[str, str] = (await cluster.get(f"{QUOTAS}/{name}")).json["status"]["used"]
    return amounts


def test_what_exceeds_a_quota_is_forbidden_until_something_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("early", cpu="500m"))
        await create_quota(cluster, {"pods": "3", "requests.cpu": "2", "count/configmaps": "5"})
        assert await used(cluster) == {"count/configmaps": "1", "pods": "1", "requests.cpu": "500m"}
        assert (await cluster.post(PODS, pod("a", cpu="1"))).status == 201
        assert (await used(cluster))["requests.cpu"] == "1500m"
        response = await cluster.post(PODS, pod("b", cpu="750m"))
        assert (response.status, response.message) == (
            403,
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=750m, used: requests.cpu=1500m,'
            " limited: requests.cpu=2",
        )
        await cluster.delete(f"{PODS}/a")
        await asyncio.sleep(1)
        assert (await used(cluster))["requests.cpu"] == "500m"
        assert (await cluster.post(PODS, pod("b", cpu="750m"))).status == 201

    run_scenario(scenario)


def test_a_quota_whose_usage_is_not_known_yet_rejects() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.stop_controllers()
        await create_quota(cluster, {"pods": "3"})
        response = await cluster.post(PODS, pod())
        assert response.message == 'pods "p" is forbidden: status unknown for quota: q, resources: pods'

    run_scenario(scenario)


def test_with_a_quota_for_a_resource_every_container_must_request_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_quota(cluster, {"limits.memory": "1Gi", "cpu": "4"})
        response = await cluster.post(PODS, pod())
        assert response.message == 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: c'

    run_scenario(scenario)


def test_finished_pods_do_not_count_and_dry_runs_are_free() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_quota(cluster, {"pods": "1", "count/pods": "9"})
        assert (await cluster.post(f"{PODS}?dryRun=All", pod())).status == 201
        done = pod("done")
        done["metadata"]["annotations"] = {"kubestow.dev/duration": "1s"}
        await cluster.post(PODS, done)
        assert await used(cluster) == {"count/pods": "1", "pods": "1"}
        await cluster.pass_time(10)
        assert await used(cluster) == {"count/pods": "1", "pods": "0"}
        assert (await cluster.post(PODS, pod("next"))).status == 201

    run_scenario(scenario)


def test_a_quota_with_scopes_counts_only_the_pods_in_them() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 9})
        high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
        await create_quota(cluster, {"pods": "1"}, scopeSelector={"matchExpressions": [high]})
        await create_quota(cluster, {"pods": "1"}, "besteffort", scopes=["BestEffort"])
        await create_quota(cluster, {"pods": "1"}, "terminating", scopes=["Terminating", "NotBestEffort"])
        assert (await cluster.post(PODS, pod("a"))).status == 201
        assert (await cluster.post(PODS, pod("b", priorityClassName="high"))).status == 201
        assert (await cluster.post(PODS, pod("c", priorityClassName="high"))).status == 403
        assert (await cluster.post(PODS, pod("d", activeDeadlineSeconds=60))).status == 201
        assert [await used(cluster, name) for name in ("q", "besteffort", "terminating")] == [
            {"pods": "1"},
            {"pods": "0"},
            {"pods": "1"},
        ]

    run_scenario(scenario)


def test_a_deadline_moves_a_pod_from_one_scope_to_another() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_quota(cluster, {"pods": "1"}, "terminating", scopes=["Terminating"])
        await create_quota(cluster, {"pods": "1"}, "not-terminating", scopes=["NotTerminating"])
        assert (await cluster.post(PODS, pod("a"))).status == 201
        assert (await cluster.patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 600}})).status == 200
        assert (await cluster.post(PODS, pod("b", activeDeadlineSeconds=600))).status == 403
        await cluster.pass_time(1)
        assert await used(cluster, "terminating") == {"pods": "1"}
        assert await used(cluster, "not-terminating") == {"pods": "0"}
        assert (await cluster.post(PODS, pod("c"))).status == 201

    run_scenario(scenario)


def test_claims_and_services_count_by_class_and_type() -> None:
    async def scenario(cluster: Cluster) -> None:
        by_class = "fast.storageclass.storage.k8s.io/requests.storage"
        hard = {by_class: "3Gi", "persistentvolumeclaims": "9", "services.nodeports": "2", "services": "5"}
        await create_quota(cluster, hard)
        resources = {"requests": {"storage": "2Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "fast"}
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        assert (await cluster.post(claims, {"metadata": {"name": "a"}, "spec": spec})).status == 201
        assert (await cluster.post(claims, {"metadata": {"name": "b"}, "spec": spec})).status == 403
        service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        assert (await cluster.post("/api/v1/namespaces/default/services", service)).status == 201
        assert await used(cluster) == {
            by_class: "2Gi",
            "persistentvolumeclaims": "1",
            "services": "2",
            "services.nodeports": "1",
        }

    run_scenario(scenario)


def test_a_replica_set_creates_as_many_pods_as_the_quota_allows_and_the_rest_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_quota(cluster, {"pods": "2"})
        await cluster.post(REPLICA_SETS, workload())
        await cluster.pass_time(5)
        assert len(await cluster.pods()) == 2
        assert "FailedCreate" in await cluster.reasons()
        await cluster.patch(f"{QUOTAS}/q", {"spec": {"hard": {"pods": "3"}}})
        await cluster.pass_time(60)
        assert len(await cluster.pods()) == 3

    run_scenario(scenario)


def test_a_quota_scoped_by_volume_attributes_class_counts_only_claims_of_the_class() -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"

    def claim(name: str, **spec: Any) -> dict[str, Any]:
        size = {"requests": {"storage": "1Gi"}}
        return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size, **spec}}

    async def scenario(cluster: Cluster) -> None:
        gold = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
        await create_quota(cluster, {"persistentvolumeclaims": "1"}, scopeSelector={"matchExpressions": [gold]})
        unset = {"scopeName": "VolumeAttributesClass", "operator": "DoesNotExist"}
        quota = {"requests.storage": "1Gi"}
        await create_quota(cluster, quota, "unset", scopeSelector={"matchExpressions": [unset]})
        assert (await cluster.post(claims, claim("a", volumeAttributesClassName="gold"))).status == 201
        assert (await cluster.post(claims, claim("b", volumeAttributesClassName="silver"))).status == 201
        assert (await used(cluster), await used(cluster, "unset")) == (
            {"persistentvolumeclaims": "1"},
            {"requests.storage": "0"},
        )
        refused = await cluster.post(claims, claim("c", volumeAttributesClassName="gold"))
        assert (refused.status, "exceeded quota: q" in refused.message) == (403, True)
        assert (await cluster.post(claims, claim("d"))).status == 201
        assert (await cluster.post(claims, claim("e"))).status == 403

    run_scenario(scenario)
