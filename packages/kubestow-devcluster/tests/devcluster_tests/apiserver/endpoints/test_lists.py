"""Lists: resourceVersions, pages, selectors, and conversions of the objects."""

from __future__ import annotations

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def create_pods(client: Client, count: int) -> None:
    for index in range(count):
        await client.post(PODS, pod(f"p{index}", labels={"app": f"a{index % 2}"}))


async def test_pages_list_the_state_of_the_first_page_with_every_object_once(client: Client) -> None:
    await create_pods(client, 5)
    first = (await client.get(f"{PODS}?limit=2")).json
    await client.delete(f"{PODS}/p3")
    await client.post(PODS, pod("p9"))
    names, token = [item["metadata"]["name"] for item in first["items"]], first["metadata"]["continue"]
    while token:
        page = (await client.get(f"{PODS}?limit=2&continue={token}")).json
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    assert names == ["p0", "p1", "p2", "p3", "p4"]


async def test_a_page_has_the_number_of_remaining_items(client: Client) -> None:
    await create_pods(client, 5)
    assert (await client.get(f"{PODS}?limit=2")).json["metadata"]["remainingItemCount"] == 3


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("labelSelector=app=a0", ["p0", "p2"]),
        ("labelSelector=app!=a0", ["p1"]),
        ("labelSelector=app in (a1,a2)", ["p1"]),
        ("labelSelector=app notin (a1)", ["p0", "p2"]),
        ("labelSelector=!app", []),
        ("fieldSelector=metadata.name!=p1", ["p0", "p2"]),
        ("fieldSelector=status.phase=Pending,metadata.name=p2", ["p2"]),
        ("fieldSelector=spec.nodeName=n", []),
    ],
)
async def test_selectors_filter_lists(client: Client, selector: str, names: list[str]) -> None:
    await create_pods(client, 3)
    items = (await client.get(f"{PODS}?{selector.replace('!', '%21').replace(' ', '%20')}")).json["items"]
    assert [item["metadata"]["name"] for item in items] == names


async def test_an_exact_resource_version_lists_an_earlier_state(client: Client) -> None:
    version = (await client.post(PODS, pod("a"))).json["metadata"]["resourceVersion"]
    await client.post(PODS, pod("b"))
    listed = (await client.get(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")).json
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


async def test_list_items_omit_kind_and_api_version(client: Client) -> None:
    await client.post(PODS, pod("a"))
    assert "kind" not in (await client.get(PODS)).json["items"][0]
    assert (await client.get(f"{PODS}/a")).json["kind"] == "Pod"


async def test_a_table_has_the_columns_and_cells_that_kubectl_prints(client: Client) -> None:
    await client.post(NODES, node("n"))
    table = (await client.get(NODES, accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
    ]
    assert table["rows"][0]["cells"][:4] == ["n", "Unknown", "<none>", "0s"]


async def test_partial_object_metadata_omits_spec_and_status(client: Client) -> None:
    await client.post(PODS, pod("a"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partial = (await client.get(f"{PODS}/a", accept=accept)).json
    assert set(partial) == {"kind", "apiVersion", "metadata"}


async def test_endpoints_are_deprecated(client: Client) -> None:
    response = await client.get("/api/v1/namespaces/default/endpoints")
    message = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    assert (response.status, response.headers["Warning"]) == (200, f'299 - "{message}"')


async def test_an_event_is_served_in_both_groups(client: Client) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R", "message": "m"}
    await client.post("/api/v1/namespaces/default/events", event)
    other = (await client.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).json
    assert (other["apiVersion"], other["regarding"]["name"], other["note"]) == ("events.k8s.io/v1", "p", "m")
    by_field = await client.get("/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name=p")
    assert len(by_field.json["items"]) == 1
