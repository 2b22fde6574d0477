"""Resizing pods: what the subresource lets through that an ordinary update does not, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import Client

PODS = "/api/v1/namespaces/default/pods"


def container(cpu: str | None = "1", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return {"name": "c", "image": "app", "resources": resources, **more}


async def created(client: Client, **spec: Any) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}
    assert (await client.post(PODS, body)).status == 201


async def resize(client: Client, **spec: Any) -> Any:
    return await client.patch(f"{PODS}/p/resize", {"spec": spec})


async def test_a_pod_may_ask_for_less(client: Client) -> None:
    await created(client)
    assert (await resize(client, containers=[container("500m")])).status == 200
    found = (await client.get(f"{PODS}/p")).json
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    assert found["metadata"]["generation"] == 2


async def test_an_ordinary_update_may_not_resize(client: Client) -> None:
    await created(client)
    refused = await client.patch(f"{PODS}/p", {"spec": {"containers": [container("500m")]}})
    assert refused.status == 422


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(image="other")]},
        {"nodeSelector": {"disk": "ssd"}},
        {"containers": [container() | {"resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}}}]},
    ],
    ids=["an image", "a selector", "another resource"],
)
async def test_nothing_else_is_resized(client: Client, spec: Any) -> None:
    await created(client)
    refused = await resize(client, **spec)
    assert refused.status == 422
    assert "only cpu and memory resources are mutable" in refused.json["message"]


async def test_the_class_of_service_stays(client: Client) -> None:
    await created(client)
    refused = await resize(client, containers=[container(None)])
    assert refused.status == 422
    assert "Pod QOS Class may not change as a result of resizing" in refused.json["message"]
