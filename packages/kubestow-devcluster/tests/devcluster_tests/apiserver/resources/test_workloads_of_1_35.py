"""Workloads of Kubernetes 1.35 (scheduling.k8s.io/v1alpha1), and the pods that name them."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client
from kubestow.rules.minors import Minor
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster

WORKLOADS = "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads"
PODS = "/api/v1/namespaces/default/pods"
GROUP = {"name": "workers", "policy": {"gang": {"minCount": 2}}}
REFERENCE = {"name": "job", "podGroup": "workers", "podGroupReplicaKey": "0"}


def client_of(minor: int) -> Client:
    return Client(DevCluster(nodes=1, apiserver=APIServerOptions(minor=Minor(minor))))


@pytest.fixture
def client() -> Client:
    return client_of(35)


def workload(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "job"}, "spec": {"podGroups": [GROUP]} | spec}


def pod(**reference: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx"}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, "workloadRef": REFERENCE | reference}}


async def test_a_workload_is_stored_and_listed_with_its_groups(client: Client) -> None:
    created = await client.post(WORKLOADS, workload())
    assert (created.status, created.json["apiVersion"]) == (201, "scheduling.k8s.io/v1alpha1")
    assert (await client.get(WORKLOADS)).json["items"][0]["spec"] == {"podGroups": [GROUP]}
    resources = (await client.get("/apis/scheduling.k8s.io/v1alpha1")).json["resources"]
    assert [(one["name"], one["kind"], one["namespaced"]) for one in resources] == [("workloads", "Workload", True)]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"podGroups": []}, "spec.podGroups: Required value: must have at least one item"),
        ({"podGroups": [GROUP, GROUP]}, 'spec.podGroups[1].name: Duplicate value: "workers"'),
        ({"podGroups": [GROUP | {"name": f"g{number}"} for number in range(9)]}, "spec.podGroups: Too many: 9"),
        ({"podGroups": [GROUP | {"name": "A"}]}, 'spec.podGroups[0].name: Invalid value: "A"'),
        (
            {"podGroups": [GROUP | {"policy": {}}]},
            "spec.podGroups[0].policy: Required value: exactly one of `basic`, `gang` is required",
        ),
        (
            {"podGroups": [GROUP | {"policy": {"basic": {}, "gang": {"minCount": 1}}}]},
            "exactly one of `basic`, `gang` is required, but multiple fields are set",
        ),
        (
            {"podGroups": [GROUP | {"policy": {"gang": {"minCount": 0}}}]},
            "spec.podGroups[0].policy.gang.minCount: Invalid value: 0: must be greater than 0",
        ),
        ({"controllerRef": {"kind": "Job"}}, "spec.controllerRef.name: Required value"),
        ({"controllerRef": {"kind": "a/b", "name": ".."}}, "spec.controllerRef.kind: Invalid value"),
    ],
)
async def test_a_workload_is_validated(client: Client, spec: dict[str, Any], problem: str) -> None:
    rejected = await client.post(WORKLOADS, workload(**spec))
    assert rejected.status == 422 and problem in rejected.message


async def test_the_groups_of_a_workload_are_immutable_and_its_controller_once_it_is_set(client: Client) -> None:
    await client.post(WORKLOADS, workload())
    for name, status in (("a", 200), ("b", 422)):
        changed = await client.patch(f"{WORKLOADS}/job", {"spec": {"controllerRef": {"kind": "Job", "name": name}}})
        assert changed.status == status
    rejected = await client.patch(f"{WORKLOADS}/job", {"spec": {"podGroups": [GROUP | {"policy": {"basic": {}}}]}})
    assert rejected.status == 422 and "podGroups: Invalid value" in rejected.message


@pytest.mark.parametrize("field", ["name", "podGroup", "podGroupReplicaKey"])
async def test_what_a_pod_names_is_validated(client: Client, field: str) -> None:
    rejected = await client.post(PODS, pod(**{field: "Not valid"}))
    assert rejected.status == 422 and f'spec.workloadRef.{field}: Invalid value: "Not valid"' in rejected.message
    created = await client.post(PODS, pod())
    assert created.json["spec"]["workloadRef"] == REFERENCE


@pytest.mark.parametrize("minor", [34, 36, 37])
async def test_other_minor_versions_have_neither(minor: int) -> None:
    client = client_of(minor)
    assert (await client.get(WORKLOADS)).status == 404
    assert "workloadRef" not in (await client.post(PODS, pod())).json["spec"]
