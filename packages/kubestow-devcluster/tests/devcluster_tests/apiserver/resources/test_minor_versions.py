"""What the API server of a minor version serves: its version, API groups and versions, and fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod
from kubestow.config.feature_gates import FeatureGates
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow_devcluster.apiserver.resources.minor_versions import kinds_of_minor
from kubestow_devcluster.apiserver.schema.types import struct_of
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.media_types import PROTOBUF
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.dump import load

GROUP = "resource.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSIONS = {
    "1.31": ["v1alpha3"],
    "1.32": ["v1beta1"],
    "1.33": ["v1beta2", "v1beta1"],
    "1.34": ["v1"],
    "1.35": ["v1"],
    "1.36": ["v1"],
}
NESTED = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 2}


def minor_of(text: str) -> Minor:
    return Minor.parse(text, subject="test")


def client(minor: str, gates: str = "") -> Client:
    """A client of a server with one node."""
    version = minor_of(minor)
    feature_gates = FeatureGates.parse(gates, minor=version) if gates else None
    return Client(DevCluster(nodes=1, apiserver=APIServerOptions(minor=version, feature_gates=feature_gates)))


def claims(version: str) -> str:
    return f"/apis/{GROUP}/{version}/namespaces/default/resourceclaims"


def claim(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", **fields}]}}}


def resource_slice(**fields: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": "node-0", "driver": "d.example.com", "pool": pool, "devices": [{"name": "gpu", **fields}]}
    return {"metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize("minor", list(VERSIONS))
async def test_version_and_openapi_name_the_minor_version(minor: str) -> None:
    get = client(minor).get
    reported = (await get("/version")).json
    assert reported["gitVersion"] == minor_of(minor).release
    assert (reported["major"], reported["minor"]) == ("1", minor.partition(".")[2])
    assert (await get("/openapi/v3/api/v1")).json["info"]["version"] == minor_of(minor).release


async def test_the_emulation_and_compatibility_versions_are_reported_from_1_33_on() -> None:
    before, since = [(await client(minor).get("/version")).json for minor in ("1.32", "1.33")]
    assert not {"emulationMinor", "minCompatibilityMinor"} & before.keys()
    assert (since["emulationMajor"], since["emulationMinor"]) == ("1", "33")
    assert (since["minCompatibilityMajor"], since["minCompatibilityMinor"]) == ("1", "32")


@pytest.mark.parametrize(("minor", "versions"), list(VERSIONS.items()))
async def test_discovery_has_the_versions_of_the_resource_api(minor: str, versions: list[str]) -> None:
    get = client(minor).get
    assert [version["version"] for version in (await get(f"/apis/{GROUP}")).json["versions"]] == versions
    groups = {group["metadata"]["name"]: group for group in (await get("/apis", accept=AGGREGATED)).json["items"]}
    assert [version["version"] for version in groups[GROUP]["versions"]] == versions
    for version in versions:
        names = [resource["name"] for resource in (await get(f"/apis/{GROUP}/{version}")).json["resources"]]
        assert {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"} <= set(names)
        assert (await get(f"/openapi/v3/apis/{GROUP}/{version}")).json["components"]["schemas"]
    for version in {"v1", "v1beta1", "v1beta2", "v1alpha3"} - set(versions):
        assert (await get(f"/apis/{GROUP}/{version}")).status == 404
        assert (await get(claims(version))).status == 404


@pytest.mark.parametrize(
    ("minor", "versions"),
    [
        ("1.34", ["v1"]),
        ("1.35", ["v1", "v1alpha1"]),
        ("1.36", ["v1", "v1alpha2"]),
        ("1.37", ["v1", "v1beta1", "v1alpha3"]),
    ],
)
async def test_pod_groups_are_served_where_the_minor_version_has_them(minor: str, versions: list[str]) -> None:
    get = client(minor).get
    assert [one["version"] for one in (await get("/apis/scheduling.k8s.io")).json["versions"]] == versions
    plurals = {
        "v1beta1": "podgroups",
        "v1alpha3": "compositepodgroups",
        "v1alpha2": "podgroups",
        "v1alpha1": "workloads",
    }
    for version, plural in plurals.items():
        status = (await get(f"/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}")).status
        assert status == (200 if version in versions else 404)


@pytest.mark.parametrize(("minor", "version"), [("1.33", "v1beta1"), ("1.32", "v1beta1"), ("1.31", "v1alpha3")])
async def test_a_claim_makes_the_round_trip_in_a_former_version(minor: str, version: str) -> None:
    send = client(minor)
    created = await send.post(claims(version), claim(deviceClassName="gpus", count=2))
    assert created.status == 201
    assert created.json["apiVersion"] == f"{GROUP}/{version}"
    assert created.json["spec"]["devices"]["requests"] == [{"name": "r", **NESTED}]
    (stored,) = send.server.store.collection("resourceclaims.resource.k8s.io").snapshot()
    hub = send.server.registry.scheme["resourceclaims.resource.k8s.io"].decode(stored)
    assert hub["spec"]["devices"]["requests"] == [{"name": "r", "exactly": NESTED}]
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "gpu"}
    allocation = {"allocation": {"devices": {"results": [result]}}}
    patched = await send.patch(f"{claims(version)}/c/status", {"status": allocation})
    assert patched.json["status"]["allocation"] == allocation["allocation"]
    read = (await send.get(f"{claims(version)}/c")).json
    assert read == patched.json
    assert (await send.get(claims(version))).json["items"] == [
        {field: value for field, value in read.items() if field not in ("kind", "apiVersion")}
    ]
    changed = await send.put(f"{claims(version)}/c", read | {"spec": {"devices": {}}})
    assert changed.status == 422 and "field is immutable" in changed.message
    assert (await send.delete(f"{claims(version)}/c")).status == 200


async def test_a_watch_in_a_former_version_has_objects_of_that_version() -> None:
    send = client("1.33")
    await send.post(claims("v1beta2"), claim(exactly=NESTED))
    async for event in send.watch(f"{claims('v1beta1')}?watch=true"):
        assert event["object"]["apiVersion"] == f"{GROUP}/v1beta1"
        assert event["object"]["spec"]["devices"]["requests"] == [{"name": "r", **NESTED}]
        break


@pytest.mark.parametrize(
    ("minor", "version", "size"), [("1.32", "v1beta1", {"value": "8Gi"}), ("1.31", "v1alpha3", "8Gi")]
)
async def test_devices_of_former_versions_have_their_fields_in_basic(minor: str, version: str, size: Any) -> None:
    send, path = client(minor), f"/apis/{GROUP}/{version}/resourceslices"
    basic = {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": size}}
    created = await send.post(path, resource_slice(basic=basic))
    assert created.status == 201
    assert created.json["spec"]["devices"] == [{"name": "gpu", "basic": basic}]
    (stored,) = send.server.store.collection("resourceslices.resource.k8s.io").snapshot()
    hub = send.server.registry.scheme["resourceslices.resource.k8s.io"].decode(stored)
    flat = {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "8Gi"}}}
    assert hub["spec"]["devices"] == [{"name": "gpu", **flat}]
    selected = (await send.get(f"{path}?fieldSelector=spec.nodeName%3Dnode-0")).json["items"]
    assert [found["metadata"]["name"] for found in selected] == ["s"]


@pytest.mark.parametrize(("minor", "version"), [("1.31", "v1alpha3"), ("1.32", "v1beta1"), ("1.33", "v1beta2")])
async def test_former_versions_have_a_protobuf_encoding(minor: str, version: str) -> None:
    send = client(minor)
    exact = {"exactly": NESTED} if version == "v1beta2" else NESTED
    body = {"kind": "ResourceClaim", "apiVersion": f"{GROUP}/{version}", **claim(**exact)}
    created = await send("POST", claims(version), protobuf.encode(body), content_type=PROTOBUF, accept=PROTOBUF)
    assert created.status == 201
    assert protobuf.decode(created.content)["spec"]["devices"]["requests"] == [{"name": "r", **exact}]


@pytest.mark.parametrize(
    ("minor", "gates", "is_kept"),
    [("1.33", "", False), ("1.33", "PodLevelResources=true", True), ("1.34", "", True), ("1.31", "", False)],
)
async def test_pod_level_resources_are_dropped_while_their_gate_is_off(minor: str, gates: str, is_kept: bool) -> None:
    created = await client(minor, gates).post(PODS, pod(resources={"requests": {"cpu": "1"}}))
    assert created.json["spec"].get("resources") == ({"requests": {"cpu": "1"}} if is_kept else None)
    assert created.json["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}


@pytest.mark.parametrize(("minor", "is_kept"), [("1.35", False), ("1.36", True)])
async def test_the_scheduling_group_is_dropped_where_there_are_no_pod_groups(minor: str, is_kept: bool) -> None:
    created = await client(minor).post(PODS, pod(schedulingGroup={"podGroupName": "g"}))
    assert ("schedulingGroup" in created.json["spec"]) == is_kept


@pytest.mark.parametrize(
    ("minor", "gates", "is_kept"),
    [("1.34", "", False), ("1.35", "NodeDeclaredFeatures=true", True), ("1.36", "", True)],
)
async def test_declared_features_are_dropped_while_their_gate_is_off(minor: str, gates: str, is_kept: bool) -> None:
    send = client(minor, gates)
    await send.post(NODES, node())
    patched = await send.patch(f"{NODES}/n/status", {"status": {"declaredFeatures": ["A"]}})
    assert ("declaredFeatures" in patched.json["status"]) == is_kept


async def test_an_update_keeps_a_disabled_field_that_the_object_has_already(tmp_path: Path) -> None:
    resources = {"requests": {"cpu": "1"}}
    async with DevCluster(database=Database(tmp_path), apiserver=APIServerOptions(minor=minor_of("1.34"))) as server:
        await Client(server).post(PODS, pod(resources=resources))
    async with DevCluster(database=Database(tmp_path), apiserver=APIServerOptions(minor=minor_of("1.33"))) as server:
        patched = await Client(server).patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
        assert patched.json["spec"]["resources"]["requests"] == resources["requests"]


def test_all_fields_of_the_newest_version_are_enabled_by_default() -> None:
    kinds, hub_kinds = kinds_of_minor(DEFAULT_MINOR, FeatureGates())
    assert [kind.name for kind in hub_kinds] == ["DeviceTaintRule"]
    disabled = {kind.resource: kind.rest.disabled_fields for kind in kinds if kind.rest.disabled_fields}
    assert disabled == {"pods": ("spec.workloadRef",)}, "which only 1.35 had"
    assert [kind.api_version for kind in kinds] == [kind.api_version for kind in kinds_of_minor(DEFAULT_MINOR)[0]]


@pytest.mark.parametrize("minor", list(VERSIONS))
def test_every_kind_of_a_former_version_has_a_schema(minor: str) -> None:
    for kind in kinds_of_minor(minor_of(minor))[0]:
        if kind.model:
            assert struct_of(kind.model).fields, kind.api_version


@pytest.mark.parametrize("minor", ["1.31", "1.33", "1.36"])
@pytest.mark.parametrize(("version", "fields"), [("v1", {"exactly": NESTED}), ("v1beta1", NESTED)])
def test_a_dump_of_another_version_is_loaded(minor: str, version: str, fields: dict[str, Any]) -> None:
    server = client(minor).server
    body = {"kind": "ResourceClaim", "apiVersion": f"{GROUP}/{version}", **claim(**fields)}
    load(server.registry, msgspec.json.encode(body), subject="dump")
    (stored,) = server.store.collection("resourceclaims.resource.k8s.io").snapshot()
    hub = server.registry.scheme["resourceclaims.resource.k8s.io"].decode(stored)
    assert hub["spec"]["devices"]["requests"] == [{"name": "r", "exactly": NESTED}]


async def test_nodes_report_the_version_of_their_kubelets() -> None:
    send = client("1.34")
    async with send.server:
        async for event in send.watch(f"{NODES}?watch=true"):
            if version := event["object"]["status"].get("nodeInfo", {}).get("kubeletVersion"):
                assert version == minor_of("1.34").release
                break
