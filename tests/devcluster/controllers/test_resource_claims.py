"""Claims on devices that are made for pods, and what becomes of them; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from kubestow.devcluster.kubelets import DURATION
from tests.devcluster.client import PODS, pod
from tests.devcluster.scenarios import Cluster, told

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
PROTECTED = "resource.kubernetes.io/delete-protection"

DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]}}
TEMPLATE = {"metadata": {"name": "one-gpu"}, "spec": {"metadata": {"labels": {"team": "a"}}, "spec": DEVICES}}
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


async def allocate(cluster: Cluster, claim: str, *pods: str) -> None:
    """What the scheduler does before it binds."""
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await cluster.pods()}
    reserved = [{"resource": "pods", "name": name, "uid": uids[name]} for name in pods]
    await cluster.patch(f"{CLAIMS}/{claim}", {"metadata": {"finalizers": [PROTECTED]}})
    result = {"request": "gpu", "driver": "gpus.example.com", "pool": "n", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    await cluster.patch(f"{CLAIMS}/{claim}/status", {"status": status})


async def claim_of(cluster: Cluster) -> dict[str, Any]:
    return (await cluster.items(CLAIMS))[0]


def test_a_pod_gets_the_claim_that_its_template_says() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        claim, owner = await claim_of(cluster), (await cluster.pods())[0]
        name = claim["metadata"]["name"]
        assert owner["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
        assert name.startswith("p-gpu-") and claim["metadata"]["labels"] == {"team": "a"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}

    told(story)


def test_a_template_that_is_missing_is_told_of_and_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        assert await cluster.reasons() == ["FailedResourceClaimCreation"]
        await cluster.post(TEMPLATES, TEMPLATE)
        await asyncio.sleep(10)
        assert len(await cluster.items(CLAIMS)) == 1

    told(story)


def test_a_claim_made_for_a_pod_goes_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        await cluster.post(PODS, pod(resourceClaims=FROM_TEMPLATE))
        await asyncio.sleep(1)
        await allocate(cluster, (await claim_of(cluster))["metadata"]["name"], "p")
        await cluster.bind_all()
        await asyncio.sleep(1)
        assert (await claim_of(cluster))["status"]["reservedFor"]
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(5)
        assert await cluster.items(CLAIMS) == []

    told(story)


def test_a_claim_made_for_a_pod_that_has_ended_is_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(TEMPLATES, TEMPLATE)
        short = pod(resourceClaims=FROM_TEMPLATE)
        short["metadata"]["annotations"] = {DURATION: "5s"}
        await cluster.post(PODS, short)
        await asyncio.sleep(1)
        await allocate(cluster, (await claim_of(cluster))["metadata"]["name"], "p")
        await cluster.bind_all()
        await asyncio.sleep(10)
        assert await cluster.items(CLAIMS) == []

    told(story)


def test_a_claim_that_pods_share_is_free_again_after_the_last_of_them() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CLAIMS, {"metadata": {"name": "shared"}, "spec": DEVICES})
        for name in ("a", "b"):
            await cluster.post(PODS, pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}]))
        await allocate(cluster, "shared", "a", "b")
        await cluster.delete(f"{PODS}/a")
        await asyncio.sleep(1)
        claim = await claim_of(cluster)
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["b"]
        assert "allocation" in claim["status"]
        await cluster.delete(f"{PODS}/b")
        await asyncio.sleep(1)
        claim = await claim_of(cluster)
        assert (claim["status"], claim["metadata"].get("finalizers")) == ({}, None)

    told(story)


def test_a_claim_that_is_deleted_goes_when_it_is_free() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CLAIMS, {"metadata": {"name": "own"}, "spec": DEVICES})
        await cluster.post(PODS, pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "own"}]))
        await allocate(cluster, "own", "p")
        await cluster.delete(f"{CLAIMS}/own")
        await asyncio.sleep(1)
        assert len(await cluster.items(CLAIMS)) == 1
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(1)
        assert await cluster.items(CLAIMS) == []

    told(story)
