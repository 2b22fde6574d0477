"""Nodes without heartbeats, shut down, restarted or deleted, and their pods."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import NODES, PODS, node, pod
from devcluster_tests.scenarios import REPLICA_SETS, Cluster, run_scenario, workload
from kubestow_devcluster.behaviour.pod_behaviour import KUBELET, SHUT_DOWN, STOPPED

UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


async def set_kubelet_state(cluster: Cluster, state: str | None, name: str = "n") -> None:
    response = await cluster.patch(f"{NODES}/{name}", {"metadata": {"annotations": {KUBELET: state}}})
    assert response.status == 200


async def conditions(cluster: Cluster) -> dict[str, str]:
    status = (await cluster.get(f"{NODES}/n")).json["status"]
    return {one["type"]: one["status"] for one in status["conditions"]}


async def taints(cluster: Cluster) -> set[tuple[str, str]]:
    spec = (await cluster.get(f"{NODES}/n")).json["spec"]
    return {(one["key"], one["effect"]) for one in spec.get("taints", ())}


async def run_pod_on_n(cluster: Cluster, name: str = "p", **spec: Any) -> None:
    await cluster.post(PODS, pod(name, nodeName="n", **spec))
    await asyncio.sleep(1)


def tolerating(key: str, **seconds: int) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", **seconds}]


def test_a_running_kubelet_renews_its_lease_and_reports_its_status() -> None:
    async def scenario(cluster: Cluster) -> None:
        await asyncio.sleep(1000)
        lease = (await cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n")).json
        assert lease["spec"]["renewTime"] > "2026-01-01T00:16:25"
        assert lease["metadata"]["ownerReferences"][0]["name"] == "n"
        status = (await cluster.get(f"{NODES}/n")).json["status"]
        assert {one["status"] for one in status["conditions"] if one["type"] == "Ready"} == {"True"}
        assert min(one["lastHeartbeatTime"] for one in status["conditions"]) > "2026-01-01T00:10:00Z"

    run_scenario(scenario)


def test_a_node_without_heartbeats_is_unknown_after_the_grace_period_and_ready_again_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        await set_kubelet_state(cluster, STOPPED)
        await asyncio.sleep(35)
        assert (await conditions(cluster))["Ready"] == "True"
        await asyncio.sleep(20)
        assert set((await conditions(cluster)).values()) == {"Unknown"}
        assert await taints(cluster) == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
        assert await cluster.reasons() == ["NodeNotReady", "NodeNotReady"], "one about the node, one about its pod"
        await set_kubelet_state(cluster, None)
        await asyncio.sleep(1)
        assert (await conditions(cluster))["Ready"] == "True"
        assert await taints(cluster) == set()
        ready = {one["type"]: one["status"] for one in (await cluster.pods())[0]["status"]["conditions"]}["Ready"]
        assert ready == "True"

    run_scenario(scenario)


def test_pods_of_an_unreachable_node_are_evicted_after_their_toleration_seconds_and_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(2)
        await cluster.post(NODES, node("m"))
        await set_kubelet_state(cluster, STOPPED)
        await asyncio.sleep(50 + 290)
        assert not any("deletionTimestamp" in one["metadata"] for one in await cluster.pods())
        await asyncio.sleep(20)
        assert (await cluster.reasons())[-4:].count("TaintManagerEviction") == 2
        terminating = {
            one["metadata"]["name"] for one in await cluster.pods() if "deletionTimestamp" in one["metadata"]
        }
        replacements = [
            one["metadata"]["name"] for one in await cluster.pods() if one["metadata"]["name"] not in terminating
        ]
        assert (len(terminating), len(replacements)) == (2, 2)
        for name in replacements:
            await cluster.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "m"}})
        await asyncio.sleep(60)
        assert len(await cluster.pods()) == 4, "the stopped kubelet does not report that its pods have stopped"
        await set_kubelet_state(cluster, None)
        await asyncio.sleep(2)
        phases = {one["metadata"]["name"]: one["status"]["phase"] for one in await cluster.pods()}
        assert phases == dict.fromkeys(replacements, "Running")

    run_scenario(scenario)


def test_the_eviction_is_cancelled_if_the_kubelet_restarts_in_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        await set_kubelet_state(cluster, STOPPED)
        await asyncio.sleep(200)
        await set_kubelet_state(cluster, None)
        await asyncio.sleep(600)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["p"]
        events = await cluster.items("/api/v1/namespaces/default/events")
        assert "Cancelling deletion of Pod default/p" in {event["message"] for event in events}

    run_scenario(scenario)


def test_a_no_execute_taint_evicts_pods_by_their_tolerations() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster, "at-once")
        await run_pod_on_n(cluster, "later", tolerations=tolerating("flood", tolerationSeconds=30))
        await run_pod_on_n(cluster, "never", tolerations=tolerating("flood"))
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [{"key": "flood", "effect": "NoExecute"}]}})
        for seconds, remaining in (
            (5, {"later", "never"}),
            (20, {"later", "never"}),
            (10, {"never"}),
            (999, {"never"}),
        ):
            await asyncio.sleep(seconds)
            assert {one["metadata"]["name"] for one in await cluster.pods()} == remaining

    run_scenario(scenario)


def test_a_node_under_memory_pressure_gets_a_no_schedule_taint() -> None:
    async def scenario(cluster: Cluster) -> None:
        await asyncio.sleep(1)
        status = {"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}]}}
        await cluster.patch(f"{NODES}/n/status", status, "strategic-merge-patch+json")
        await asyncio.sleep(1)
        assert await taints(cluster) == {("node.kubernetes.io/memory-pressure", "NoSchedule")}

    run_scenario(scenario)


def test_a_graceful_node_shutdown_terminates_the_pods() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        await set_kubelet_state(cluster, SHUT_DOWN)
        await asyncio.sleep(2)
        status = (await cluster.pods())[0]["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        assert await taints(cluster) == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
        await set_kubelet_state(cluster, None)
        await asyncio.sleep(1)
        assert (await conditions(cluster))["Ready"] == "True"

    run_scenario(scenario)


def test_pods_of_a_deleted_node_are_removed_after_a_quarantine() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        await cluster.delete(f"{NODES}/n")
        await asyncio.sleep(30)
        assert len(await cluster.pods()) == 1
        await asyncio.sleep(15)
        assert await cluster.pods() == []

    run_scenario(scenario)


def test_terminating_pods_of_an_out_of_service_node_are_removed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        await set_kubelet_state(cluster, STOPPED)
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(120)
        assert len(await cluster.pods()) == 1
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        existing = (await cluster.get(f"{NODES}/n")).json["spec"]["taints"]
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [*existing, taint]}})
        await asyncio.sleep(1)
        assert await cluster.pods() == []

    run_scenario(scenario)


def test_a_node_that_never_reported_its_status_becomes_unknown() -> None:
    async def scenario(cluster: Cluster) -> None:
        new = node("silent")
        new["metadata"]["annotations"] = {KUBELET: STOPPED}
        await cluster.post(NODES, new)
        await asyncio.sleep(60)
        ready = (await cluster.get(f"{NODES}/silent")).json["status"]["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusNeverUpdated")

    run_scenario(scenario)


def test_pod_ips_are_from_the_pod_cidr_of_the_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster, "a")
        await run_pod_on_n(cluster, "b")
        pod_cidr = (await cluster.get(f"{NODES}/n")).json["spec"]["podCIDR"]
        pod_ips = [one["status"]["podIP"] for one in await cluster.pods()]
        assert pod_cidr == "10.128.0.0/24" and pod_ips == ["10.128.0.1", "10.128.0.2"]

    run_scenario(scenario)


def test_pods_follow_the_ready_condition_of_their_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        await run_pod_on_n(cluster)
        for node_ready in ("False", "True"):
            condition = {"type": "Ready", "status": node_ready}
            await cluster.patch(
                f"{NODES}/n/status", {"status": {"conditions": [condition]}}, "strategic-merge-patch+json"
            )
            await asyncio.sleep(1)
            ready = next(one for one in (await cluster.pods())[0]["status"]["conditions"] if one["type"] == "Ready")
            assert ready["status"] == node_ready

    run_scenario(scenario)
