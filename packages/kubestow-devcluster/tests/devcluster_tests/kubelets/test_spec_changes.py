"""What the kubelet does when the spec of a running pod changes."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import PODS, Client, pod
from devcluster_tests.kubelet_scenarios import bind, run_pod, run_scenario, status_of


async def resize(client: Client, cpu: str, name: str = "p") -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    body = {"spec": {"containers": [container]}}
    response = await client.patch(f"{PODS}/{name}/resize", body, "strategic-merge-patch+json")
    assert response.status == 200, response.message
    await asyncio.sleep(1)


async def condition(client: Client, type_: str, name: str = "p") -> dict[str, Any]:
    conditions = (await status_of(client, name))["conditions"]
    found: dict[str, Any] = next((one for one in conditions if one["type"] == type_), {})
    return found


async def allocated(client: Client, name: str = "p") -> str:
    container = (await status_of(client, name))["containerStatuses"][0]
    assert container["resources"]["requests"] == container["allocatedResources"]
    return str(container["allocatedResources"]["cpu"])


def test_status_and_conditions_have_the_generation_that_the_kubelet_observed() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod())
        await asyncio.sleep(1)
        status = await status_of(client)
        assert status["observedGeneration"] == 1
        assert {one["type"]: one["observedGeneration"] for one in status["conditions"]} == dict.fromkeys(
            ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), 1
        )
        await client.patch(f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 600}})
        await asyncio.sleep(1)
        assert (await status_of(client))["observedGeneration"] == 2
        assert (await condition(client, "Ready"))["observedGeneration"] == 2

    run_scenario(scenario)


def test_an_ephemeral_container_starts() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod())
        await asyncio.sleep(1)
        debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "c"}
        body = {"spec": {"ephemeralContainers": [debugger]}}
        path = f"{PODS}/p/ephemeralcontainers"
        assert (await client.patch(path, body, "strategic-merge-patch+json")).status == 200
        await asyncio.sleep(1)
        status = await status_of(client)
        (reported,) = status["ephemeralContainerStatuses"]
        assert reported["name"] == "debugger" and "running" in reported["state"]
        assert status["containerStatuses"][0]["ready"] and status["phase"] == "Running"
        events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
        assert "Started container debugger" in [event["message"] for event in events]

    run_scenario(scenario)


def test_a_resize_is_reported_when_the_node_has_the_resources() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod(cpu="1"))
        await asyncio.sleep(1)
        assert "resources" not in (await status_of(client))["containerStatuses"][0]
        await resize(client, "3")
        assert await allocated(client) == "3"
        assert await condition(client, "PodResizePending") == {}
        await client.post(PODS, pod("late", cpu="2"))
        await bind(client, "late")
        await asyncio.sleep(1)
        assert (await status_of(client, "late"))["reason"] == "OutOfcpu"

    run_scenario(scenario)


def test_a_resize_waits_until_another_pod_has_ended() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod(cpu="1"))
        await client.post(PODS, pod("other", cpu="2"))
        await bind(client, "other")
        await asyncio.sleep(1)
        await resize(client, "3")
        pending = await condition(client, "PodResizePending")
        assert (pending["status"], pending["reason"]) == ("True", "Deferred")
        assert (
            pending["message"] == "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
        )
        assert await allocated(client) == "1"
        await client.delete(f"{PODS}/other")
        await asyncio.sleep(2)
        assert await allocated(client) == "3"
        assert await condition(client, "PodResizePending") == {}

    run_scenario(scenario)


def test_a_resize_beyond_the_node_is_infeasible() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod(cpu="1"))
        await asyncio.sleep(1)
        await resize(client, "5")
        assert (await condition(client, "PodResizePending"))["reason"] == "Infeasible"
        assert await allocated(client) == "1"
        await resize(client, "2")
        assert await allocated(client) == "2"
        assert await condition(client, "PodResizePending") == {}

    run_scenario(scenario)
