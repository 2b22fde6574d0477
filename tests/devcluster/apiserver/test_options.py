"""Parameters of requests that contradict each other or the path, and what the server counts of its answers."""

from __future__ import annotations

import pytest

from tests.devcluster.client import PODS, Client, pod


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
async def test_list_options_that_contradict_each_other_are_refused(
    client: Client, query: str, status: int, problem: str
) -> None:
    refused = await client.get(f"{PODS}?{query}")
    assert refused.status == status and problem in refused.message


async def test_a_continued_list_is_of_the_version_it_began_with(client: Client) -> None:
    for name in ("a", "b"):
        await client.post(PODS, pod(name))
    token = (await client.get(f"{PODS}?limit=1")).json["metadata"]["continue"]
    assert (await client.get(f"{PODS}?limit=1&continue={token}&resourceVersion=0")).status == 200
    refused = await client.get(f"{PODS}?limit=1&continue={token}&resourceVersion=5")
    assert refused.message == "specifying resource version is not allowed when using continue"


async def test_paths_name_a_namespace_where_the_kind_has_one(client: Client) -> None:
    assert (await client.get("/api/v1/namespaces/default/nodes")).status == 404
    assert (await client.get("/api/v1/pods/p")).status == 404
    assert (await client.delete("/api/v1/pods")).status == 405


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
async def test_the_first_namespaces_stay(client: Client, name: str) -> None:
    refused = await client.delete(f"/api/v1/namespaces/{name}")
    assert (refused.status, refused.message) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )


async def test_a_binding_needs_no_metadata(client: Client) -> None:
    await client.post(PODS, pod())
    assert (await client.post(f"{PODS}/p/binding", {"target": {"name": "n"}})).status == 201


async def test_a_nomination_ends_with_the_binding(client: Client) -> None:
    await client.post(PODS, pod())
    await client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "n"}})
    await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert "nominatedNodeName" not in (await client.get(f"{PODS}/p")).json["status"]


async def test_requests_are_counted_by_verb_resource_and_status(client: Client) -> None:
    for name in ("a", "a", "b"):
        await client.post(PODS, pod(name))
    await client.get(PODS)
    counted = (await client.get("/metrics")).content.decode()
    series = 'group="",resource="pods",subresource="",verb="{}",version="v1"}} {}'
    assert f'{{code="201",{series.format("POST", 2)}' in counted
    assert f'{{code="409",{series.format("POST", 1)}' in counted
    assert f'{{code="200",{series.format("LIST", 1)}' in counted


async def test_containers_that_run_nothing_have_no_log_and_say_so(client: Client) -> None:
    await client.post(PODS, pod())
    assert (await client.get(f"{PODS}/p/log")).content == b""
    assert "container d is not valid for pod p" in (await client.get(f"{PODS}/p/log?container=d")).message
    refused = await client.post(f"{PODS}/p/exec?command=ls", None)
    assert refused.message == "pod p does not have a host assigned"


async def test_an_update_of_a_service_keeps_its_address(client: Client) -> None:
    services = "/api/v1/namespaces/default/services"
    new = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    address = (await client.post(services, new)).json["spec"]["clusterIP"]
    updated = await client.put(f"{services}/s", {**new, "spec": {"ports": [{"port": 81}]}})
    spec = updated.json["spec"]
    assert (spec["clusterIP"], spec["ipFamilies"], spec["ports"][0]["port"]) == (address, ["IPv4"], 81)
