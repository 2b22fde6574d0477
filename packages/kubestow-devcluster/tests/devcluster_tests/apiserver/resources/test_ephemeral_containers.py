"""The ephemeralcontainers subresource adds containers, and changes nothing else."""

from __future__ import annotations

from typing import Any

from devcluster_tests.client import PODS, Client, pod

_SUBRESOURCE = f"{PODS}/p/ephemeralcontainers"


def debugger(name: str, image: str = "busybox") -> dict[str, Any]:
    return {"name": name, "image": image}


async def add(client: Client, *containers: dict[str, Any], kind: str = "strategic-merge-patch+json") -> Any:
    return await client.patch(_SUBRESOURCE, {"spec": {"ephemeralContainers": list(containers)}}, kind)


async def test_ephemeral_containers_are_added(client: Client) -> None:
    await client.post(PODS, pod("p"))
    for name in ("first", "second"):
        assert (await add(client, debugger(name))).status == 200
    found = (await client.get(f"{PODS}/p")).json
    assert {one["name"] for one in found["spec"]["ephemeralContainers"]} == {"first", "second"}


async def test_ephemeral_containers_cannot_be_removed_or_changed(client: Client) -> None:
    await client.post(PODS, pod("p"))
    await add(client, debugger("first"))
    for containers, problem in (
        ([], "may not be removed"),
        ([debugger("first", image="other")], "may not be changed"),
    ):
        rejected = await add(client, *containers, kind="merge-patch+json")
        assert (rejected.status, problem in rejected.message) == (422, True)


async def test_the_subresource_changes_nothing_else(client: Client) -> None:
    await client.post(PODS, pod("p"))
    rejected = await client.patch(_SUBRESOURCE, {"spec": {"nodeSelector": {"disk": "ssd"}}})
    assert (rejected.status, "only ephemeral containers" in rejected.message) == (422, True)


async def test_an_update_of_the_pod_cannot_add_ephemeral_containers(client: Client) -> None:
    await client.post(PODS, pod("p"))
    rejected = await client.patch(f"{PODS}/p", {"spec": {"ephemeralContainers": [debugger("first")]}})
    assert rejected.status == 422


async def test_the_names_of_ephemeral_containers_are_unique(client: Client) -> None:
    await client.post(PODS, pod("p"))
    rejected = await add(client, debugger("c"))
    assert (rejected.status, "Duplicate value" in rejected.message) == (422, True)


async def test_a_pod_cannot_be_created_with_ephemeral_containers(client: Client) -> None:
    body = pod("p")
    body["spec"]["ephemeralContainers"] = [debugger("first")]
    rejected = await client.post(PODS, body)
    assert (rejected.status, "cannot be set on create" in rejected.message) == (422, True)
