"""What becomes of dependents when their owner goes, and of what lives in a namespace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.devcluster.client import PODS, pod
from tests.devcluster.scenarios import REPLICA_SETS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

MAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"


async def config_map(cluster: Cluster, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
        for one in owners
    ]
    body = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    made: dict[str, Any] = (await cluster.post(MAPS, body)).json
    return made


async def names(cluster: Cluster, path: str = MAPS) -> list[str]:
    return [one["metadata"]["name"] for one in await cluster.items(path)]


def test_dependents_go_after_their_owner_and_their_dependents_after_them() -> None:
    async def story(cluster: Cluster) -> None:
        top = await config_map(cluster, "top")
        middle = await config_map(cluster, "middle", top)
        await config_map(cluster, "bottom", middle)
        await cluster.pass_time(1)
        await cluster.delete(f"{MAPS}/top")
        await cluster.pass_time(1)
        assert await names(cluster) == []

    told(story)


def test_a_dependent_of_an_owner_that_never_was_goes() -> None:
    async def story(cluster: Cluster) -> None:
        stranger = {"metadata": {"name": "nobody", "uid": "11111111-2222-3333-4444-555555555555"}}
        await config_map(cluster, "orphan", stranger)
        await cluster.pass_time(1)
        assert await names(cluster) == []

    told(story)


def test_a_dependent_of_a_namesake_that_came_later_goes() -> None:
    async def story(cluster: Cluster) -> None:
        first = await config_map(cluster, "owner")
        await cluster.delete(f"{MAPS}/owner")
        await config_map(cluster, "owner")
        await config_map(cluster, "dependent", first)
        await cluster.pass_time(1)
        assert await names(cluster) == ["owner"]

    told(story)


def test_with_one_of_two_owners_left_a_dependent_stays_and_forgets_the_other() -> None:
    async def story(cluster: Cluster) -> None:
        owners = [await config_map(cluster, name) for name in ("a", "b")]
        await config_map(cluster, "child", *owners)
        await cluster.delete(f"{MAPS}/a")
        await cluster.pass_time(1)
        left = (await cluster.get(f"{MAPS}/child")).json["metadata"]["ownerReferences"]
        assert [one["name"] for one in left] == ["b"]

    told(story)


def test_in_the_foreground_the_owner_goes_last() -> None:
    async def story(cluster: Cluster) -> None:
        slow = workload(replicas=2)
        slow["spec"]["template"]["metadata"]["annotations"] = {"kubestow.dev/shutdown": "5s"}
        await cluster.post(REPLICA_SETS, slow)
        await cluster.pass_time(1)
        response = await cluster.delete(f"{REPLICA_SETS}/web", {"propagationPolicy": "Foreground"})
        assert response.json["metadata"]["finalizers"] == ["foregroundDeletion"]
        await cluster.pass_time(3)
        assert await names(cluster, REPLICA_SETS) == ["web"] and len(await cluster.pods()) == 2
        await cluster.pass_time(4)
        assert await names(cluster, REPLICA_SETS) == [] == await cluster.pods()

    told(story)


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphaned_pods_stay_and_belong_to_nobody(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        await cluster.delete(f"{REPLICA_SETS}/web", options)
        await cluster.pass_time(1)
        pods = await cluster.pods()
        assert await names(cluster, REPLICA_SETS) == []
        assert len(pods) == 2 and not any("ownerReferences" in one["metadata"] for one in pods)

    told(story)


def test_an_unknown_propagation_policy_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await config_map(cluster, "a")
        response = await cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Sideways"})
        assert response.status == 422 and await names(cluster) == ["a"]

    told(story)


def test_a_deleted_namespace_goes_when_all_in_it_is_gone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(NAMESPACES, {"metadata": {"name": "team"}})
        await cluster.post("/apis/apps/v1/namespaces/team/deployments", workload(replicas=2))
        await cluster.post("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "kept", "finalizers": ["a/b"]}})
        await cluster.pass_time(1)
        assert len(await cluster.items("/api/v1/namespaces/team/pods")) == 2
        await cluster.delete(f"{NAMESPACES}/team")
        await cluster.pass_time(2)
        assert "team" in await names(cluster, NAMESPACES)
        assert await cluster.items("/api/v1/namespaces/team/pods") == []
        await cluster.patch("/api/v1/namespaces/team/configmaps/kept", {"metadata": {"finalizers": None}})
        await cluster.pass_time(1)
        assert "team" not in await names(cluster, NAMESPACES)

    told(story)


def test_an_empty_namespace_goes_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(NAMESPACES, {"metadata": {"name": "team"}})
        await cluster.delete(f"{NAMESPACES}/team")
        await cluster.pass_time(0.2)
        assert "team" not in await names(cluster, NAMESPACES)

    told(story)


def test_a_pod_without_owner_is_nobodys_garbage() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("alone"))
        await cluster.pass_time(60)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["alone"]

    told(story)


def test_events_are_forgotten_an_hour_after_they_were_last_written() -> None:
    async def story(cluster: Cluster) -> None:
        events = "/api/v1/namespaces/default/events"
        about = {"kind": "Node", "name": "n", "namespace": "default"}
        for name in ("once", "again"):
            await cluster.post(events, {"metadata": {"name": name}, "involvedObject": about})
        await asyncio.sleep(1800)
        await cluster.patch(f"{events}/again", {"count": 2})
        await asyncio.sleep(1900)
        assert [one["metadata"]["name"] for one in await cluster.items(events)] == ["again"]
        await asyncio.sleep(1800)
        assert await cluster.items(events) == []

    told(story)
