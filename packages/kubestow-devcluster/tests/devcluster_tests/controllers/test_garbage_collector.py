"""Deletion of dependents with their owners, of namespaces with their content, and of expired events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devcluster_tests.client import PODS, Client, pod
from devcluster_tests.scenarios import REPLICA_SETS, REPLICATION_CONTROLLERS, Cluster, run_scenario, workload
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster

pytestmark = pytest.mark.usefixtures("no_errors_logged")

MAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
ROOT_CA = "kube-root-ca.crt"


async def config_map(cluster: Cluster, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
        for one in owners
    ]
    body = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    created: dict[str, Any] = (await cluster.post(MAPS, body)).json
    return created


async def names(cluster: Cluster, path: str = MAPS) -> list[str]:
    """The names of the objects of a collection, without what every namespace has."""
    return [one["metadata"]["name"] for one in await cluster.items(path) if one["metadata"]["name"] != ROOT_CA]


def test_dependents_are_deleted_transitively() -> None:
    async def scenario(cluster: Cluster) -> None:
        top = await config_map(cluster, "top")
        middle = await config_map(cluster, "middle", top)
        await config_map(cluster, "bottom", middle)
        await cluster.pass_time(1)
        await cluster.delete(f"{MAPS}/top")
        await cluster.pass_time(1)
        assert await names(cluster) == []

    run_scenario(scenario)


def test_a_dependent_of_an_owner_that_does_not_exist_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        missing = {"metadata": {"name": "missing", "uid": "11111111-2222-3333-4444-555555555555"}}
        await config_map(cluster, "dependent", missing)
        await cluster.pass_time(1)
        assert await names(cluster) == []

    run_scenario(scenario)


def test_a_dependent_of_a_recreated_owner_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await config_map(cluster, "owner")
        await cluster.delete(f"{MAPS}/owner")
        await config_map(cluster, "owner")
        await config_map(cluster, "dependent", first)
        await cluster.pass_time(1)
        assert await names(cluster) == ["owner"]

    run_scenario(scenario)


def test_a_dependent_with_a_remaining_owner_only_loses_the_other_reference() -> None:
    async def scenario(cluster: Cluster) -> None:
        owners = [await config_map(cluster, name) for name in ("a", "b")]
        await config_map(cluster, "child", *owners)
        await cluster.delete(f"{MAPS}/a")
        await cluster.pass_time(1)
        remaining = (await cluster.get(f"{MAPS}/child")).json["metadata"]["ownerReferences"]
        assert [one["name"] for one in remaining] == ["b"]

    run_scenario(scenario)


@pytest.mark.parametrize("unresolved", ["in a namespace", "of an unknown kind"])
def test_a_dependent_stays_as_it_is_while_an_owner_cannot_be_resolved(unresolved: str) -> None:
    """A reference has no namespace: that of a cluster-scoped dependent names no namespaced object."""

    async def scenario(cluster: Cluster) -> None:
        owner = await config_map(cluster, "owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        if unresolved == "of an unknown kind":
            reference["kind"] = "Unknown"
        missing = {"apiVersion": "v1", "kind": "Node", "name": "missing", "uid": "11111111-2222-3333-4444-555555555555"}
        references = [missing, reference]
        body = {"metadata": {"name": "low", "ownerReferences": references}, "value": 1}
        await cluster.post(PRIORITY_CLASSES, body)
        await cluster.pass_time(1)
        dependent = (await cluster.get(f"{PRIORITY_CLASSES}/low")).json
        assert dependent["metadata"]["ownerReferences"] == references

    run_scenario(scenario)


def test_foreground_deletion_removes_the_owner_last() -> None:
    async def scenario(cluster: Cluster) -> None:
        slow_to_stop = workload(replicas=2)
        slow_to_stop["spec"]["template"]["metadata"]["annotations"] = {"kubestow.dev/shutdown": "5s"}
        await cluster.post(REPLICA_SETS, slow_to_stop)
        await cluster.pass_time(1)
        response = await cluster.delete(f"{REPLICA_SETS}/web", {"propagationPolicy": "Foreground"})
        assert response.json["metadata"]["finalizers"] == ["foregroundDeletion"]
        await cluster.pass_time(3)
        assert await names(cluster, REPLICA_SETS) == ["web"] and len(await cluster.pods()) == 2
        await cluster.pass_time(4)
        assert await names(cluster, REPLICA_SETS) == [] == await cluster.pods()

    run_scenario(scenario)


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphaned_pods_stay_without_owner_references(options: dict[str, Any]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(1)
        await cluster.delete(f"{REPLICA_SETS}/web", options)
        await cluster.pass_time(1)
        pods = await cluster.pods()
        assert await names(cluster, REPLICA_SETS) == []
        assert len(pods) == 2 and not any("ownerReferences" in one["metadata"] for one in pods)

    run_scenario(scenario)


def test_an_unknown_propagation_policy_is_rejected() -> None:
    async def scenario(cluster: Cluster) -> None:
        await config_map(cluster, "a")
        response = await cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Sideways"})
        assert response.status == 422 and await names(cluster) == ["a"]

    run_scenario(scenario)


def test_a_terminating_namespace_is_removed_when_its_content_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
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

    run_scenario(scenario)


def test_pods_of_a_terminating_namespace_go_first_and_conditions_say_what_remains() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(NAMESPACES, {"metadata": {"name": "team"}})
        held = pod("held")
        held["metadata"]["finalizers"] = ["a/b"]
        await cluster.post("/api/v1/namespaces/team/pods", held)
        kept = {"metadata": {"name": "kept", "finalizers": ["c/d"]}}
        await cluster.post("/api/v1/namespaces/team/configmaps", kept)
        await cluster.delete(f"{NAMESPACES}/team")
        await cluster.pass_time(1, binding=False)
        maps = await cluster.items("/api/v1/namespaces/team/configmaps")
        assert not any("deletionTimestamp" in one["metadata"] for one in maps)
        assert await conditions(cluster) == {
            "NamespaceDeletionDiscoveryFailure": ("False", "All resources successfully discovered"),
            "NamespaceDeletionGroupVersionParsingFailure": ("False", "All legacy kube types successfully parsed"),
            "NamespaceDeletionContentFailure": (
                "False",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": ("True", "Some resources are remaining: pods. has 1 resource instances"),
            "NamespaceFinalizersRemaining": (
                "True",
                "Some content in the namespace has finalizers remaining: a/b in 1 resource instances",
            ),
        }
        await cluster.patch("/api/v1/namespaces/team/pods/held", {"metadata": {"finalizers": None}})
        await cluster.pass_time(1, binding=False)
        (left,) = await cluster.items("/api/v1/namespaces/team/configmaps")
        assert "deletionTimestamp" in left["metadata"]
        assert (await conditions(cluster))["NamespaceContentRemaining"] == (
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances",
        )

    async def conditions(cluster: Cluster) -> dict[str, tuple[str, str]]:
        found = (await cluster.get(f"{NAMESPACES}/team")).json["status"]["conditions"]
        return {one["type"]: (one["status"], one["message"]) for one in found}

    run_scenario(scenario)


def test_an_empty_namespace_is_removed_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(NAMESPACES, {"metadata": {"name": "team"}})
        await cluster.delete(f"{NAMESPACES}/team")
        await cluster.pass_time(0.2)
        assert "team" not in await names(cluster, NAMESPACES)

    run_scenario(scenario)


def test_a_pod_without_owner_references_is_not_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("alone"))
        await cluster.pass_time(60)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["alone"]

    run_scenario(scenario)


def test_events_are_deleted_an_hour_after_their_last_update() -> None:
    async def scenario(cluster: Cluster) -> None:
        events = "/api/v1/namespaces/default/events"
        involved = {"kind": "Node", "name": "n", "namespace": "default"}
        for name in ("once", "again"):
            await cluster.post(events, {"metadata": {"name": name}, "involvedObject": involved})
        await asyncio.sleep(1800)
        await cluster.patch(f"{events}/again", {"count": 2})
        await asyncio.sleep(1900)
        assert [one["metadata"]["name"] for one in await cluster.items(events)] == ["again"]
        await asyncio.sleep(1800)
        assert await cluster.items(events) == []

    run_scenario(scenario)


def test_events_are_kept_for_the_time_to_live_of_the_options() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop()).now
        async with DevCluster(controller_manager=ControllerManagerOptions(event_ttl=60), clock=clock) as server:
            client, events = Client(server), "/api/v1/namespaces/default/events"
            involved = {"kind": "Node", "name": "n", "namespace": "default"}
            await client.post(events, {"metadata": {"name": "e"}, "involvedObject": involved})
            await asyncio.sleep(55)
            assert (await client.get(f"{events}/e")).status == 200
            await asyncio.sleep(10)
            assert (await client.get(f"{events}/e")).status == 404

    virtual_time.run(main())


def test_a_circle_of_owners_is_deleted_in_the_foreground() -> None:
    async def scenario(cluster: Cluster) -> None:
        created = [await config_map(cluster, name) for name in ("a", "b", "c")]
        for one, owner in zip(created, [created[2], created[0], created[1]], strict=True):
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True, "controller": True}
            reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            await cluster.patch(f"{MAPS}/{one['metadata']['name']}", {"metadata": {"ownerReferences": [reference]}})
        await cluster.pass_time(1)
        await cluster.delete(f"{MAPS}/a", {"propagationPolicy": "Foreground"})
        await cluster.pass_time(5)
        assert await names(cluster) == []

    run_scenario(scenario)


def test_the_pods_of_a_replication_controller_that_is_deleted_without_options_stay() -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = workload(replicas=2)
        controller["spec"]["selector"] = {"app": "web"}
        await cluster.post(REPLICATION_CONTROLLERS, controller)
        await cluster.pass_time(2)
        await cluster.delete(f"{REPLICATION_CONTROLLERS}/web")
        await cluster.pass_time(2)
        assert await cluster.items(REPLICATION_CONTROLLERS) == []
        assert ["ownerReferences" in one["metadata"] for one in await cluster.pods()] == [False, False]

    run_scenario(scenario)
