"""Whatever happens, and whatever controllers miss of it, all comes to be as it should, and then nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.devcluster.client import NODES, PODS, node
from tests.devcluster.scenarios import DEPLOYMENTS, REPLICA_SETS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

APPS = "/apis/apps/v1/namespaces/default"
STATEFUL, DAEMONS = f"{APPS}/statefulsets", f"{APPS}/daemonsets"
OLD = "/api/v1/namespaces/default/replicationcontrollers"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
#: Where the objects are, by name; each has pods that are labelled with it.
PATHS = {"deploy": DEPLOYMENTS, "rs": REPLICA_SETS, "sts": STATEFUL, "par": STATEFUL, "ds": DAEMONS, "rc": OLD}
EXTRA_NODES = ("a", "b")

Action = Callable[[Cluster, int], Awaitable[Any]]


async def found(cluster: Cluster) -> None:
    for name, path in PATHS.items():
        made = workload(name, replicas=2, revisionHistoryLimit=2)
        if path == DAEMONS:
            del made["spec"]["replicas"]
        if path == OLD:
            made["spec"]["selector"] = {"app": name}
        if path in (OLD, REPLICA_SETS):
            del made["spec"]["revisionHistoryLimit"]
        if name == "par":
            made["spec"] |= {"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"partition": 1}}}
        assert (await cluster.post(path, made)).status == 201
    for name in PATHS:
        budget = {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
        await cluster.post(BUDGETS, {"metadata": {"name": name}, "spec": budget})


def chosen(number: int) -> str:
    return list(PATHS)[number % len(PATHS)]


async def scale(cluster: Cluster, number: int) -> None:
    name = chosen(number)
    if PATHS[name] != DAEMONS:
        await cluster.patch(f"{PATHS[name]}/{name}/scale", {"spec": {"replicas": number % 5}})


async def change_template(cluster: Cluster, number: int) -> None:
    name = chosen(number)
    template = {"spec": {"containers": [{"name": "c", "image": f"x:{number % 4}"}]}}
    await cluster.patch(f"{PATHS[name]}/{name}", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def pod_of(cluster: Cluster, number: int) -> str:
    names = [one["metadata"]["name"] for one in await cluster.pods()]
    return names[number % len(names)] if names else "none"


async def delete_pod(cluster: Cluster, number: int) -> None:
    await cluster.delete(f"{PODS}/{await pod_of(cluster, number)}", {"gracePeriodSeconds": number % 2})


async def fail_pod(cluster: Cluster, number: int) -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": "PodFailed"}]
    status = {"phase": "Failed", "conditions": conditions}
    await cluster.patch(f"{PODS}/{await pod_of(cluster, number)}/status", {"status": status})


async def release_pod(cluster: Cluster, number: int) -> None:
    await cluster.patch(f"{PODS}/{await pod_of(cluster, number)}", {"metadata": {"labels": {"app": "free"}}})


async def evict_pod(cluster: Cluster, number: int) -> None:
    name = await pod_of(cluster, number)
    await cluster.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})


async def change_node(cluster: Cluster, number: int) -> None:
    name = EXTRA_NODES[number % len(EXTRA_NODES)]
    if (await cluster.post(NODES, node(name))).status != 201:
        taints = [{"key": "k", "effect": ("NoSchedule", "NoExecute")[number // 3 % 2]}] if number % 3 else None
        await cluster.patch(f"{NODES}/{name}", {"spec": {"taints": taints}})


async def start_over(cluster: Cluster, number: int) -> None:
    """The controllers are away for a while, and come back without a memory."""
    cluster.stop_controllers()
    await cluster.pass_time(number % 7 / 10)
    cluster.start_controllers()


async def wait(cluster: Cluster, number: int) -> None:
    await pass_time(cluster, number % 9 / 10)


ACTIONS: tuple[Action, ...] = (
    *(scale, change_template, delete_pod, fail_pod, release_pod, evict_pod, change_node, start_over, wait, wait),
)


def home(pod: dict[str, Any]) -> str:
    """The node that a pod asks for, or else the one that is always there."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]) if required else "n"


