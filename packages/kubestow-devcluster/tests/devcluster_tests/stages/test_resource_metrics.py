"""metrics.k8s.io: the usage of nodes and pods, by rules."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devcluster_tests.client import PODS, Client, pod
from kubestow_devcluster.behaviour.resource_usage import Wave, amount_at
from kubestow_devcluster.behaviour.stages import NO_STAGES, read_stages
from kubestow_devcluster.cluster import DevCluster

METRICS = "/apis/metrics.k8s.io/v1beta1"
NODE = {
    "metadata": {"name": "n", "labels": {"zone": "a"}},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi"},
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
RULES = """
apiVersion: kubestow.dev/v1alpha1
kind: PodUsage
spec:
  selector: {names: [busy]}
  cpu: {min: 0, max: 200%, period: 2m, shape: ramp}
  memory: 1Gi
---
apiVersion: kubestow.dev/v1alpha1
kind: NodeUsage
spec: {cpu: 10%, selector: {matchLabels: {zone: a}}}
"""


class Clock:
    now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def start(client: Client, name: str, phase: str = "Running") -> None:
    new = pod(name, nodeName="n")
    resources = {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"cpu": "1500m"}}
    new["spec"]["containers"] = [{"name": "c", "image": "i", "resources": resources}]
    new["metadata"]["labels"] = {"app": name}
    await client.post(PODS, new)
    state = {"running": {"startedAt": "2026-11-20T12:00:00Z"}} if phase == "Running" else {"waiting": {}}
    container = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    response = await client.patch(
        f"{PODS}/{name}/status", {"status": {"phase": phase, "containerStatuses": [container]}}
    )
    assert response.status == 200, response.message


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def client(tmp_path: Path, clock: Clock) -> Client:
    path = tmp_path / "stages.yaml"
    path.write_text(RULES)
    client = Client(DevCluster(kubelets=False, stages=read_stages(path), clock=clock))
    await client.post("/api/v1/nodes", NODE)
    return client


async def test_a_container_uses_what_it_requests_unless_a_rule_says_otherwise(client: Client, clock: Clock) -> None:
    await start(client, "idle")
    await start(client, "busy")
    items = (await client.get(f"{METRICS}/namespaces/default/pods")).json["items"]
    usage = {item["metadata"]["name"]: item["containers"][0]["usage"] for item in items}
    assert usage == {
        "busy": {"cpu": "0n", "memory": "1048576Ki"},
        "idle": {"cpu": "1000000000n", "memory": "262144Ki"},
    }
    clock.now = clock.now.replace(second=45)
    metrics = (await client.get(f"{METRICS}/namespaces/default/pods/busy")).json
    assert metrics["kind"] == "PodMetrics"
    assert (metrics["timestamp"], metrics["window"]) == ("2026-11-20T12:00:45Z", "15s")
    assert metrics["containers"][0]["usage"]["cpu"] == "750000000n"
    clock.now = clock.now.replace(minute=1, second=59)
    metrics = (await client.get(f"{METRICS}/namespaces/default/pods/busy")).json
    assert metrics["containers"][0]["usage"]["cpu"] == "1500000000n", "the limit"


async def test_a_node_uses_what_its_pods_use_and_its_own(client: Client) -> None:
    await start(client, "idle")
    assert (await client.get(f"{METRICS}/nodes/n")).json["usage"] == {"cpu": "1400000000n", "memory": "262144Ki"}
    listed = (await client.get(f"{METRICS}/nodes?labelSelector=zone=b")).json
    assert (listed["kind"], listed["items"]) == ("NodeMetricsList", [])


async def test_what_does_not_report_has_no_metrics(client: Client) -> None:
    await start(client, "waiting", phase="Pending")
    response = await client.get(f"{METRICS}/namespaces/default/pods/waiting")
    assert (response.status, response.message) == (404, 'pods.metrics.k8s.io "waiting" not found')
    await start(client, "idle")
    await client.patch("/api/v1/nodes/n/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    assert (await client.get(f"{METRICS}/nodes")).json["items"] == []
    assert (await client.get(f"{METRICS}/pods")).json["items"] == []


async def test_metrics_are_discovered_and_read_only(client: Client) -> None:
    resources = (await client.get(METRICS)).json["resources"]
    assert [(one["name"], one["kind"], one["verbs"]) for one in resources] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
    assert (await client.get(f"{METRICS}/nodes?watch=true")).status == 405
    assert (await client.delete(f"{METRICS}/nodes/n")).status == 405
    assert (await client.post(f"{METRICS}/nodes", {})).status == 405
    assert (await client.get(f"{METRICS}/nodes/n/status")).status == 404
    assert (await client.get("/openapi/v3/apis/metrics.k8s.io/v1beta1")).status == 200


async def test_without_a_simulation_there_are_no_metrics() -> None:
    assert (await Client(DevCluster(kubelets=False)).get(METRICS)).status == 404
    assert (await Client(DevCluster(kubelets=False, stages=NO_STAGES)).get(METRICS)).status == 200


@pytest.mark.parametrize(
    ("shape", "levels"), [("sine", [15, 20, 15, 10]), ("square", [20, 20, 10, 10]), ("ramp", [10, 12.5, 15, 17.5])]
)
def test_a_wave_moves_between_its_bounds(shape: str, levels: list[float]) -> None:
    wave = Wave(min="10%", max=20, period="40s", shape=shape)  # type: ignore[arg-type]
    assert [amount_at(wave, 100.0, time, "uid") for time in (40, 50, 60, 70)] == pytest.approx(levels)


def test_spread_objects_are_not_at_the_same_level() -> None:
    wave = Wave(min=0, max=1, period="1m", shape="ramp", spread=True)
    assert len({amount_at(wave, 1.0, 0, uid) for uid in "abcdef"}) == 6
    assert amount_at(wave, 1.0, 0, "a") == amount_at(wave, 1.0, 60, "a")


def test_metrics_are_kept_of_present_pods_only(clock: Clock) -> None:
    async def scenario() -> None:
        client = Client(DevCluster(kubelets=False, stages=NO_STAGES, clock=clock))
        await client.post("/api/v1/nodes", NODE)
        await start(client, "idle")
        assert len((await client.get(f"{METRICS}/pods")).json["items"]) == 1
        await client.delete(f"{PODS}/idle", {"gracePeriodSeconds": 0})
        assert (await client.get(f"{METRICS}/pods")).json["items"] == []

    asyncio.run(scenario())
