"""Simulated kubelets: node registration, running and stopping pods."""

from __future__ import annotations

import asyncio

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod
from devcluster_tests.kubelet_scenarios import bind, phase, run_scenario, run_simple_pod
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.behaviour.pod_behaviour import DURATION, SHUTDOWN, PodBehaviour
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.kubelets.kubelets import Kubelets


def test_a_node_becomes_ready_and_loses_its_taint() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        await asyncio.sleep(1)
        shown = (await client.get(f"{NODES}/n")).json
        assert "taints" not in shown["spec"]
        assert {c["type"]: c["status"] for c in shown["status"]["conditions"] if c["type"] == "Ready"} == {
            "Ready": "True"
        }

    run_scenario(scenario)


def test_a_cordoned_node_is_tainted_until_it_is_uncordoned() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        for unschedulable, keys in ((True, ["node.kubernetes.io/unschedulable"]), (None, [])):
            await client.patch(f"{NODES}/n", {"spec": {"unschedulable": unschedulable}})
            await asyncio.sleep(1)
            spec = (await client.get(f"{NODES}/n")).json["spec"]
            assert [taint["key"] for taint in spec.get("taints", [])] == keys

    run_scenario(scenario)


def test_a_bound_pod_runs_and_is_ready() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client)
        assert await phase(client) == "Pending"
        await asyncio.sleep(1)
        status = (await client.get(f"{PODS}/p")).json["status"]
        ready = {c["type"]: c["status"] for c in status["conditions"]}
        assert (status["phase"], ready["Ready"], ready["PodScheduled"]) == ("Running", "True", "True")
        assert status["podIP"] and status["startTime"] and status["containerStatuses"][0]["ready"]

    run_scenario(scenario)


def test_requests_are_served_between_the_starts_of_two_pods() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        turns: list[set[str]] = [set()]

        def record(resource: str, event: WatchEvent) -> None:
            if resource == "pods" and b'"phase":"Running"' in event.object.data:
                if not turns[-1]:
                    asyncio.get_running_loop().call_soon(turns.append, set())
                turns[-1].add(event.object.key)

        client.server.store.on_write = record
        for number in range(20):
            await client.post(PODS, pod(f"p{number}"))
            await bind(client, f"p{number}")
        await asyncio.sleep(10)
        assert [len(started) for started in turns] == [1] * 20 + [0]

    run_scenario(scenario)


def test_a_pod_with_a_duration_succeeds_after_it() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{DURATION: "30s"})
        await asyncio.sleep(29)
        assert await phase(client) == "Running"
        await asyncio.sleep(2)
        assert await phase(client) == "Succeeded"

    run_scenario(scenario)


def test_a_pod_bound_to_a_missing_node_starts_when_the_node_is_created() -> None:
    async def scenario(client: Client) -> None:
        await client.post(PODS, pod("p", nodeName="nowhere"))
        await asyncio.sleep(60)
        assert await phase(client) == "Pending"
        await client.post(NODES, node("nowhere"))
        await asyncio.sleep(1)
        assert await phase(client) == "Running"

    run_scenario(scenario)


@pytest.mark.parametrize(("shutdown", "grace", "removed_after"), [("", 30, 1), ("10s", 30, 11), ("1h", 5, 6)])
def test_a_deleted_pod_is_removed_when_its_containers_have_stopped(
    shutdown: str, grace: int, removed_after: int
) -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **({SHUTDOWN: shutdown} if shutdown else {}))
        await asyncio.sleep(1)
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": grace})
        assert await phase(client) == "Running"
        await asyncio.sleep(removed_after)
        assert await phase(client) == "deleted"

    run_scenario(scenario)


def test_a_recreated_pod_does_not_inherit_the_steps_of_its_predecessor() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{DURATION: "10s"})
        await asyncio.sleep(5)
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        await run_simple_pod(client)
        await asyncio.sleep(60)
        assert await phase(client) == "Running", "the duration of the first pod does not apply to the second"

    run_scenario(scenario)


@pytest.mark.parametrize(("text", "seconds"), [("1h30m", 5400.0), ("250ms", 0.25), ("0", 0.0)])
def test_annotations_are_parsed_as_go_durations(text: str, seconds: float) -> None:
    behaviour = PodBehaviour.of({"metadata": {"annotations": {DURATION: text}}, "spec": {"containers": []}})
    assert (behaviour.duration, behaviour.problems) == (seconds, ())


@pytest.mark.parametrize("text", ["30", "", "-1s", "x"])
def test_an_invalid_duration_is_ignored_and_reported(text: str) -> None:
    behaviour = PodBehaviour.of({"metadata": {"annotations": {DURATION: text}}, "spec": {"containers": []}})
    assert behaviour.duration is None
    assert behaviour.problems == (f"{DURATION}: {text!r} is not a duration such as 30s; it is ignored",)


def without_finalizers(namespace: Object) -> Object:
    return {**namespace, "metadata": dict(namespace["metadata"]), "spec": {}}


def test_a_pod_of_a_namespace_that_is_gone_does_not_end_the_kubelets() -> None:
    async def scenario(client: Client) -> None:
        pods = PODS.replace("default", "gone")
        await client.post("/api/v1/namespaces", {"metadata": {"name": "gone"}})
        await client.post(NODES, node("n"))
        await client.post(pods, pod("p"))
        await client.post(f"{pods}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
        await asyncio.sleep(1)
        # The kubelets see the graceful deletion after the pod and its namespace have been removed.
        await client.delete(f"{pods}/p")
        await client.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
        await client.delete("/api/v1/namespaces/gone")
        client.server.registry.update(client.server.registry.scheme["namespaces"], "", "gone", without_finalizers)
        assert (await client.get("/api/v1/namespaces/gone")).status == 404
        await run_simple_pod(client, "other")
        await asyncio.sleep(60)
        assert await phase(client, "other") == "Running"

    run_scenario(scenario)


def test_a_node_whose_lease_cannot_be_created_does_not_affect_the_other_nodes() -> None:
    async def scenario(client: Client) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        for name in ("n", "m"):
            await client.post(NODES, node(name))
        await asyncio.sleep(1)
        before = (await client.get(f"{leases}/m")).json["spec"]["renewTime"]
        await client.delete("/api/v1/namespaces/kube-node-lease")
        await client.delete(f"{leases}/n")
        await asyncio.sleep(60)
        assert (await client.get(f"{leases}/m")).json["spec"]["renewTime"] > before
        assert (await client.get(f"{leases}/n")).status == 404

    run_scenario(scenario)


def test_nothing_is_kept_about_the_events_of_deleted_pods() -> None:
    async def main() -> None:
        server = DevCluster(kubelets=False, clock=VirtualClock(asyncio.get_running_loop()).now)
        kubelets = Kubelets(server.registry)
        running, client = asyncio.create_task(kubelets.run()), Client(server)
        await run_simple_pod(client)
        await asyncio.sleep(1)
        assert len(kubelets._recorder) == 1
        await client.delete(f"{PODS}/p")
        await asyncio.sleep(1)
        assert await phase(client) == "deleted"
        assert len(kubelets._recorder) == 0
        running.cancel()

    virtual_time.run(main())