async def pass_time(cluster: Cluster, seconds: float, *, step: float = 0.1) -> None:
    for _ in range(max(1, int(seconds / step))):
        await asyncio.sleep(step)
        for pod in await cluster.pods():
            if not pod["spec"].get("nodeName"):
                name, target = pod["metadata"]["name"], {"name": home(pod)}
                await cluster.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


async def settle(cluster: Cluster) -> None:
    """Take away what may block others for ever: a taint that evicts nobody, a pod that has another's name."""
    for name in EXTRA_NODES:
        await cluster.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    for pod in await cluster.pods():
        if pod["metadata"]["labels"]["app"] == "free":
            await cluster.delete(f"{PODS}/{pod['metadata']['name']}")


async def check(cluster: Cluster) -> None:
    """Each object has the pods it should have, of its template, and says so; its budget counts them."""
    for name, path in PATHS.items():
        whole = (await cluster.get(f"{path}/{name}")).json
        pods = [one for one in await cluster.pods() if one["metadata"].get("labels", {}).get("app") == name]
        if path in (DEPLOYMENTS, REPLICA_SETS, OLD):
            # Their pods are replaced when they have failed, and are left lying.
            pods = [one for one in pods if one["status"]["phase"] != "Failed"]
        assert {one["status"]["phase"] for one in pods} <= {"Running"}
        assert all("deletionTimestamp" not in one["metadata"] for one in pods)
        assert {one["metadata"]["ownerReferences"][0]["kind"] for one in pods} <= {kind_of_owner(path)}
        wanted = await expected(cluster, whole, path)
        ready = whole["status"].get("numberReady" if path == DAEMONS else "readyReplicas", 0)
        assert (len(pods), ready) == (wanted, wanted), name
        assert whole["status"]["observedGeneration"] == whole["metadata"]["generation"]
        check_templates(name, path, whole, pods)
        budget = (await cluster.get(f"{BUDGETS}/{name}")).json["status"]
        assert (budget["currentHealthy"], budget["disruptionsAllowed"]) == (wanted, max(0, wanted - 1))


def versions(cluster: Cluster) -> dict[str, int]:
    """The last write to each resource that these controllers write."""
    apps = ("deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions")
    others = ("pods", "replicationcontrollers", "poddisruptionbudgets.policy", "events")
    return {one: cluster.server.store.collection(one).version for one in (*(f"{one}.apps" for one in apps), *others)}


def kind_of_owner(path: str) -> str:
    kinds = {STATEFUL: "StatefulSet", DAEMONS: "DaemonSet", OLD: "ReplicationController"}
    return kinds.get(path, "ReplicaSet")


async def expected(cluster: Cluster, whole: dict[str, Any], path: str) -> int:
    if path != DAEMONS:
        return int(whole["spec"]["replicas"])
    return sum(not one["spec"].get("taints") for one in await cluster.items(NODES))


def check_templates(name: str, path: str, whole: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    image = whole["spec"]["template"]["spec"]["containers"][0]["image"]
    images = {one["metadata"]["name"]: one["spec"]["containers"][0]["image"] for one in pods}
    if path == STATEFUL:
        assert sorted(images) == [f"{name}-{ordinal}" for ordinal in range(len(pods))]
        images.pop("par-0", None)
    if path in (STATEFUL, DAEMONS, DEPLOYMENTS):
        assert set(images.values()) <= {image}


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), max_size=25))
def test_all_comes_to_be_as_it_should(actions: list[tuple[Action, int]]) -> None:
    async def story(cluster: Cluster) -> None:
        await found(cluster)
        for act, number in actions:
            await act(cluster, number)
        await settle(cluster)
        await pass_time(cluster, 300, step=1)
        await check(cluster)
        before = versions(cluster)
        await pass_time(cluster, 60, step=1)
        assert versions(cluster) == before

    told(story)
