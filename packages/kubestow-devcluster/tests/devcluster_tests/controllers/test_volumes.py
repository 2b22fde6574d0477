"""Binding, provisioning, protection and reclaiming of persistent volumes and claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devcluster_tests.client import PODS, node, pod
from devcluster_tests.scenarios import Cluster, run_scenario

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


def claim(name: str = "c", *, size: str = "1Gi", storage_class: str | None = "", **spec: Any) -> dict[str, Any]:
    claim_spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    if storage_class is not None:
        claim_spec["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": claim_spec}


def volume(name: str = "v", *, size: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    capacity = {"storage": size}
    volume_spec = {"accessModes": ["ReadWriteOnce"], "capacity": capacity, "hostPath": {"path": "/data"}, **spec}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": volume_spec}


def storage_class(name: str = "fast", *, is_delayed: bool = False, **fields: Any) -> dict[str, Any]:
    mode = "WaitForFirstConsumer" if is_delayed else "Immediate"
    return {"metadata": {"name": name}, "provisioner": "disks.example.com", "volumeBindingMode": mode, **fields}


async def create(cluster: Cluster, *objects: dict[str, Any]) -> None:
    for new in objects:
        path = CLASSES if "provisioner" in new else VOLUMES if "capacity" in new["spec"] else CLAIMS
        response = await cluster.post(path, new)
        assert response.status == 201, response.message
    await asyncio.sleep(1)


async def bindings(cluster: Cluster) -> dict[str, str]:
    """The volume of each claim, empty if the claim is not bound."""
    return {
        one["metadata"]["name"]: one["spec"].get("volumeName", "") if one["status"]["phase"] == "Bound" else ""
        for one in await cluster.items(CLAIMS)
    }


async def phases(cluster: Cluster) -> list[str]:
    return [one["status"]["phase"] for one in await cluster.items(VOLUMES)]


@pytest.mark.parametrize(
    ("new_claim", "volume_name"),
    [
        (claim(), "v1"),
        (claim(size="3Gi"), "v5"),
        (claim(size="9Gi"), ""),
        (claim(storage_class="other"), ""),
        (claim(accessModes=["ReadWriteMany"]), ""),
        (claim(volumeMode="Block"), ""),
        (claim(selector={"matchLabels": {"disk": "ssd"}}), "v5"),
        (claim(volumeName="v5"), "v5"),
        (claim(volumeName="v5", size="9Gi"), ""),
    ],
)
def test_a_claim_is_bound_to_the_smallest_matching_volume(new_claim: dict[str, Any], volume_name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, volume("v5", size="5Gi", labels={"disk": "ssd"}), volume("v1"), new_claim)
        assert await bindings(cluster) == {"c": volume_name}

    run_scenario(scenario)


def test_binding_updates_volume_and_claim() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, claim())
        assert await cluster.reasons() == ["FailedBinding"]
        await create(cluster, volume())
        bound_volume = (await cluster.get(f"{VOLUMES}/v")).json
        assert (bound_volume["status"]["phase"], bound_volume["spec"]["claimRef"]["name"]) == ("Bound", "c")
        assert bound_volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        bound_claim = (await cluster.get(f"{CLAIMS}/c")).json
        assert bound_claim["status"] == {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
        }
        assert bound_claim["metadata"]["annotations"] == {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }

    run_scenario(scenario)


def test_a_volume_reserved_for_a_claim_is_not_bound_to_another() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, volume(claimRef={"namespace": "default", "name": "late"}), claim("early"))
        assert (await bindings(cluster), await phases(cluster)) == ({"early": ""}, ["Available"])
        await create(cluster, claim("late"))
        assert await bindings(cluster) == {"early": "", "late": "v"}

    run_scenario(scenario)


def test_a_claim_with_immediate_binding_gets_a_provisioned_volume() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, storage_class(), claim(storage_class="fast"))
        provisioned = (await cluster.items(VOLUMES))[0]
        assert await bindings(cluster) == {"c": provisioned["metadata"]["name"]}
        assert provisioned["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == "disks.example.com"
        assert (provisioned["spec"]["persistentVolumeReclaimPolicy"], "nodeAffinity" in provisioned["spec"]) == (
            "Delete",
            False,
        )
        assert await cluster.reasons() == ["ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"]

    run_scenario(scenario)


def test_with_wait_for_first_consumer_the_volume_is_provisioned_for_the_selected_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post("/api/v1/nodes", node("far", zone="z2"))
        topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1", "z2"]}]}]
        await create(cluster, storage_class(is_delayed=True, allowedTopologies=topologies), claim(storage_class="fast"))
        assert (await bindings(cluster), await cluster.reasons()) == ({"c": ""}, ["WaitForFirstConsumer"])
        await cluster.patch(f"{CLAIMS}/c", {"metadata": {"annotations": {SELECTED: "far"}}})
        await asyncio.sleep(1)
        term = (await cluster.items(VOLUMES))[0]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
        assert term["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["z2"]}]
        assert all((await bindings(cluster)).values())

    run_scenario(scenario)


def test_a_selected_node_outside_the_allowed_topologies_is_removed_from_the_claim() -> None:
    async def scenario(cluster: Cluster) -> None:
        topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]
        await create(cluster, storage_class(is_delayed=True, allowedTopologies=topologies), claim(storage_class="fast"))
        await cluster.patch(f"{CLAIMS}/c", {"metadata": {"annotations": {SELECTED: "n"}}})
        await asyncio.sleep(1)
        assert SELECTED not in (await cluster.get(f"{CLAIMS}/c")).json["metadata"]["annotations"]
        assert "ProvisioningFailed" in await cluster.reasons()

    run_scenario(scenario)


def test_the_node_affinity_of_a_volume_follows_the_topology_keys_of_the_driver() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post("/api/v1/nodes", node("far", zone="z2"))
        drivers = [{"name": "disks.example.com", "nodeID": "far", "topologyKeys": ["zone"]}]
        await cluster.post(
            "/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "far"}, "spec": {"drivers": drivers}}
        )
        new = claim(storage_class="fast")
        new["metadata"]["annotations"] = {SELECTED: "far"}
        await create(cluster, storage_class(is_delayed=True), new)
        assert "nodeAffinity" in (await cluster.items(VOLUMES))[0]["spec"]

    run_scenario(scenario)


@pytest.mark.parametrize(("duration", "after", "volumes"), [("30s", 29, 0), ("30s", 31, 1), ("never", 3600, 0)])
def test_provisioning_takes_the_annotated_duration(duration: str, after: int, volumes: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        slow = storage_class()
        slow["metadata"]["annotations"] = {"kubestow.dev/provisioning": duration}
        await create(cluster, slow)
        await cluster.post(CLAIMS, claim(storage_class="fast"))
        await asyncio.sleep(after)
        assert len(await cluster.items(VOLUMES)) == volumes

    run_scenario(scenario)


def test_a_class_without_provisioner_provisions_no_volume() -> None:
    async def scenario(cluster: Cluster) -> None:
        local = storage_class() | {"provisioner": "kubernetes.io/no-provisioner"}
        await create(cluster, local, claim(storage_class="fast"), claim("lost", storage_class="none"))
        assert set((await bindings(cluster)).values()) == {""}
        assert await cluster.reasons() == ["ProvisioningFailed", "ProvisioningFailed"]

    run_scenario(scenario)


def test_a_claim_without_class_gets_a_default_class_that_is_created_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, claim(storage_class=None))
        default = storage_class()
        default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        await create(cluster, default)
        assert (await cluster.get(f"{CLAIMS}/c")).json["spec"]["storageClassName"] == "fast"
        assert all((await bindings(cluster)).values())

    run_scenario(scenario)


def test_of_default_classes_created_at_once_the_first_by_name_is_used() -> None:
    async def scenario(cluster: Cluster) -> None:
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        named = [{**storage_class(), "metadata": {"name": name, "annotations": annotations}} for name in "bac"]
        await create(cluster, *named)
        await create(cluster, claim(storage_class=None))
        assert (await cluster.get(f"{CLAIMS}/c")).json["spec"]["storageClassName"] == "a"

    run_scenario(scenario)


@pytest.mark.parametrize(("policy", "remaining"), [("Delete", []), ("Retain", ["Released"])])
def test_a_released_volume_is_reclaimed_by_its_reclaim_policy(policy: str, remaining: list[str]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, storage_class(reclaimPolicy=policy), claim(storage_class="fast"))
        await cluster.delete(f"{CLAIMS}/c")
        await asyncio.sleep(1)
        assert (await bindings(cluster), await phases(cluster)) == ({}, remaining)

    run_scenario(scenario)


def test_a_claim_in_use_is_protected_until_its_pod_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
        await create(cluster, volume(), claim())
        await cluster.post(PODS, pod(nodeName="n", volumes=volumes))
        await cluster.delete(f"{CLAIMS}/c")
        await asyncio.sleep(60)
        assert "deletionTimestamp" in (await cluster.get(f"{CLAIMS}/c")).json["metadata"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(60)
        assert (await bindings(cluster), await phases(cluster)) == ({}, ["Released"])

    run_scenario(scenario)


def test_a_bound_volume_is_protected_and_a_claim_without_its_volume_is_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, volume(), claim())
        await cluster.delete(f"{VOLUMES}/v")
        await asyncio.sleep(60)
        assert await phases(cluster) == ["Bound"]
        await cluster.patch(f"{VOLUMES}/v", {"metadata": {"finalizers": None}})
        await asyncio.sleep(1)
        assert (await cluster.get(f"{CLAIMS}/c")).json["status"]["phase"] == "Lost"
        assert (await cluster.reasons())[-1] == "ClaimLost"

    run_scenario(scenario)


def test_a_claim_can_be_expanded_if_its_class_allows_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, storage_class(allowVolumeExpansion=True), claim(storage_class="fast"))
        await cluster.patch(f"{CLAIMS}/c", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
        await asyncio.sleep(1)
        assert (await cluster.get(f"{CLAIMS}/c")).json["status"]["capacity"] == {"storage": "2Gi"}
        assert (await cluster.items(VOLUMES))[0]["spec"]["capacity"] == {"storage": "2Gi"}

    run_scenario(scenario)


def test_the_controller_binds_a_claim_to_the_volume_that_the_scheduler_reserved() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(
            cluster, storage_class(is_delayed=True), volume(storageClassName="fast"), claim(storage_class="fast")
        )
        assert await bindings(cluster) == {"c": ""}
        uid = (await cluster.get(f"{CLAIMS}/c")).json["metadata"]["uid"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        await cluster.patch(f"{VOLUMES}/v", {"spec": {"claimRef": reference}})
        await asyncio.sleep(1)
        assert await bindings(cluster) == {"c": "v"}

    run_scenario(scenario)


def test_the_controller_leaves_unbound_volumes_of_a_delayed_class_to_the_scheduler() -> None:
    async def scenario(cluster: Cluster) -> None:
        new_claim = claim(storage_class="fast")
        new_claim["metadata"]["annotations"] = {SELECTED: "n"}
        await create(cluster, storage_class(is_delayed=True), volume(storageClassName="fast"), new_claim)
        assert (await bindings(cluster))["c"].startswith("pvc-")

    run_scenario(scenario)


def test_the_claim_of_an_ephemeral_volume_is_deleted_with_its_pod() -> None:
    async def scenario(cluster: Cluster) -> None:
        template = {"spec": claim(storage_class="fast")["spec"]}
        await create(cluster, storage_class())
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        await cluster.post(PODS, pod(nodeName="n", volumes=volumes))
        await asyncio.sleep(1)
        assert list(await bindings(cluster)) == ["p-scratch"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(5)
        assert (await bindings(cluster), await phases(cluster)) == ({}, [])

    run_scenario(scenario)
