"""After any sequence of changes and controller restarts, all objects converge to their spec and writes stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devcluster_tests.client import NODES, PODS, node
from devcluster_tests.scenarios import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    Cluster,
    run_scenario,
    workload,
)
from kubestow_devcluster.behaviour.pod_behaviour import DURATION, SHUTDOWN

pytestmark = pytest.mark.usefixtures("no_errors_logged")

APPS = "/apis/apps/v1/namespaces/default"
STATEFUL_SETS, DAEMON_SETS = f"{APPS}/statefulsets", f"{APPS}/daemonsets"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
#: The path of each object by its name, which is also the label ``app`` of its pods.
PATHS = {
    "deploy": DEPLOYMENTS,
    "rs": REPLICA_SETS,
    "sts": STATEFUL_SETS,
    "par": STATEFUL_SETS,
    "ds": DAEMON_SETS,
    "rc": REPLICATION_CONTROLLERS,
}
EXTRA_NODES = ("a", "b")
NAMESPACES = "/api/v1/namespaces"

Action = Callable[[Cluster, int], Awaitable[Any]]


async def create_workloads(cluster: Cluster) -> None:
    for name, path in PATHS.items():
        new = workload(name, replicas=2, revisionHistoryLimit=2)
        if path == DAEMON_SETS:
            del new["spec"]["replicas"]
        if path == REPLICATION_CONTROLLERS:
            new["spec"]["selector"] = {"app": name}
        if path in (REPLICATION_CONTROLLERS, REPLICA_SETS):
            del new["spec"]["revisionHistoryLimit"]
        if name == "par":
            new["spec"] |= {"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"partition": 1}}}
        assert (await cluster.post(path, new)).status == 201
    for name in PATHS:
        budget = {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
        await cluster.post(BUDGETS, {"metadata": {"name": name}, "spec": budget})


def pick_workload(number: int) -> str:
    return list(PATHS)[number % len(PATHS)]


async def scale(cluster: Cluster, number: int) -> None:
    name = pick_workload(number)
    if PATHS[name] != DAEMON_SETS:
        await cluster.patch(f"{PATHS[name]}/{name}/scale", {"spec": {"replicas": number % 5}})


async def change_template(cluster: Cluster, number: int) -> None:
    name = pick_workload(number)
    template = {"spec": {"containers": [{"name": "c", "image": f"x:{number % 4}"}]}}
    await cluster.patch(f"{PATHS[name]}/{name}", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def pick_pod(cluster: Cluster, number: int) -> str:
    names = [one["metadata"]["name"] for one in await cluster.pods()]
    return names[number % len(names)] if names else "none"


async def delete_pod(cluster: Cluster, number: int) -> None:
    await cluster.delete(f"{PODS}/{await pick_pod(cluster, number)}", {"gracePeriodSeconds": number % 2})


async def fail_pod(cluster: Cluster, number: int) -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": "PodFailed"}]
    status = {"phase": "Failed", "conditions": conditions}
    await cluster.patch(f"{PODS}/{await pick_pod(cluster, number)}/status", {"status": status})


async def release_pod(cluster: Cluster, number: int) -> None:
    await cluster.patch(f"{PODS}/{await pick_pod(cluster, number)}", {"metadata": {"labels": {"app": "free"}}})


async def evict_pod(cluster: Cluster, number: int) -> None:
    name = await pick_pod(cluster, number)
    await cluster.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})


async def change_node(cluster: Cluster, number: int) -> None:
    name = EXTRA_NODES[number % len(EXTRA_NODES)]
    if (await cluster.post(NODES, node(name))).status != 201:
        taints = [{"key": "k", "effect": ("NoSchedule", "NoExecute")[number // 3 % 2]}] if number % 3 else None
        await cluster.patch(f"{NODES}/{name}", {"spec": {"taints": taints}})


async def change_namespace(cluster: Cluster, number: int) -> None:
    """Create a namespace with pods that end at once, or delete it."""
    if (await cluster.post(NAMESPACES, {"metadata": {"name": "short"}})).status != 201:
        await cluster.delete(f"{NAMESPACES}/short")
        return
    new = workload("ends", replicas=number % 9)
    new["spec"]["template"]["metadata"]["annotations"] = {DURATION: "0s", SHUTDOWN: ("0s", "1s")[number % 2]}
    new["spec"]["template"]["spec"]["nodeName"] = "n"
    await cluster.post(REPLICA_SETS.replace("default", "short"), new)


async def restart_controllers(cluster: Cluster, number: int) -> None:
    """Stop the controllers for a while; they keep no state."""
    cluster.stop_controllers()
    await cluster.pass_time(number % 7 / 10)
    cluster.start_controllers()


async def wait(cluster: Cluster, number: int) -> None:
    await pass_time(cluster, number % 9 / 10)


ACTIONS: tuple[Action, ...] = (
    *(
        scale,
        change_template,
        delete_pod,
        fail_pod,
        release_pod,
        evict_pod,
        change_node,
        change_namespace,
        restart_controllers,
        wait,
        wait,
    ),
)


def target_node(pod: dict[str, Any]) -> str:
    """The node that the pod's affinity requires, or the one that always exists."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]) if required else "n"


