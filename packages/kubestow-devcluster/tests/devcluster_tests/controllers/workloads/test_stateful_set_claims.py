"""The claims of StatefulSets: one per pod and claim template, deleted by the retention policy."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS
from devcluster_tests.controllers.workloads.test_stateful_sets import CLAIMS, SETS, names
from devcluster_tests.scenarios import Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

RETAIN, DELETE = "Retain", "Delete"


def with_claims(*, replicas: int = 2, deleted: str = RETAIN, scaled: str = RETAIN) -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data", "labels": {"tier": "disk"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    new = workload(replicas=replicas, volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy)
    new["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    return new


async def remaining_claims(cluster: Cluster) -> list[str]:
    """The claims that are not terminating."""
    claims = await cluster.items(CLAIMS)
    return [one["metadata"]["name"] for one in claims if "deletionTimestamp" not in one["metadata"]]


async def owners(cluster: Cluster, claim: str) -> list[str]:
    metadata = (await cluster.get(f"{CLAIMS}/{claim}")).json["metadata"]
    return [one["kind"] for one in metadata.get("ownerReferences", ())]


def test_each_pod_gets_a_claim_for_each_template() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, with_claims())
        await cluster.pass_time(3)
        claims = await cluster.items(CLAIMS)
        assert [one["metadata"]["name"] for one in claims] == ["data-web-0", "data-web-1"]
        assert claims[0]["metadata"]["labels"] == {"tier": "disk", "app": "web"}
        volumes = (await cluster.get(f"{PODS}/web-1")).json["spec"]["volumes"]
        assert volumes == [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
            {"name": "tmp", "emptyDir": {}},
        ]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("deleted", "scaled"), [(RETAIN, RETAIN), (RETAIN, DELETE), (DELETE, RETAIN), (DELETE, DELETE)]
)
def test_claims_are_deleted_by_the_retention_policy(deleted: str, scaled: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, with_claims(deleted=deleted, scaled=scaled))
        await cluster.pass_time(3)
        assert await owners(cluster, "data-web-1") == (["StatefulSet"] if deleted == DELETE else [])
        await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(3)
        expected = ["data-web-0"] if scaled == DELETE else ["data-web-0", "data-web-1"]
        assert await remaining_claims(cluster) == expected
        await cluster.delete(f"{SETS}/web")
        await cluster.pass_time(2)
        assert await remaining_claims(cluster) == ([] if deleted == DELETE else expected)

    run_scenario(scenario)


def test_a_pod_is_not_created_before_the_claim_of_its_predecessor_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, with_claims(scaled=DELETE))
        await cluster.pass_time(3)
        finalizer = {"metadata": {"finalizers": ["example.com/hold"]}}
        await cluster.patch(f"{CLAIMS}/data-web-1", finalizer)
        for replicas in (1, 2):
            await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": replicas}})
            await cluster.pass_time(2)
        assert await names(cluster) == ["web-0"]
        await cluster.patch(f"{CLAIMS}/data-web-1", {"metadata": {"finalizers": None}})
        await cluster.pass_time(2)
        assert await names(cluster) == ["web-0", "web-1"] and len(await remaining_claims(cluster)) == 2

    run_scenario(scenario)
