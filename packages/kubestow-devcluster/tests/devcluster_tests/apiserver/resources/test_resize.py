"""The resize subresource changes CPU and memory of containers, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client

PODS = "/api/v1/namespaces/default/pods"


def container(cpu: str | None = "1", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return {"name": "c", "image": "app", "resources": resources, **more}


async def create_pod(client: Client, **spec: Any) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}
    assert (await client.post(PODS, body)).status == 201


async def resize(client: Client, **spec: Any) -> Any:
    return await client.patch(f"{PODS}/p/resize", {"spec": spec})


async def test_requests_can_be_reduced(client: Client) -> None:
    await create_pod(client)
    assert (await resize(client, containers=[container("500m")])).status == 200
    found = (await client.get(f"{PODS}/p")).json
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    assert found["metadata"]["generation"] == 2


async def test_an_update_of_the_pod_cannot_resize(client: Client) -> None:
    await create_pod(client)
    rejected = await client.patch(f"{PODS}/p", {"spec": {"containers": [container("500m")]}})
    assert rejected.status == 422


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(image="other")]},
        {"nodeSelector": {"disk": "ssd"}},
        {"containers": [container() | {"resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}}}]},
    ],
    ids=["image", "node selector", "extended resource"],
)
async def test_the_subresource_changes_nothing_else(client: Client, spec: Any) -> None:
    await create_pod(client)
    rejected = await resize(client, **spec)
    assert rejected.status == 422
    assert "only cpu and memory resources are mutable" in rejected.json["message"]


async def test_the_qos_class_is_immutable(client: Client) -> None:
    await create_pod(client)
    rejected = await resize(client, containers=[container(None)])
    assert rejected.status == 422
    assert "Pod QOS Class may not change as a result of resizing" in rejected.json["message"]
