"""Nodes that fall silent, shut down, come back or are gone, and what becomes of their pods; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from kubestow.devcluster.kubelets import KUBELET, SHUT_DOWN, STOPPED
from tests.devcluster.client import NODES, PODS, node, pod
from tests.devcluster.scenarios import REPLICA_SETS, Cluster, told, workload

UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


async def switch(cluster: Cluster, state: str | None, name: str = "n") -> None:
    response = await cluster.patch(f"{NODES}/{name}", {"metadata": {"annotations": {KUBELET: state}}})
    assert response.status == 200


async def conditions(cluster: Cluster) -> dict[str, str]:
    status = (await cluster.get(f"{NODES}/n")).json["status"]
    return {one["type"]: one["status"] for one in status["conditions"]}


async def taints(cluster: Cluster) -> set[tuple[str, str]]:
    spec = (await cluster.get(f"{NODES}/n")).json["spec"]
    return {(one["key"], one["effect"]) for one in spec.get("taints", ())}


async def running(cluster: Cluster, name: str = "p", **spec: Any) -> None:
    await cluster.post(PODS, pod(name, nodeName="n", **spec))
    await asyncio.sleep(1)


def tolerating(key: str, **seconds: int) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", **seconds}]


def test_a_node_that_lives_renews_its_lease_and_reports_its_status() -> None:
    async def story(cluster: Cluster) -> None:
        await asyncio.sleep(1000)
        lease = (await cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n")).json
        assert lease["spec"]["renewTime"] > "2026-01-01T00:16:25"
        assert lease["metadata"]["ownerReferences"][0]["name"] == "n"
        status = (await cluster.get(f"{NODES}/n")).json["status"]
        assert {one["status"] for one in status["conditions"] if one["type"] == "Ready"} == {"True"}
        assert min(one["lastHeartbeatTime"] for one in status["conditions"]) > "2026-01-01T00:10:00Z"

    told(story)


def test_a_silent_node_becomes_unknown_after_the_grace_period_and_ready_when_it_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        await switch(cluster, STOPPED)
        await asyncio.sleep(35)
        assert (await conditions(cluster))["Ready"] == "True"
        await asyncio.sleep(20)
        assert set((await conditions(cluster)).values()) == {"Unknown"}
        assert await taints(cluster) == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
        assert await cluster.reasons() == ["NodeNotReady", "NodeNotReady"], "of the node and of its pod"
        await switch(cluster, None)
        await asyncio.sleep(1)
        assert (await conditions(cluster))["Ready"] == "True"
        assert await taints(cluster) == set()
        ready = {one["type"]: one["status"] for one in (await cluster.pods())[0]["status"]["conditions"]}["Ready"]
        assert ready == "True"

    told(story)


def test_pods_of_a_silent_node_are_evicted_when_they_tolerate_it_no_longer_and_run_elsewhere() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICA_SETS, workload(replicas=2))
        await cluster.pass_time(2)
        await cluster.post(NODES, node("m"))
        await switch(cluster, STOPPED)
        await asyncio.sleep(50 + 290)
        assert not any("deletionTimestamp" in one["metadata"] for one in await cluster.pods())
        await asyncio.sleep(20)
        assert (await cluster.reasons())[-4:].count("TaintManagerEviction") == 2
        leaving = {one["metadata"]["name"] for one in await cluster.pods() if "deletionTimestamp" in one["metadata"]}
        fresh = [one["metadata"]["name"] for one in await cluster.pods() if one["metadata"]["name"] not in leaving]
        assert (len(leaving), len(fresh)) == (2, 2)
        for name in fresh:
            await cluster.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "m"}})
        await asyncio.sleep(60)
        assert len(await cluster.pods()) == 4, "nobody on the silent node says that its pods have stopped"
        await switch(cluster, None)
        await asyncio.sleep(2)
        left = {one["metadata"]["name"]: one["status"]["phase"] for one in await cluster.pods()}
        assert left == dict.fromkeys(fresh, "Running")

    told(story)


def test_a_node_back_in_time_keeps_its_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        await switch(cluster, STOPPED)
        await asyncio.sleep(200)
        await switch(cluster, None)
        await asyncio.sleep(600)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["p"]
        events = await cluster.items("/api/v1/namespaces/default/events")
        assert "Cancelling deletion of Pod default/p" in {event["message"] for event in events}

    told(story)


def test_a_taint_evicts_at_once_after_a_while_or_never_as_pods_tolerate_it() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster, "at-once")
        await running(cluster, "later", tolerations=tolerating("flood", tolerationSeconds=30))
        await running(cluster, "never", tolerations=tolerating("flood"))
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [{"key": "flood", "effect": "NoExecute"}]}})
        for seconds, left in ((5, {"later", "never"}), (20, {"later", "never"}), (10, {"never"}), (999, {"never"})):
            await asyncio.sleep(seconds)
            assert {one["metadata"]["name"] for one in await cluster.pods()} == left

    told(story)


def test_a_node_under_pressure_takes_no_more_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await asyncio.sleep(1)
        pressed = {"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}]}}
        await cluster.patch(f"{NODES}/n/status", pressed, "strategic-merge-patch+json")
        await asyncio.sleep(1)
        assert await taints(cluster) == {("node.kubernetes.io/memory-pressure", "NoSchedule")}

    told(story)


def test_a_node_that_shuts_down_ends_its_pods_and_is_not_ready() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        await switch(cluster, SHUT_DOWN)
        await asyncio.sleep(2)
        status = (await cluster.pods())[0]["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        assert await taints(cluster) == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
        await switch(cluster, None)
        await asyncio.sleep(1)
        assert (await conditions(cluster))["Ready"] == "True"

    told(story)


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        await cluster.delete(f"{NODES}/n")
        await asyncio.sleep(30)
        assert len(await cluster.pods()) == 1
        await asyncio.sleep(15)
        assert await cluster.pods() == []

    told(story)


def test_a_node_out_of_service_lets_its_deleted_pods_go() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        await switch(cluster, STOPPED)
        await cluster.delete(f"{PODS}/p")
        await asyncio.sleep(120)
        assert len(await cluster.pods()) == 1
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        present = (await cluster.get(f"{NODES}/n")).json["spec"]["taints"]
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [*present, taint]}})
        await asyncio.sleep(1)
        assert await cluster.pods() == []

    told(story)


def test_a_node_nobody_ever_reported_is_unknown() -> None:
    async def story(cluster: Cluster) -> None:
        silent = node("silent")
        silent["metadata"]["annotations"] = {KUBELET: STOPPED}
        await cluster.post(NODES, silent)
        await asyncio.sleep(60)
        ready = (await cluster.get(f"{NODES}/silent")).json["status"]["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusNeverUpdated")

    told(story)


def test_pods_have_addresses_of_their_nodes_range() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster, "a")
        await running(cluster, "b")
        range_ = (await cluster.get(f"{NODES}/n")).json["spec"]["podCIDR"]
        addresses = [one["status"]["podIP"] for one in await cluster.pods()]
        assert range_ == "10.128.0.0/24" and addresses == ["10.128.0.1", "10.128.0.2"]

    told(story)


def test_pods_are_as_ready_as_their_node_is_said_to_be() -> None:
    async def story(cluster: Cluster) -> None:
        await running(cluster)
        for said in ("False", "True"):
            condition = {"type": "Ready", "status": said}
            await cluster.patch(
                f"{NODES}/n/status", {"status": {"conditions": [condition]}}, "strategic-merge-patch+json"
            )
            await asyncio.sleep(1)
            ready = next(one for one in (await cluster.pods())[0]["status"]["conditions"] if one["type"] == "Ready")
            assert ready["status"] == said

    told(story)
