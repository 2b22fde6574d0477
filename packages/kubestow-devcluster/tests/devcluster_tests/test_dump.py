"""Loading a cluster from a dump."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from devcluster_tests.client import Client, node, pod
from devcluster_tests.scenarios import DEPLOYMENTS, REPLICA_SETS, Cluster, run_scenario, workload
from kubestow.errors import InputError
from kubestow_devcluster.behaviour.stages import NO_STAGES
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.dump import LoadResult, load

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


def read(server: DevCluster, content: bytes | str) -> LoadResult:
    return load(server.registry, content.encode() if isinstance(content, str) else content, subject="dump")


def owned(new: dict[str, Any], owner: str, uid: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid, "controller": True}
    new["metadata"]["ownerReferences"] = [reference]
    return new


async def test_nodes_are_loaded_from_yaml_documents(server: DevCluster, client: Client) -> None:
    assert read(server, NODES_IN_YAML) == LoadResult({"Node": 2}, {})
    assert (await client.get("/api/v1/nodes/a")).json["status"]["allocatable"]["cpu"] == "4"


async def test_pods_stay_bound_and_missing_namespaces_and_priority_classes_are_created(
    server: DevCluster, client: Client
) -> None:
    new = pod("p", nodeName="n", priority=7, priorityClassName="high")
    new["metadata"] |= {"namespace": "team", "uid": "old", "resourceVersion": "12", "managedFields": []}
    assert read(server, listed(new, node("n"))).created == {"Node": 1, "Pod": 1}
    loaded = (await client.get("/api/v1/namespaces/team/pods/p")).json
    assert (loaded["spec"]["nodeName"], loaded["spec"]["priority"]) == ("n", 7)
    assert loaded["metadata"]["uid"] != "old"


async def test_what_admission_checks_does_not_stop_pods_that_ran_before(server: DevCluster, client: Client) -> None:
    server.registry.admission.has_service_accounts = True
    new = pod(runtimeClassName="kata", overhead={"cpu": "100m"}, serviceAccountName="robot", nodeName="n")
    item = {"type": "Container", "min": {"cpu": "1"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [item]}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    created = read(server, listed(limits, quota, new, node("n"))).created
    assert created == {"Node": 1, "Pod": 1, "LimitRange": 1, "ResourceQuota": 1}
    loaded = (await client.get("/api/v1/namespaces/default/pods/p")).json
    assert loaded["spec"]["overhead"] == {"cpu": "100m"} and loaded["spec"]["serviceAccountName"] == "robot"


async def test_the_items_of_a_typed_list_have_its_kind(server: DevCluster) -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    content = json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items})
    assert read(server, content).created == {"Node": 2}


async def test_finished_and_terminating_pods_and_unknown_kinds_are_skipped(server: DevCluster) -> None:
    finished = {**pod("done"), "status": {"phase": "Succeeded"}}
    terminating = pod("terminating")
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    assert read(server, listed(finished, terminating, gadget, pod("p"))) == LoadResult(
        {"Pod": 1}, {"Pod": 2, "Gadget": 1}
    )


def test_owner_references_within_the_dump_are_kept_and_others_are_dropped() -> None:
    async def scenario(cluster: Cluster) -> None:
        replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **workload(replicas=1)}
        replica_set["metadata"]["uid"] = "1"
        owned_pod = owned(pod("owned", labels={"app": "web"}), "web", "1")
        orphan = owned(pod("orphan"), "missing", "2")
        read(cluster.server, listed(owned_pod, orphan, replica_set))
        await cluster.pass_time(2)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["orphan", "owned"]
        assert (await cluster.get(f"{REPLICA_SETS}/web")).json["status"]["readyReplicas"] == 1

    run_scenario(scenario)


def test_the_output_of_kubectl_get_can_be_loaded_into_another_cluster() -> None:
    printed: list[dict[str, Any]] = []

    async def first(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=2))
        await cluster.pass_time(2)
        for path in ("/api/v1/nodes", DEPLOYMENTS, REPLICA_SETS, "/api/v1/pods"):
            response = (await cluster.get(path)).json
            type_meta = {"apiVersion": response["apiVersion"], "kind": response["kind"].removesuffix("List")}
            printed.extend({**type_meta, **item} for item in response["items"])

    async def second(cluster: Cluster) -> None:
        read(cluster.server, listed(*printed))
        await cluster.pass_time(2)
        names = {one["metadata"]["name"] for one in printed if one["kind"] == "Pod"}
        assert {one["metadata"]["name"] for one in await cluster.pods()} == names
        assert (await cluster.get(f"{DEPLOYMENTS}/web")).json["status"]["availableReplicas"] == 2

    run_scenario(first)
    run_scenario(second)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "neither JSON nor YAML"),
        ("a: [", "line 2: invalid YAML"),
        ("just words", "expected Kubernetes objects, each with apiVersion and kind"),
        ('{"kind": ["Pod"], "apiVersion": "v1"}', "expected Kubernetes objects, each with apiVersion and kind"),
        ('{"kind": "List", "items": [{"kind": []}]}', "expected Kubernetes objects, each with apiVersion and kind"),
        ("kind: PodList\nitems: 5", "PodList.items: expected a list"),
        ("kind: Node\napiVersion: v1", "a Node without metadata.name"),
        ("kind: Node\napiVersion: v1\nmetadata: 5", "a Node: json: cannot unmarshal number"),
        ("kind: Node\napiVersion: v1\nmetadata: {name: A B}", "Node A B: "),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}", "Pod default/p: "),
    ],
)
def test_an_invalid_dump_is_rejected_with_the_offending_object(server: DevCluster, content: str, message: str) -> None:
    with pytest.raises(InputError, match="dump") as refused:
        read(server, content)
    assert message in str(refused.value)


def test_cyclic_owner_references_are_rejected(server: DevCluster) -> None:
    one, other = owned(pod("a"), "b", "2"), owned(pod("b"), "a", "1")
    one["metadata"]["uid"], other["metadata"]["uid"] = "1", "2"
    with pytest.raises(InputError, match="cyclic owner reference"):
        read(server, listed(one, other))


def test_an_unreachable_node_stays_unreachable() -> None:
    async def scenario(cluster: Cluster) -> None:
        lost = node("lost")
        lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        read(cluster.server, listed(lost))
        await asyncio.sleep(120)
        shown = (await cluster.get("/api/v1/nodes/lost")).json
        ready = next(one for one in shown["status"]["conditions"] if one["type"] == "Ready")
        assert ready["status"] == "Unknown"

    run_scenario(scenario)


def test_a_volume_stays_bound_to_its_claim() -> None:
    async def scenario(cluster: Cluster) -> None:
        bind_completed = {"pv.kubernetes.io/bind-completed": "yes"}
        common: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gone"}
        claim_spec = {**common, "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
        volume_spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}}
        volume_spec["claimRef"] = {"namespace": "default", "name": "c", "uid": "old"}
        read(
            cluster.server,
            listed(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "c", "namespace": "default", "annotations": bind_completed},
                    "spec": claim_spec,
                },
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": volume_spec},
            ),
        )
        await asyncio.sleep(1)
        claims = await cluster.items("/api/v1/namespaces/default/persistentvolumeclaims")
        volumes = await cluster.items("/api/v1/persistentvolumes")
        assert [one["status"]["phase"] for one in (*claims, *volumes)] == ["Bound", "Bound"]

    run_scenario(scenario)


def test_an_invalid_custom_resource_definition_is_left_out_and_named(server: DevCluster) -> None:
    names = {"plural": "rollouts", "kind": "Rollout"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "banana"}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rollouts.argoproj.io", "uid": "old"},
        "spec": {"group": "argoproj.io", "names": names, "scope": "Namespaced", "versions": [version]},
    }
    loaded = read(server, listed(definition, node("a")))
    assert (loaded.created, loaded.skipped) == ({"Node": 1}, {})
    (message,) = loaded.left_out
    assert message.startswith('CustomResourceDefinition.apiextensions.k8s.io "rollouts.argoproj.io" is invalid: ')


async def test_custom_resources_are_created_with_their_status_after_their_definitions(
    server: DevCluster, client: Client
) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    schema["properties"]["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}  # type: ignore[index]
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rollouts.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "rollouts", "kind": "Rollout"},
            "scope": "Namespaced",
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    sizes = {"web": 3, "bad": "three"}
    rollouts = [
        {
            "apiVersion": "example.com/v1",
            "kind": "Rollout",
            "metadata": {"name": name, "namespace": "team", "uid": f"old-{name}"},
            "spec": {"size": size},
            "status": {"ready": 2},
        }
        for name, size in sizes.items()
    ]
    of_web = pod("p")
    owner = {"apiVersion": "example.com/v1", "kind": "Rollout", "name": "web", "uid": "old-web", "controller": True}
    of_web["metadata"] |= {"namespace": "team", "ownerReferences": [owner]}
    loaded = read(server, listed(of_web, *rollouts, definition))
    assert (loaded.created, loaded.skipped) == ({"CustomResourceDefinition": 1, "Rollout": 1, "Pod": 1}, {})
    assert len(loaded.left_out) == 1 and 'Rollout.example.com "bad" is invalid' in loaded.left_out[0]
    web = (await client.get("/apis/example.com/v1/namespaces/team/rollouts/web")).json
    assert (web["spec"], web["status"]) == ({"size": 3}, {"ready": 2})
    owned_pod = (await client.get("/api/v1/namespaces/team/pods/p")).json
    assert owned_pod["metadata"]["ownerReferences"][0]["uid"] == web["metadata"]["uid"]


_APPS = "/apis/apps/v1/namespaces/default"


@pytest.mark.parametrize("revisions", ["dumped", "dumped with other defaults", "not dumped"])
def test_pods_of_daemon_sets_and_stateful_sets_stay_as_they_are(revisions: str) -> None:
    items: list[dict[str, Any]] = []

    async def dumped(cluster: Cluster) -> None:
        daemon_spec = {name: part for name, part in workload("agent")["spec"].items() if name != "replicas"}
        await cluster.post(f"{_APPS}/daemonsets", {"metadata": {"name": "agent"}, "spec": daemon_spec})
        await cluster.post(f"{_APPS}/statefulsets", workload("db", serviceName="db"))
        await cluster.pass_time(60)
        for path in ("daemonsets", "statefulsets", "controllerrevisions"):
            page = (await cluster.get(f"{_APPS}/{path}")).json
            type_meta = {"apiVersion": "apps/v1", "kind": page["kind"].removesuffix("List")}
            items.extend(type_meta | item for item in page["items"])
        items.extend({"apiVersion": "v1", "kind": "Pod", **item} for item in await cluster.pods())

    async def loaded(cluster: Cluster) -> None:
        read(cluster.server, listed(*items))
        before = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await cluster.pods()}
        assert len(before) == 4
        await cluster.pass_time(120)
        assert {one["metadata"]["name"]: one["metadata"]["uid"] for one in await cluster.pods()} == before
        changed = {"spec": {"template": {"metadata": {"annotations": {"new": "yes"}}}}}
        await cluster.patch(f"{_APPS}/daemonsets/agent", changed)
        await cluster.pass_time(120)
        after = {one["metadata"]["name"] for one in await cluster.pods()}
        assert (len(after), len(after & before.keys())) == (4, 3), "a new template replaces pods"

    run_scenario(dumped)
    if revisions == "not dumped":
        text = json.dumps(items)
        for item in items:  # the hashes of another kube-controller-manager
            if item["kind"] == "ControllerRevision":
                text = text.replace(item["metadata"]["name"].rpartition("-")[2], f"{item['metadata']['name'][:2]}5c4b7")
        items = [item for item in json.loads(text) if item["kind"] != "ControllerRevision"]
    elif revisions == "dumped with other defaults":
        for item in items:
            if item["kind"] == "ControllerRevision":
                item["data"]["spec"]["template"]["metadata"]["creationTimestamp"] = None
    run_scenario(loaded)


async def test_metrics_are_skipped() -> None:
    server = DevCluster(kubelets=False, stages=NO_STAGES)
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": "a"}}
    assert read(server, listed(node("a"), metrics)) == LoadResult({"Node": 1}, {"NodeMetrics": 1})


async def test_a_compressed_dump_is_loaded(server: DevCluster) -> None:
    content = gzip.compress(NODES_IN_YAML.encode())
    assert load(server.registry, content, subject="dump") == LoadResult({"Node": 2}, {})
    with pytest.raises(InputError, match=r"^dump: the compressed data ends early: the file is truncated$"):
        load(server.registry, content[:-4], subject="dump")
