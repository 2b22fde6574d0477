"""Containers to debug a pod with come through a subresource of their own, and stay."""

from __future__ import annotations

from typing import Any

from tests.devcluster.client import PODS, Client, pod

_DEBUGGERS = f"{PODS}/p/ephemeralcontainers"


def debugger(name: str, image: str = "busybox") -> dict[str, Any]:
    return {"name": name, "image": image}


async def add(client: Client, *containers: dict[str, Any], kind: str = "strategic-merge-patch+json") -> Any:
    return await client.patch(_DEBUGGERS, {"spec": {"ephemeralContainers": list(containers)}}, kind)


async def test_one_is_added_beside_the_others(client: Client) -> None:
    await client.post(PODS, pod("p"))
    for name in ("first", "second"):
        assert (await add(client, debugger(name))).status == 200
    found = (await client.get(f"{PODS}/p")).json
    assert {one["name"] for one in found["spec"]["ephemeralContainers"]} == {"first", "second"}


async def test_none_is_taken_away_or_changed(client: Client) -> None:
    await client.post(PODS, pod("p"))
    await add(client, debugger("first"))
    for containers, told in (
        ([], "may not be removed"),
        ([debugger("first", image="other")], "may not be changed"),
    ):
        refused = await add(client, *containers, kind="merge-patch+json")
        assert (refused.status, told in refused.message) == (422, True)


async def test_nothing_else_is_changed_on_the_way(client: Client) -> None:
    await client.post(PODS, pod("p"))
    refused = await client.patch(_DEBUGGERS, {"spec": {"nodeSelector": {"disk": "ssd"}}})
    assert (refused.status, "only ephemeral containers" in refused.message) == (422, True)


async def test_an_ordinary_update_adds_none(client: Client) -> None:
    await client.post(PODS, pod("p"))
    refused = await client.patch(f"{PODS}/p", {"spec": {"ephemeralContainers": [debugger("first")]}})
    assert refused.status == 422


async def test_a_name_is_used_once(client: Client) -> None:
    await client.post(PODS, pod("p"))
    refused = await add(client, debugger("c"))
    assert (refused.status, "Duplicate value" in refused.message) == (422, True)


async def test_a_pod_is_not_created_with_one(client: Client) -> None:
    body = pod("p")
    body["spec"]["ephemeralContainers"] = [debugger("first")]
    refused = await client.post(PODS, body)
    assert (refused.status, "cannot be set on create" in refused.message) == (422, True)
