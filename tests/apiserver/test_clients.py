"""A client library nobody here wrote: list, watch, patch and leader election with kubernetes_asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import watch as k8s_watch

from kubestow.apiserver import Server

from .client import pod


@pytest.fixture
async def api_client() -> AsyncIterator[Any]:
    async with Server(nodes=1) as server:
        configuration = k8s.Configuration()
        configuration.host = server.url
        async with k8s.ApiClient(configuration) as api:
            yield api


async def test_pods_are_created_listed_patched_and_deleted(api_client: Any) -> None:
    core = k8s.CoreV1Api(api_client)
    await core.create_namespaced_pod("default", pod("p", labels={"app": "a"}))
    await core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"tier": "front"}}})
    (found,) = (await core.list_namespaced_pod("default", label_selector="app=a")).items
    assert found.metadata.labels == {"app": "a", "tier": "front"}
    await core.delete_namespaced_pod("p", "default")
    with pytest.raises(k8s.ApiException) as gone:
        await core.read_namespaced_pod("p", "default")
    assert gone.value.status == 404


async def test_a_watch_follows_a_pod_from_creation_to_running(api_client: Any) -> None:
    core = k8s.CoreV1Api(api_client)
    await core.create_namespaced_pod("default", pod("p"))
    target = k8s.V1ObjectReference(kind="Node", name="node-0")
    binding = k8s.V1Binding(metadata=k8s.V1ObjectMeta(name="p"), target=target)
    await core.create_namespaced_pod_binding("p", "default", binding, _preload_content=False)
    async with asyncio.timeout(20), k8s_watch.Watch().stream(core.list_namespaced_pod, "default") as events:
        async for event in events:
            if event["object"].status.phase == "Running":
                assert event["object"].spec.node_name == "node-0"
                return


async def test_a_lease_changes_hands_only_by_its_version(api_client: Any) -> None:
    leases = k8s.CoordinationV1Api(api_client)
    spec = k8s.V1LeaseSpec(holder_identity="one", lease_duration_seconds=15)
    held = await leases.create_namespaced_lease("default", k8s.V1Lease(metadata=k8s.V1ObjectMeta(name="l"), spec=spec))
    held.spec.holder_identity = "two"
    await leases.replace_namespaced_lease("l", "default", held)
    with pytest.raises(k8s.ApiException) as stale:
        await leases.replace_namespaced_lease("l", "default", held)
    assert stale.value.status == 409
