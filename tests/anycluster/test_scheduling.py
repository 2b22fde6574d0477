"""A running scheduler, as the users of a cluster see it."""

from __future__ import annotations

from kubestow.client.rest.transport import MERGE_PATCH
from tests.anycluster.sandbox import ClusterSandbox, Object


def is_bound(pod: Object) -> bool:
    return "nodeName" in pod["spec"]


def has_message(pod: Object) -> bool:
    return bool(message(pod))


def message(pod: Object) -> str:
    """The message of a pod's PodScheduled condition."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")


async def test_a_pod_is_bound_to_the_node_with_enough_capacity(sandbox: ClusterSandbox) -> None:
    await sandbox.node("small", cpu="500m")
    large = await sandbox.node("large")
    async with sandbox.scheduler():
        await sandbox.pod("p")
        pod = await sandbox.until(f"{sandbox.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == large


async def test_a_pod_created_before_the_scheduler_starts_is_scheduled(sandbox: ClusterSandbox) -> None:
    node = await sandbox.node("a")
    await sandbox.pod("p")
    async with sandbox.scheduler():
        pod = await sandbox.until(f"{sandbox.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == node


async def test_an_unschedulable_pod_has_a_message_and_is_bound_when_a_node_is_added(sandbox: ClusterSandbox) -> None:
    await sandbox.node("small", cpu="500m")
    async with sandbox.scheduler():
        await sandbox.pod("p")
        waiting = await sandbox.until(f"{sandbox.namespace}/pods", "p", has_message)
        assert "1 Insufficient cpu" in message(waiting)
        large = await sandbox.node("large")
        pod = await sandbox.until(f"{sandbox.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == large


async def test_a_gated_pod_is_scheduled_when_its_gates_are_removed(sandbox: ClusterSandbox) -> None:
    await sandbox.node("a")
    async with sandbox.scheduler():
        await sandbox.pod("p", schedulingGates=[{"name": "example.com/wait"}])
        await sandbox.pod("other")
        await sandbox.until(f"{sandbox.namespace}/pods", "other", is_bound)
        assert not is_bound(await sandbox.read("p"))
        path = f"{sandbox.namespace}/pods/p"
        opened: Object = {"spec": {"schedulingGates": []}}
        await sandbox.request("PATCH", path, opened, content_type=MERGE_PATCH)
        await sandbox.until(f"{sandbox.namespace}/pods", "p", is_bound)


async def test_a_pod_preempts_a_pod_of_lower_priority(sandbox: ClusterSandbox) -> None:
    priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = {"kind": "PriorityClass", "metadata": {"name": f"{sandbox.name}-high"}, "value": 1000}
    await sandbox.create(priorities, high)
    node = await sandbox.node("a", cpu="1")
    async with sandbox.scheduler():
        await sandbox.pod("low", terminationGracePeriodSeconds=0)
        await sandbox.until(f"{sandbox.namespace}/pods", "low", is_bound)
        await sandbox.pod("high", priorityClassName=f"{sandbox.name}-high")
        nominated = await sandbox.until(
            f"{sandbox.namespace}/pods", "high", lambda pod: pod["status"].get("nominatedNodeName") or is_bound(pod)
        )
    assert node in (nominated["status"].get("nominatedNodeName"), nominated["spec"].get("nodeName"))


async def test_pods_with_anti_affinity_are_bound_to_different_nodes(sandbox: ClusterSandbox) -> None:
    nodes = {await sandbox.node("a"), await sandbox.node("b")}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for node in nodes:
        labels = {"metadata": {"labels": {"kubernetes.io/hostname": node}}}
        await sandbox.request("PATCH", f"/api/v1/nodes/{node}", labels, content_type=MERGE_PATCH)
    async with sandbox.scheduler():
        for name in ("p", "q", "r"):
            await sandbox.pod(name, affinity=affinity)
        bound = [
            await sandbox.until(f"{sandbox.namespace}/pods", name, lambda pod: is_bound(pod) or has_message(pod))
            for name in "pqr"
        ]
    assert {pod["spec"]["nodeName"] for pod in bound if is_bound(pod)} == nodes
    (left,) = (pod for pod in bound if not is_bound(pod))
    assert "anti-affinity rules" in message(left)


async def test_a_bound_pod_has_a_scheduled_event(sandbox: ClusterSandbox) -> None:
    node = await sandbox.node("a")
    async with sandbox.scheduler():
        await sandbox.pod("p")
        events = f"/apis/events.k8s.io/v1/namespaces/{sandbox.name}/events"
        await sandbox.until(f"{sandbox.namespace}/pods", "p", is_bound)
        event = await _event(sandbox, events, "Scheduled")
    assert event["note"] == f"Successfully assigned {sandbox.name}/p to {node}"
    assert event["reportingController"] == sandbox.name


async def _event(sandbox: ClusterSandbox, collection: str, reason: str) -> Object:
    async for event in sandbox.watch(collection):
        if event["object"].get("reason") == reason:
            found: Object = event["object"]
            return found
    raise AssertionError(f"no event {reason}")
