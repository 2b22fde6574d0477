"""A cluster read from a file."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubestow.devcluster.cluster import DevCluster
from kubestow.devcluster.dump import Loaded, load
from kubestow.errors import InputError
from tests.devcluster.client import Client, node, pod
from tests.devcluster.scenarios import DEPLOYMENTS, REPLICA_SETS, Cluster, told, workload

NODES_IN_YAML = """
apiVersion: v1
kind: Node
metadata: {name: a}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: b}
---
"""


def listed(*items: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def read(server: DevCluster, content: bytes | str) -> Loaded:
    return load(server.registry, content.encode() if isinstance(content, str) else content, subject="dump")


def owned(new: dict[str, Any], owner: str, uid: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": True}
    new["metadata"]["ownerReferences"] = [reference]
    return new


async def test_nodes_come_from_yaml_documents(server: DevCluster, client: Client) -> None:
    assert read(server, NODES_IN_YAML) == Loaded({"Node": 2}, {})
    assert (await client.get("/api/v1/nodes/a")).json["status"]["allocatable"]["cpu"] == "4"


async def test_pods_keep_their_node_and_get_the_namespace_and_class_they_need(
    server: DevCluster, client: Client
) -> None:
    bound = pod("p", nodeName="n", priority=7, priorityClassName="high")
    bound["metadata"] |= {"namespace": "team", "uid": "old", "resourceVersion": "12", "managedFields": []}
    assert read(server, listed(bound, node("n"))).created == {"Node": 1, "Pod": 1}
    made = (await client.get("/api/v1/namespaces/team/pods/p")).json
    assert (made["spec"]["nodeName"], made["spec"]["priority"]) == ("n", 7)
    assert made["metadata"]["uid"] != "old"


async def test_a_list_of_one_kind_says_what_its_items_are(server: DevCluster) -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    content = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items})
    assert read(server, content).created == {"Node": 2}


async def test_what_has_ended_and_what_is_not_served_stays_out(server: DevCluster) -> None:
    ended = {**pod("done"), "status": {"phase": "Succeeded"}}
    going = pod("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    assert read(server, listed(ended, going, gadget, pod("p"))) == Loaded({"Pod": 1}, {"Pod": 2, "Gadget": 1})


def test_owners_in_the_file_keep_their_dependents_and_others_are_forgotten() -> None:
    async def story(cluster: Cluster) -> None:
        replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **workload(replicas=1)}
        replica_set["metadata"]["uid"] = "1"
        mine = owned(pod("mine", labels={"app": "web"}), "web", "1")
        stray = owned(pod("stray"), "nowhere", "2")
        read(cluster.server, listed(mine, stray, replica_set))
        await cluster.pass_time(2)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["mine", "stray"]
        assert (await cluster.get(f"{REPLICA_SETS}/web")).json["status"]["readyReplicas"] == 1

    told(story)


def test_what_one_cluster_prints_another_reads() -> None:
    printed: list[dict[str, Any]] = []

    async def first(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2))
        await cluster.pass_time(2)
        for path in ("/api/v1/nodes", DEPLOYMENTS, REPLICA_SETS, "/api/v1/pods"):
            answer = (await cluster.get(path)).json
            said = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
            printed.extend({**said, **item} for item in answer["items"])

    async def second(cluster: Cluster) -> None:
        read(cluster.server, listed(*printed))
        await cluster.pass_time(2)
        names = {one["metadata"]["name"] for one in printed if one["kind"] == "Pod"}
        assert {one["metadata"]["name"] for one in await cluster.pods()} == names
        assert (await cluster.get(f"{DEPLOYMENTS}/web")).json["status"]["availableReplicas"] == 2

    told(first)
    told(second)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
        ("just words", "expected Kubernetes objects, each with apiVersion and kind"),
        ("kind: Node\napiVersion: v1", "a Node without metadata.name"),
        ("kind: Node\napiVersion: v1\nmetadata: 5", "a Node: json: cannot unmarshal number"),
        ("kind: Node\napiVersion: v1\nmetadata: {name: A B}", "Node A B: "),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}", "Pod default/p: "),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_the_place(server: DevCluster, content: str, said: str) -> None:
    with pytest.raises(InputError, match="dump") as refused:
        read(server, content)
    assert said in str(refused.value)


def test_owners_that_own_each_other_are_refused(server: DevCluster) -> None:
    one, other = owned(pod("a"), "b", "2"), owned(pod("b"), "a", "1")
    one["metadata"]["uid"], other["metadata"]["uid"] = "1", "2"
    with pytest.raises(InputError, match="its own owner"):
        read(server, listed(one, other))


def test_a_node_that_was_lost_stays_lost() -> None:
    async def story(cluster: Cluster) -> None:
        lost = node("lost")
        lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        read(cluster.server, listed(lost))
        await asyncio.sleep(120)
        shown = (await cluster.get("/api/v1/nodes/lost")).json
        ready = next(one for one in shown["status"]["conditions"] if one["type"] == "Ready")
        assert ready["status"] == "Unknown"

    told(story)


def test_a_volume_stays_with_its_claim() -> None:
    async def story(cluster: Cluster) -> None:
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        common: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gone"}
        asked = {**common, "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
        held = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}}
        held["claimRef"] = {"namespace": "default", "name": "c", "uid": "old"}
        read(
            cluster.server,
            listed(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "c", "namespace": "default", "annotations": done},
                    "spec": asked,
                },
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": held},
            ),
        )
        await asyncio.sleep(1)
        claims = await cluster.items("/api/v1/namespaces/default/persistentvolumeclaims")
        volumes = await cluster.items("/api/v1/persistentvolumes")
        assert [one["status"]["phase"] for one in (*claims, *volumes)] == ["Bound", "Bound"]

    told(story)
