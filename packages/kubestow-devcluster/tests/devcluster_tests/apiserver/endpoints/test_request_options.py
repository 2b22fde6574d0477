"""Invalid options and paths of requests, the metrics of requests, and other rules of single endpoints."""

from __future__ import annotations

import pytest

from devcluster_tests.client import PODS, Client, pod


@pytest.mark.parametrize(
    ("query", "status", "problem"),
    [
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, 'is forbidden for resourceVersion "0"'),
        ("resourceVersion=1&resourceVersionMatch=Near", 422, 'supported values: "Exact", "NotOlderThan"'),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, "is forbidden for watch unless sendInitialEvents"),
        ("fieldSelector=spec.nothing=x", 400, "field label not supported: spec.nothing"),
        ("limit=many", 400, 'parsing "many": invalid syntax'),
    ],
)
async def test_contradictory_list_options_are_rejected(client: Client, query: str, status: int, problem: str) -> None:
    rejected = await client.get(f"{PODS}?{query}")
    assert rejected.status == status and problem in rejected.message


async def test_a_continue_token_excludes_a_resource_version(client: Client) -> None:
    for name in ("a", "b"):
        await client.post(PODS, pod(name))
    token = (await client.get(f"{PODS}?limit=1")).json["metadata"]["continue"]
    assert (await client.get(f"{PODS}?limit=1&continue={token}&resourceVersion=0")).status == 200
    rejected = await client.get(f"{PODS}?limit=1&continue={token}&resourceVersion=5")
    assert rejected.message == "specifying resource version is not allowed when using continue"


async def test_only_paths_of_namespaced_kinds_have_a_namespace(client: Client) -> None:
    assert (await client.get("/api/v1/namespaces/default/nodes")).status == 404
    assert (await client.get("/api/v1/pods/p")).status == 404
    assert (await client.delete("/api/v1/pods")).status == 405


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
async def test_system_namespaces_cannot_be_deleted(client: Client, name: str) -> None:
    rejected = await client.delete(f"/api/v1/namespaces/{name}")
    assert (rejected.status, rejected.message) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )


async def test_a_binding_without_metadata_is_accepted(client: Client) -> None:
    await client.post(PODS, pod())
    assert (await client.post(f"{PODS}/p/binding", {"target": {"name": "n"}})).status == 201


async def test_binding_clears_the_nominated_node_name(client: Client) -> None:
    await client.post(PODS, pod())
    await client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "n"}})
    await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert "nominatedNodeName" not in (await client.get(f"{PODS}/p")).json["status"]


async def test_requests_are_counted_by_verb_resource_and_code(client: Client) -> None:
    for name in ("a", "a", "b"):
        await client.post(PODS, pod(name))
    await client.get(PODS)
    metrics = (await client.get("/metrics")).content.decode()
    series = 'group="",resource="pods",subresource="",verb="{}",version="v1"}} {}'
    assert f'{{code="201",{series.format("POST", 2)}' in metrics
    assert f'{{code="409",{series.format("POST", 1)}' in metrics
    assert f'{{code="200",{series.format("LIST", 1)}' in metrics


async def test_logs_and_exec_validate_the_pod_and_the_container(client: Client) -> None:
    await client.post(PODS, pod())
    assert (await client.get(f"{PODS}/p/log")).content == b""
    assert "container d is not valid for pod p" in (await client.get(f"{PODS}/p/log?container=d")).message
    rejected = await client.post(f"{PODS}/p/exec?command=ls", None)
    assert rejected.message == "pod p does not have a host assigned"


async def test_an_update_of_a_service_keeps_its_cluster_ip(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"
    new = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    address = (await client.post(services, new)).json["spec"]["clusterIP"]
    updated = await client.put(f"{services}/s", {**new, "spec": {"ports": [{"port": 81}]}})
    spec = updated.json["spec"]
    assert (spec["clusterIP"], spec["ipFamilies"], spec["ports"][0]["port"]) == (address, ["IPv4"], 81)
