"""The kubelet checks what is bound to its node, and rejects what does not fit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod
from devcluster_tests.kubelet_scenarios import bind, phase, run_scenario, status_of
from devcluster_tests.scenarios import Cluster
from devcluster_tests.scenarios import run_scenario as run_cluster_scenario

OUT_OF_CPU = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"


async def _start(client: Client, new: dict[str, Any]) -> None:
    await client.post(PODS, new)
    await bind(client, new["metadata"]["name"])
    await asyncio.sleep(1)


def test_the_second_of_two_pods_that_both_schedulers_put_on_the_last_free_cpu_fails() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        for name, cpu in (("first", "2"), ("second", "3")):
            await client.post(PODS, pod(name, cpu=cpu))
        await bind(client, "first")
        await bind(client, "second")
        await asyncio.sleep(1)
        assert await phase(client, "first") == "Running"
        status = await status_of(client, "second")
        assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
        assert status["message"] == f"Pod was rejected: {OUT_OF_CPU}"
        assert status["startTime"] and "containerStatuses" not in status
        events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
        warnings = [(event["reason"], event["message"]) for event in events if event["type"] == "Warning"]
        assert warnings == [("OutOfcpu", OUT_OF_CPU)]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"memory": "9Gi"}}}]},
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 9663676416, used: 0, capacity: 8589934592",
        ),
        (
            {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "3"}}}]},
            "OutOfexample.com/gpu",
            "Node didn't have enough resource: example.com/gpu, requested: 3, used: 0, capacity: 2",
        ),
        (
            {"nodeSelector": {"disk": "ssd"}},
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
    ],
)
def test_a_pod_that_does_not_fit_its_node_fails(spec: dict[str, Any], reason: str, message: str) -> None:
    async def scenario(client: Client) -> None:
        large = node("n")
        large["status"]["capacity"]["example.com/gpu"] = "2"
        await client.post(NODES, large)
        await _start(client, pod(**spec) if "containers" not in spec else pod() | {"spec": spec})
        status = await status_of(client)
        assert (status["reason"], status["message"]) == (reason, f"Pod was rejected: {message}")

    run_scenario(scenario)


def test_an_extended_resource_that_the_node_does_not_have_is_not_checked() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        new = pod()
        new["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "3"}}
        await _start(client, new)
        assert await phase(client) == "Running"

    run_scenario(scenario)


def test_a_node_runs_as_many_pods_as_it_can_and_finished_ones_do_not_count() -> None:
    async def scenario(client: Client) -> None:
        small = node("n")
        small["status"]["capacity"]["pods"] = "1"
        await client.post(NODES, small)
        done = pod("done")
        done["metadata"]["annotations"] = {"kubestow.dev/duration": "5s"}
        await _start(client, done)
        await _start(client, pod("early"))
        assert (await status_of(client, "early"))["message"] == (
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
        )
        await asyncio.sleep(10)
        assert await phase(client, "done") == "Succeeded"
        await _start(client, pod("late"))
        assert await phase(client, "late") == "Running"
        await client.delete(f"{PODS}/late")
        await asyncio.sleep(5)
        await _start(client, pod("later"))
        assert await phase(client, "later") == "Running"

    run_scenario(scenario)


def test_a_host_port_can_be_used_once_per_address() -> None:
    def with_port(name: str, ip: str) -> dict[str, Any]:
        new = pod(name)
        new["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]
        return new

    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        await _start(client, with_port("a", "10.0.0.1"))
        await _start(client, with_port("b", "10.0.0.2"))
        await _start(client, with_port("c", ""))
        assert [await phase(client, name) for name in "abc"] == ["Running", "Running", "Failed"]
        assert (await status_of(client, "c"))["reason"] == "NodePorts"

    run_scenario(scenario)


def test_a_node_with_a_no_execute_taint_admits_pods_that_tolerate_it() -> None:
    async def scenario(client: Client) -> None:
        tainted = node("n")
        tainted["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}
        await client.post(NODES, tainted)
        await _start(client, pod("a"))
        await _start(client, pod("b", tolerations=[{"key": "k", "operator": "Exists"}]))
        status = await status_of(client, "a")
        assert (status["phase"], status["reason"]) == ("Failed", "TaintToleration")
        assert status["message"] == (
            "Pod was rejected: Predicate TaintToleration failed: node(s) had untolerated taint(s)"
        )
        assert await phase(client, "b") == "Running"

    run_scenario(scenario)


def test_a_pod_that_cannot_be_read_is_rejected_alone() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        await client.post(PODS, pod("broken"))
        registry = client.server.registry
        pods = registry.scheme["pods"]
        broken = pods.decode(registry.get(pods, "default", "broken"))
        broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
        registry.commit(pods, broken)
        await bind(client, "broken")
        await _start(client, pod("p"))
        assert (await status_of(client, "broken"))["reason"] == "UnexpectedAdmissionError"
        assert await phase(client) == "Running"

    run_scenario(scenario)


def test_a_rejected_pod_of_a_stateful_set_comes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("first", cpu="3"))
        await cluster.pass_time(1)
        template = {"metadata": {"labels": {"app": "db"}}, "spec": pod(cpu="2")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "db"}}, "template": template}
        await cluster.post("/apis/apps/v1/namespaces/default/statefulsets", {"metadata": {"name": "db"}, "spec": spec})
        await cluster.pass_time(2)
        assert [pod["metadata"]["name"] for pod in await cluster.pods() if pod["status"]["phase"] == "Running"] == [
            "first"
        ]
        await cluster.delete(f"{PODS}/first")
        await cluster.pass_time(60)
        assert {pod["metadata"]["name"]: pod["status"]["phase"] for pod in await cluster.pods()} == {"db-0": "Running"}

    run_cluster_scenario(scenario)
