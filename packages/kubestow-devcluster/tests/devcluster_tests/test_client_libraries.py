"""The official Kubernetes client for Python and kubernetes_asyncio: list, watch, patch and leader election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import kubernetes
import pytest
from kubernetes.leaderelection import electionconfig as blocking_config
from kubernetes.leaderelection import leaderelection as blocking_election
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock as BlockingLock
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import watch as k8s_watch
from kubernetes_asyncio.leaderelection import electionconfig, leaderelection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import pod
from kubestow_devcluster.cluster import DevCluster

Result = TypeVar("Result")
#: In seconds; the shortest that the libraries accept.
PERIODS = {"lease_duration": 3, "renew_deadline": 2, "retry_period": 1}


@pytest.fixture
async def server() -> AsyncIterator[DevCluster]:
    async with DevCluster(nodes=1) as running:
        yield running


@pytest.fixture
async def api_client(server: DevCluster) -> AsyncIterator[Any]:
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
    with pytest.raises(k8s.ApiException) as error:
        await core.read_namespaced_pod("p", "default")
    assert error.value.status == 404


async def test_a_watch_follows_a_pod_from_creation_to_running(api_client: Any) -> None:
    core = k8s.CoreV1Api(api_client)
    await core.create_namespaced_pod("default", pod("p"))
    target = k8s.V1ObjectReference(kind="Node", name="node-0")
    binding = k8s.V1Binding(metadata=k8s.V1ObjectMeta(name="p"), target=target)
    await core.create_namespaced_pod_binding("p", "default", binding, _preload_content=False)
    async with asyncio.timeout(HANG_LIMIT), k8s_watch.Watch().stream(core.list_namespaced_pod, "default") as events:
        async for event in events:
            if event["object"].status.phase == "Running":
                assert event["object"].spec.node_name == "node-0"
                return


async def test_a_lease_update_with_a_stale_resource_version_conflicts(api_client: Any) -> None:
    leases = k8s.CoordinationV1Api(api_client)
    spec = k8s.V1LeaseSpec(holder_identity="one", lease_duration_seconds=15)
    created = await leases.create_namespaced_lease(
        "default", k8s.V1Lease(metadata=k8s.V1ObjectMeta(name="l"), spec=spec)
    )
    created.spec.holder_identity = "two"
    await leases.replace_namespaced_lease("l", "default", created)
    with pytest.raises(k8s.ApiException) as error:
        await leases.replace_namespaced_lease("l", "default", created)
    assert error.value.status == 409


async def test_another_candidate_is_elected_after_the_leader_stops(api_client: Any) -> None:
    leading: asyncio.Queue[str] = asyncio.Queue()

    def candidate(name: str) -> asyncio.Task[None]:
        async def lead() -> None:
            leading.put_nowait(name)

        lock = LeaseLock("election", "default", name, api_client)
        config = electionconfig.Config(lock, **PERIODS, onstarted_leading=lead, onstopped_leading=lead)
        return asyncio.create_task(leaderelection.LeaderElection(config).run())

    async with asyncio.timeout(HANG_LIMIT):
        first = candidate("first")
        assert await leading.get() == "first"
        second = candidate("second")
        first.cancel()
        assert await leading.get() == "second"
        second.cancel()


# The official client is synchronous, so it runs in a thread.


def blocking_core(url: str) -> Any:
    configuration = kubernetes.client.Configuration()
    configuration.host = url
    return kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))


async def in_thread(work: Callable[[], Result]) -> Result:
    async with asyncio.timeout(HANG_LIMIT):
        return await asyncio.to_thread(work)


async def test_the_official_client_lists_patches_and_deletes(server: DevCluster) -> None:
    core = blocking_core(server.url)

    def work() -> dict[str, str]:
        core.create_namespaced_pod("default", pod("p", labels={"app": "a"}))
        core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"tier": "front"}}})
        (found,) = core.list_namespaced_pod("default", label_selector="app=a").items
        core.delete_namespaced_pod("p", "default")
        assert core.list_namespaced_pod("default").items == []
        labels: dict[str, str] = found.metadata.labels
        return labels

    assert await in_thread(work) == {"app": "a", "tier": "front"}


async def test_the_official_client_watches_from_a_resource_version(server: DevCluster) -> None:
    core = blocking_core(server.url)

    def work() -> list[tuple[str, str]]:
        resource_version = core.list_namespaced_pod("default").metadata.resource_version
        core.create_namespaced_pod("default", pod("p"))
        core.delete_namespaced_pod("p", "default")
        events = kubernetes.watch.Watch().stream(
            core.list_namespaced_pod, "default", resource_version=resource_version, timeout_seconds=1
        )
        return [(event["type"], event["object"].metadata.name) for event in events]

    assert await in_thread(work) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


async def test_the_official_client_reads_custom_objects(server: DevCluster) -> None:
    core = blocking_core(server.url)
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}

    def work() -> int:
        custom = kubernetes.client.CustomObjectsApi(core.api_client)
        resource = ("scheduling.x-k8s.io", "v1alpha1", "default", "podgroups")
        custom.create_namespaced_custom_object(*resource, {**group, "metadata": {"name": "g"}})
        custom.patch_namespaced_custom_object(*resource, "g", {"spec": {"minMember": 3}})
        min_member: int = custom.get_namespaced_custom_object(*resource, "g")["spec"]["minMember"]
        return min_member

    assert await in_thread(work) == 3


async def test_the_official_client_elects_one_of_two_candidates(server: DevCluster) -> None:
    def elected(name: str) -> bool:
        lock = BlockingLock("election", "default", name)
        lock.api_instance = kubernetes.client.CoordinationV1Api(blocking_core(server.url).api_client)
        config = blocking_config.Config(lock, **PERIODS, onstarted_leading=print, onstopped_leading=print)
        return bool(blocking_election.LeaderElection(config).try_acquire_or_renew())

    assert await in_thread(lambda: [elected(name) for name in ("first", "second", "first")]) == [True, False, True]
