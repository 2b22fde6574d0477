"""DeviceTaintRules in the version of each minor version of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client
from kubestow.config.feature_gates import FeatureGates
from kubestow.rules.minors import Minor
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster

GROUP = "/apis/resource.k8s.io"
SELECTOR = {"driver": "gpu.example.com", "pool": "n", "device": "d0"}


def client_of(minor: int, *, enabled: bool = True) -> Client:
    """A client of a server with the gate of rules on, or with the defaults of its version."""
    names = ("DRADeviceTaints",) if minor < 35 else ("DRADeviceTaints", "DRADeviceTaintRules")
    gates = FeatureGates(dict.fromkeys(names, True), minor=Minor(minor)) if enabled else None
    return Client(DevCluster(nodes=1, apiserver=APIServerOptions(minor=Minor(minor), feature_gates=gates)))


def rule(**taint: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": SELECTOR, "taint": {"key": "broken", "effect": "NoSchedule"} | taint},
    }


@pytest.mark.parametrize(
    ("minor", "served"), [(33, "v1alpha3"), (34, "v1alpha3"), (35, "v1alpha3"), (36, "v1beta2"), (37, "v1")]
)
async def test_rules_are_served_in_one_version(minor: int, served: str) -> None:
    client = client_of(minor)
    for version in ("v1", "v1beta2", "v1beta1", "v1alpha3"):
        if version != served:
            assert (await client.get(f"{GROUP}/{version}/devicetaintrules")).status == 404
    created = await client.post(f"{GROUP}/{served}/devicetaintrules", rule())
    assert (created.status, created.json["apiVersion"]) == (201, f"resource.k8s.io/{served}")
    assert (created.json["spec"]["deviceSelector"], created.json["metadata"]["generation"]) == (SELECTOR, 1)
    assert created.json["spec"]["taint"]["timeAdded"]
    found = (await client.get(f"{GROUP}/{served}/devicetaintrules")).json
    assert [each["spec"] for each in found["items"]] == [created.json["spec"]]
    listed = (await client.get(f"{GROUP}/{served}")).json["resources"]
    assert {"devicetaintrules", "devicetaintrules/status"} <= {each["name"] for each in listed}


@pytest.mark.parametrize("minor", [31, 32])
async def test_older_versions_have_no_rules(minor: int) -> None:
    served = "v1alpha3" if minor == 31 else "v1beta1"
    assert (await client_of(minor, enabled=False).get(f"{GROUP}/{served}/devicetaintrules")).status == 404


@pytest.mark.parametrize(
    ("minor", "served", "status"), [(34, "v1alpha3", 404), (35, "v1alpha3", 404), (36, "v1beta2", 404), (37, "v1", 200)]
)
async def test_rules_are_served_with_their_gate(minor: int, served: str, status: int) -> None:
    assert (await client_of(minor, enabled=False).get(f"{GROUP}/{served}/devicetaintrules")).status == status


@pytest.mark.parametrize(
    ("taint", "problem"),
    [
        ({"key": ""}, "spec.taint.key: Required value"),
        ({"effect": ""}, "spec.taint.effect: Required value"),
        ({"effect": "Never"}, 'spec.taint.effect: Unsupported value: "Never": supported values: "NoExecute", '),
    ],
)
@pytest.mark.parametrize(("minor", "served"), [(36, "v1beta2"), (37, "v1")])
async def test_the_taint_is_validated(minor: int, served: str, taint: dict[str, Any], problem: str) -> None:
    rejected = await client_of(minor).post(f"{GROUP}/{served}/devicetaintrules", rule(**taint))
    assert rejected.status == 422 and problem in rejected.message


@pytest.mark.parametrize(("minor", "served"), [(36, "v1beta2"), (37, "v1")])
async def test_a_changed_effect_is_a_new_taint(minor: int, served: str) -> None:
    client = client_of(minor)
    past = "2020-01-01T00:00:00Z"
    await client.post(f"{GROUP}/{served}/devicetaintrules", rule(timeAdded=past))
    path = f"{GROUP}/{served}/devicetaintrules/r"
    kept = await client.patch(path, {"spec": {"taint": {"value": "v"}}})
    assert (kept.json["spec"]["taint"]["timeAdded"], kept.json["metadata"]["generation"]) == (past, 2)
    changed = await client.patch(path, {"spec": {"taint": {"effect": "NoExecute"}}})
    assert changed.json["spec"]["taint"]["timeAdded"] > past
    conditions = [
        {"type": "EvictionInProgress", "status": "True", "reason": "R", "message": "", "lastTransitionTime": past}
    ]
    status = await client.patch(f"{path}/status", {"status": {"conditions": conditions}})
    assert (status.status, status.json["metadata"]["generation"]) == (200, 3)
    assert status.json["status"]["conditions"][0]["type"] == "EvictionInProgress"
