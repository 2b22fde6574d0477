"""ResourceClaims created from templates, and their release when pods finish or are deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import PODS, pod
from devcluster_tests.scenarios import Cluster, run_scenario
from kubestow_devcluster.behaviour.pod_behaviour import DURATION

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
FINALIZER = "resource.kubernetes.io/delete-protection"

DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]}}
TEMPLATE = {"metadata": {"name": "one-gpu"}, "spec": {"metadata": {"labels": {"team": "a"}}, "spec": DEVICES}}
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


async def allocate(cluster: Cluster, claim: str, *pods: str) -> None:
    """Allocate and reserve a claim for pods, as the scheduler does before it binds them."""
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await cluster.pods()}
    reserved = [{"resource": "pods", "name": name, "uid": uids[name]} for name in pods]
    await cluster.patch(f"{CLAIMS}/{claim}", {"metadata": {"finalizers": [FINALIZER]}})
    result = {"request": "gpu", "driver": "gpus.example.com", "pool": "n", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    await cluster.patch(f"{CLAIMS}/{claim}/status", {"status": status})


async def first_claim(cluster: Cluster) -> dict[str, Any]:
    return (await cluster.items(CLAIMS))[0]


def test_a_claim_is_created_from_the_template_of_a_pod() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        claim, owner = await first_claim(cluster), (await cluster.pods())[0]
        name = claim["metadata"]["name"]
        assert owner["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
        assert name.startswith("p-gpu-") and claim["metadata"]["labels"] == {"team": "a"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}

    run_scenario(scenario)


def test_a_missing_template_is_recorded_as_an_event_and_retried() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        assert await cluster.reasons() == ["FailedResourceClaimCreation"]
        await cluster.post(TEMPLATES, TEMPLATE)
        await asyncio.sleep(10)
        assert len(await cluster.items(CLAIMS)) == 1

    run_scenario(scenario)


def test_a_claim_created_for_a_pod_is_deleted_with_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        await allocate(cluster, (await first_claim(cluster))["metadata"]["name"], "p")
        await cluster.bind_all()
        await asyncio.sleep(1)
        assert (await first_claim(cluster))["status"]["reservedFor"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(5)
        assert await cluster.items(CLAIMS) == []

    run_scenario(scenario)


def test_a_claim_created_for_a_pod_is_deleted_when_the_pod_has_finished() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        short_lived = pod(resourceClaims=FROM_TEMPLATE)
        short_lived["metadata"]["annotations"] = {DURATION: "5s"}
        await cluster.post(PODS, short_lived)
        await asyncio.sleep(1)
        await allocate(cluster, (await first_claim(cluster))["metadata"]["name"], "p")
        await cluster.bind_all()
        await asyncio.sleep(10)
        assert await cluster.items(CLAIMS) == []

    run_scenario(scenario)


def test_a_shared_claim_is_deallocated_after_its_last_pod() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CLAIMS, {"metadata": {"name": "shared"}, "spec": DEVICES})
        for name in ("a", "b"):
            await cluster.post(PODS, pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}]))
        await allocate(cluster, "shared", "a", "b")
        await cluster.delete(f"{PODS}/a")
        await asyncio.sleep(1)
        claim = await first_claim(cluster)
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["b"]
        assert "allocation" in claim["status"]
        await cluster.delete(f"{PODS}/b")
        await asyncio.sleep(1)
        claim = await first_claim(cluster)
        assert (claim["status"], claim["metadata"].get("finalizers")) == ({}, None)

    run_scenario(scenario)


def test_a_deleted_claim_is_removed_when_it_is_no_longer_reserved() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CLAIMS, {"metadata": {"name": "own"}, "spec": DEVICES})
        await cluster.post(PODS, pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "own"}]))
        await allocate(cluster, "own", "p")
        await cluster.delete(f"{CLAIMS}/own")
        await asyncio.sleep(1)
        assert len(await cluster.items(CLAIMS)) == 1
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(1)
        assert await cluster.items(CLAIMS) == []

    run_scenario(scenario)
