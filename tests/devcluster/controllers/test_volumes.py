"""Claims and volumes: bound, provided, released and protected, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.devcluster.client import PODS, node, pod
from tests.devcluster.scenarios import Cluster, told

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


def claim(name: str = "c", *, size: str = "1Gi", storage_class: str | None = "", **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    if storage_class is not None:
        made["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": made}


def volume(name: str = "v", *, size: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    capacity = {"storage": size}
    made = {"accessModes": ["ReadWriteOnce"], "capacity": capacity, "hostPath": {"path": "/data"}, **spec}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": made}


def storage_class(name: str = "fast", *, waits: bool = False, **fields: Any) -> dict[str, Any]:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {"metadata": {"name": name}, "provisioner": "disks.example.com", "volumeBindingMode": mode, **fields}


async def create(cluster: Cluster, *objects: dict[str, Any]) -> None:
    for new in objects:
        path = CLASSES if "provisioner" in new else VOLUMES if "capacity" in new["spec"] else CLAIMS
        response = await cluster.post(path, new)
        assert response.status == 201, response.message
    await asyncio.sleep(1)


async def bound(cluster: Cluster) -> dict[str, str]:
    """Claims by name, and the volumes they are bound to."""
    return {
        one["metadata"]["name"]: one["spec"].get("volumeName", "") if one["status"]["phase"] == "Bound" else ""
        for one in await cluster.items(CLAIMS)
    }


async def phases(cluster: Cluster) -> list[str]:
    return [one["status"]["phase"] for one in await cluster.items(VOLUMES)]


@pytest.mark.parametrize(
    ("asked", "got"),
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
def test_a_claim_gets_the_smallest_volume_that_suits(asked: dict[str, Any], got: str) -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, volume("v5", size="5Gi", labels={"disk": "ssd"}), volume("v1"), asked)
        assert await bound(cluster) == {"c": got}

    told(story)


def test_what_is_bound_says_so_on_both_sides() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, claim())
        assert await cluster.reasons() == ["FailedBinding"]
        await create(cluster, volume())
        held = (await cluster.get(f"{VOLUMES}/v")).json
        assert (held["status"]["phase"], held["spec"]["claimRef"]["name"]) == ("Bound", "c")
        assert held["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        holding = (await cluster.get(f"{CLAIMS}/c")).json
        assert holding["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        assert holding["metadata"]["annotations"] == {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }

    told(story)


def test_a_volume_reserved_for_a_claim_is_for_no_other() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, volume(claimRef={"namespace": "default", "name": "late"}), claim("early"))
        assert (await bound(cluster), await phases(cluster)) == ({"early": ""}, ["Available"])
        await create(cluster, claim("late"))
        assert await bound(cluster) == {"early": "", "late": "v"}

    told(story)


def test_a_volume_is_provided_for_a_claim_of_a_class_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, storage_class(), claim(storage_class="fast"))
        provided = (await cluster.items(VOLUMES))[0]
        assert await bound(cluster) == {"c": provided["metadata"]["name"]}
        assert provided["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == "disks.example.com"
        assert (provided["spec"]["persistentVolumeReclaimPolicy"], "nodeAffinity" in provided["spec"]) == (
            "Delete",
            False,
        )
        assert await cluster.reasons() == ["ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"]

    told(story)


def test_a_class_that_waits_has_its_volume_made_where_the_scheduler_wants_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post("/api/v1/nodes", node("far", zone="z2"))
        topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1", "z2"]}]}]
        await create(cluster, storage_class(waits=True, allowedTopologies=topologies), claim(storage_class="fast"))
        assert (await bound(cluster), await cluster.reasons()) == ({"c": ""}, ["WaitForFirstConsumer"])
        await cluster.patch(f"{CLAIMS}/c", {"metadata": {"annotations": {SELECTED: "far"}}})
        await asyncio.sleep(1)
        term = (await cluster.items(VOLUMES))[0]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
        assert term["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["z2"]}]
        assert all((await bound(cluster)).values())

    told(story)


def test_a_node_that_cannot_be_served_is_given_back_to_the_scheduler() -> None:
    async def story(cluster: Cluster) -> None:
        topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]
        await create(cluster, storage_class(waits=True, allowedTopologies=topologies), claim(storage_class="fast"))
        await cluster.patch(f"{CLAIMS}/c", {"metadata": {"annotations": {SELECTED: "n"}}})
        await asyncio.sleep(1)
        assert SELECTED not in (await cluster.get(f"{CLAIMS}/c")).json["metadata"]["annotations"]
        assert "ProvisioningFailed" in await cluster.reasons()

    told(story)


def test_a_driver_s_topology_keys_say_from_where_a_volume_is_reached() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post("/api/v1/nodes", node("far", zone="z2"))
        drivers = [{"name": "disks.example.com", "nodeID": "far", "topologyKeys": ["zone"]}]
        await cluster.post(
            "/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "far"}, "spec": {"drivers": drivers}}
        )
        asked = claim(storage_class="fast")
        asked["metadata"]["annotations"] = {SELECTED: "far"}
        await create(cluster, storage_class(waits=True), asked)
        assert "nodeAffinity" in (await cluster.items(VOLUMES))[0]["spec"]

    told(story)


@pytest.mark.parametrize(("said", "after", "made"), [("30s", 29, 0), ("30s", 31, 1), ("never", 3600, 0)])
def test_provisioning_takes_as_long_as_the_class_says(said: str, after: int, made: int) -> None:
    async def story(cluster: Cluster) -> None:
        slow = storage_class()
        slow["metadata"]["annotations"] = {"kubestow.dev/provisioning": said}
        await create(cluster, slow)
        await cluster.post(CLAIMS, claim(storage_class="fast"))
        await asyncio.sleep(after)
        assert len(await cluster.items(VOLUMES)) == made

    told(story)


def test_a_class_without_provisioner_provides_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        local = storage_class() | {"provisioner": "kubernetes.io/no-provisioner"}
        await create(cluster, local, claim(storage_class="fast"), claim("lost", storage_class="none"))
        assert set((await bound(cluster)).values()) == {""}
        assert await cluster.reasons() == ["ProvisioningFailed", "ProvisioningFailed"]

    told(story)


def test_a_claim_without_class_gets_the_default_one_even_later() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, claim(storage_class=None))
        default = storage_class()
        default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        await create(cluster, default)
        assert (await cluster.get(f"{CLAIMS}/c")).json["spec"]["storageClassName"] == "fast"
        assert all((await bound(cluster)).values())

    told(story)


@pytest.mark.parametrize(("policy", "left"), [("Delete", []), ("Retain", ["Released"])])
def test_a_released_volume_is_reclaimed_as_its_class_says(policy: str, left: list[str]) -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, storage_class(reclaimPolicy=policy), claim(storage_class="fast"))
        await cluster.delete(f"{CLAIMS}/c")
        await asyncio.sleep(1)
        assert (await bound(cluster), await phases(cluster)) == ({}, left)

    told(story)


def test_a_claim_in_use_stays_until_its_pod_has_ended() -> None:
    async def story(cluster: Cluster) -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
        await create(cluster, volume(), claim())
        await cluster.post(PODS, pod(nodeName="n", volumes=volumes))
        await cluster.delete(f"{CLAIMS}/c")
        await asyncio.sleep(60)
        assert "deletionTimestamp" in (await cluster.get(f"{CLAIMS}/c")).json["metadata"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(60)
        assert (await bound(cluster), await phases(cluster)) == ({}, ["Released"])

    told(story)


def test_a_bound_volume_stays_until_its_claim_is_gone_which_then_is_lost() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, volume(), claim())
        await cluster.delete(f"{VOLUMES}/v")
        await asyncio.sleep(60)
        assert await phases(cluster) == ["Bound"]
        await cluster.patch(f"{VOLUMES}/v", {"metadata": {"finalizers": None}})
        await asyncio.sleep(1)
        assert (await cluster.get(f"{CLAIMS}/c")).json["status"]["phase"] == "Lost"
        assert (await cluster.reasons())[-1] == "ClaimLost"

    told(story)


def test_a_claim_of_a_class_that_allows_it_can_grow() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, storage_class(allowVolumeExpansion=True), claim(storage_class="fast"))
        await cluster.patch(f"{CLAIMS}/c", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
        await asyncio.sleep(1)
        assert (await cluster.get(f"{CLAIMS}/c")).json["status"]["capacity"] == {"storage": "2Gi"}
        assert (await cluster.items(VOLUMES))[0]["spec"]["capacity"] == {"storage": "2Gi"}

    told(story)


def test_a_volume_reserved_by_the_scheduler_is_bound_by_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        await create(cluster, storage_class(waits=True), volume(storageClassName="fast"), claim(storage_class="fast"))
        assert await bound(cluster) == {"c": ""}
        uid = (await cluster.get(f"{CLAIMS}/c")).json["metadata"]["uid"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        await cluster.patch(f"{VOLUMES}/v", {"spec": {"claimRef": reference}})
        await asyncio.sleep(1)
        assert await bound(cluster) == {"c": "v"}

    told(story)


def test_an_ephemeral_volume_has_a_claim_that_goes_with_its_pod() -> None:
    async def story(cluster: Cluster) -> None:
        template = {"spec": claim(storage_class="fast")["spec"]}
        await create(cluster, storage_class())
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        await cluster.post(PODS, pod(nodeName="n", volumes=volumes))
        await asyncio.sleep(1)
        assert list(await bound(cluster)) == ["p-scratch"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(5)
        assert (await bound(cluster), await phases(cluster)) == ({}, [])

    told(story)