async def pass_time(cluster: Cluster, seconds: float, *, step: float = 0.1) -> None:
    for _ in range(max(1, int(seconds / step))):
        await asyncio.sleep(step)
        for pod in await cluster.pods():
            if not pod["spec"].get("nodeName"):
                name, target = pod["metadata"]["name"], {"name": target_node(pod)}
                await cluster.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


async def remove_obstacles(cluster: Cluster) -> None:
    """Remove what blocks convergence: taints, released pods that keep the name of a StatefulSet's pod, and pods that
    never stop restarting."""
    await cluster.delete(f"{NAMESPACES}/short")
    for name in EXTRA_NODES:
        await cluster.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    for pod in await cluster.pods():
        if pod["metadata"]["labels"]["app"] == "free":
            await cluster.delete(f"{PODS}/{pod['metadata']['name']}")


async def check_workloads(cluster: Cluster) -> None:
    """Each workload has the desired pods of its template, and its status and its budget count them."""
    for name, path in PATHS.items():
        current = (await cluster.get(f"{path}/{name}")).json
        pods = [one for one in await cluster.pods() if one["metadata"].get("labels", {}).get("app") == name]
        if path in (DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS):
            # These controllers replace failed pods without deleting them.
            pods = [one for one in pods if one["status"]["phase"] != "Failed"]
        assert {one["status"]["phase"] for one in pods} <= {"Running"}
        assert all("deletionTimestamp" not in one["metadata"] for one in pods)
        assert {one["metadata"]["ownerReferences"][0]["kind"] for one in pods} <= {kind_of_owner(path)}
        desired = await expected_pods(cluster, current, path)
        ready = current["status"].get("numberReady" if path == DAEMON_SETS else "readyReplicas", 0)
        assert (len(pods), ready) == (desired, desired), name
        assert current["status"]["observedGeneration"] == current["metadata"]["generation"]
        check_templates(name, path, current, pods)
        budget = (await cluster.get(f"{BUDGETS}/{name}")).json["status"]
        assert (budget["currentHealthy"], budget["disruptionsAllowed"]) == (desired, max(0, desired - 1))


def versions(cluster: Cluster) -> dict[str, int]:
    """The version of the last write to each resource that the controllers write."""
    apps = ("deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions")
    others = ("pods", "replicationcontrollers", "poddisruptionbudgets.policy", "events")
    return {
        one: cluster.server.store.collection(one).resource_version
        for one in (*(f"{one}.apps" for one in apps), *others)
    }


def kind_of_owner(path: str) -> str:
    kinds = {STATEFUL_SETS: "StatefulSet", DAEMON_SETS: "DaemonSet", REPLICATION_CONTROLLERS: "ReplicationController"}
    return kinds.get(path, "ReplicaSet")


async def expected_pods(cluster: Cluster, current: dict[str, Any], path: str) -> int:
    if path != DAEMON_SETS:
        return int(current["spec"]["replicas"])
    return sum(not one["spec"].get("taints") for one in await cluster.items(NODES))


def check_templates(name: str, path: str, current: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    image = current["spec"]["template"]["spec"]["containers"][0]["image"]
    images = {one["metadata"]["name"]: one["spec"]["containers"][0]["image"] for one in pods}
    if path == STATEFUL_SETS:
        assert sorted(images) == [f"{name}-{ordinal}" for ordinal in range(len(pods))]
        images.pop("par-0", None)
    if path in (STATEFUL_SETS, DAEMON_SETS, DEPLOYMENTS):
        assert set(images.values()) <= {image}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), max_size=25))
def test_all_workloads_converge(actions: list[tuple[Action, int]]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_workloads(cluster)
        for act, number in actions:
            await act(cluster, number)
        await remove_obstacles(cluster)
        await pass_time(cluster, 300, step=1)
        await check_workloads(cluster)
        assert (await cluster.get(f"{NAMESPACES}/short")).status == 404
        before = versions(cluster)
        await pass_time(cluster, 60, step=1)
        assert versions(cluster) == before

    run_scenario(scenario)
