"""Updates of pods: admission keeps what it has set."""

from __future__ import annotations

from typing import Any

from devcluster_tests.client import Client

PODS = "/api/v1/namespaces/default/pods"


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "app"}], **spec}}


async def test_an_update_may_leave_out_priority_and_default_tolerations(client: Client) -> None:
    created = (await client.post(PODS, pod())).json
    updated = await client.put(f"{PODS}/p", pod())
    assert updated.status == 200
    assert updated.json["spec"] == created["spec"]


async def test_an_update_may_add_a_toleration(client: Client) -> None:
    await client.post(PODS, pod())
    toleration = {"key": "a", "operator": "Exists"}
    updated = await client.put(f"{PODS}/p", pod(tolerations=[toleration]))
    assert updated.status == 200
    keys = [one["key"] for one in updated.json["spec"]["tolerations"]]
    assert keys == ["a", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


async def test_an_update_cannot_change_the_priority(client: Client) -> None:
    await client.post(PODS, pod())
    assert (await client.put(f"{PODS}/p", pod(priority=7))).status == 422
