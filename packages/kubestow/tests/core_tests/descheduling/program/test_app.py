"""The descheduler against an API server over HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from core_tests.descheduling.objects import NOW, OWNER, node, policy
from kubestow.api.meta import convert
from kubestow.client.leader_election import LeaseTimings
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.descheduling.cluster_state import ClusterState
from kubestow.descheduling.descheduler_policy import load_policy
from kubestow.descheduling.dry_run.loop_report import LoopReport
from kubestow.descheduling.dry_run.rescheduling import Mode
from kubestow.descheduling.eviction import Eviction
from kubestow.descheduling.program.api_requests import APIEvictions, LoopStopped
from kubestow.descheduling.program.descheduler_app import DeschedulerApp, DeschedulerOptions, LeaseOptions
from kubestow.descheduling.snapshot import Node, Pod, Snapshot
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import ConfigurationError, Unreachable
from kubestow.process import WallClock
from kubestow.serving.options import DelegatingAuthorizationOptions, ServingOptions
from kubestow_devcluster.behaviour.stages import NO_STAGES, Stages
from kubestow_devcluster.cluster import DevCluster

PODS = "/api/v1/namespaces/default/pods"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ALL = policy("PodLifeTime", {"states": ["Running"]}, gracePeriodSeconds=0, evictionFailureEventNotification=True)
REGISTRY = find_plugins()


class LiveCluster:
    """An API server without kubelets, controllers and scheduler."""

    def __init__(self, server: DevCluster, session: aiohttp.ClientSession) -> None:
        self.url, self._session = server.url, session

    async def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async with self._session.request(method, self.url + path, json=body) as response:
            result: dict[str, Any] = await response.json()
            assert response.status < 300, result
            return result

    async def create_node(self, name: str, **options: Any) -> None:
        created = await self.request("POST", "/api/v1/nodes", node(name, **options))
        spec = created["spec"] | {"taints": []}  # new nodes are tainted until a controller has seen that they are ready
        await self.request("PUT", f"/api/v1/nodes/{name}", created | {"spec": spec})

    async def create_pod(self, name: str, node_name: str, **spec: Any) -> None:
        containers = [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]
        metadata = {"name": name, "labels": {"app": "web"}, "ownerReferences": [OWNER]}
        body = {"metadata": metadata, "spec": {"nodeName": node_name, "containers": containers, **spec}}
        await self.request("POST", PODS, body)
        current = await self.request("GET", f"{PODS}/{name}")
        await self.request("PUT", f"{PODS}/{name}/status", current | {"status": current["status"] | READY})

    async def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.request("GET", PODS))["items"]]

    async def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.request("GET", "/apis/events.k8s.io/v1/events"))["items"]
        return items

    def app(self, options: DeschedulerOptions = DeschedulerOptions(), **more: Any) -> DeschedulerApp:  # noqa: B008
        document = more.pop("document", ALL)
        return DeschedulerApp(load_policy(document, registry=REGISTRY), REGISTRY, options, **more)

    async def run(self, app: DeschedulerApp, **more: Any) -> None:
        await app.run(kubeconfig="", master=self.url, **more)


@asynccontextmanager
async def set_up(stages: Stages | None = None) -> AsyncIterator[LiveCluster]:
    async with DevCluster(kubelets=False, stages=stages) as server, aiohttp.ClientSession() as session:
        cluster = LiveCluster(server, session)
        await cluster.create_node("n1")
        await cluster.create_node("n2")
        yield cluster


@pytest.fixture
async def cluster() -> AsyncIterator[LiveCluster]:
    async with set_up() as created:
        yield created


def counts(app: DeschedulerApp) -> dict[str, float]:
    """The evictions by result."""
    found: dict[str, float] = {}
    for sample in app.metrics.pods_evicted.collect().samples:
        if sample.name.endswith("_total"):
            found[sample.labels["result"]] = found.get(sample.labels["result"], 0) + sample.value
    return found


async def test_pods_are_evicted_with_events_and_metrics(cluster: LiveCluster) -> None:
    await cluster.create_pod("a", "n1")
    await cluster.create_pod("b", "n2")
    app = cluster.app()
    await cluster.run(app)
    assert await cluster.names() == []
    assert counts(app) == {"success": 2}
    events = {event["regarding"]["name"]: event for event in await cluster.events()}
    assert {name: event["reason"] for name, event in events.items()} == {"a": "PodLifeTime", "b": "PodLifeTime"}
    assert events["a"]["type"] == "Normal"
    assert events["a"]["action"] == "Descheduled"
    assert events["a"]["note"].startswith("evicted from n1 by main/PodLifeTime: it is ")


async def test_the_api_server_applies_budgets(cluster: LiveCluster) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    budget = await cluster.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})
    status = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    status["observedGeneration"] = budget["metadata"].get("generation", 0)
    await cluster.request("PUT", f"{path}/web/status", budget | {"status": status})
    await cluster.create_pod("a", "n1")
    await cluster.create_pod("b", "n2")
    reports: list[LoopReport] = []
    app = cluster.app(on_result=reports.append)
    await cluster.run(app)
    (left,) = await cluster.names()
    assert counts(app) == {"success": 1, "error": 1}
    (refused,) = reports[0].result.refused
    assert refused.pod.name == left
    assert refused.refusal is not None
    assert refused.refusal.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert sorted(event["reason"] for event in await cluster.events()) == ["EvictionFailed", "PodLifeTime"]


async def test_a_dry_run_evicts_nothing(cluster: LiveCluster) -> None:
    await cluster.create_pod("a", "n1")
    reports: list[LoopReport] = []
    app = cluster.app(DeschedulerOptions(dry_run=True, mode=Mode.REPORT), on_result=reports.append)
    await cluster.run(app)
    assert await cluster.names() == ["a"]
    assert await cluster.events() == []
    (prediction,) = reports[0].predictions.values()
    assert prediction.node in ("n1", "n2")


async def test_live_evictions_can_be_refused_for_where_the_pod_would_come_back(cluster: LiveCluster) -> None:
    await cluster.create_pod("movable", "n1")
    for number in range(2):
        await cluster.create_pod(f"pinned-{number}", "n1", nodeSelector={"kubernetes.io/hostname": "n1"})
    app = cluster.app(DeschedulerOptions(mode=Mode.REFUSE))
    await cluster.run(app)
    assert await cluster.names() == ["pinned-0", "pinned-1"]
    assert counts(app) == {"success": 1, "error": 2}


class SteppedClock(WallClock):
    """A clock on which the pause between two loops ends when the test says so."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.pauses: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        if self._interval / 2 < seconds <= self._interval:
            event = asyncio.Event()
            await self.pauses.put(event)
            await event.wait()
        else:
            await asyncio.Event().wait()  # nothing else is waited for within a test


async def test_loops_follow_each_other_until_cancelled(cluster: LiveCluster) -> None:
    clock = SteppedClock(300)
    app = cluster.app(DeschedulerOptions(interval=300), clock=clock)
    running = asyncio.create_task(cluster.run(app))
    first = await clock.pauses.get()
    assert counts(app) == {}
    await cluster.create_pod("a", "n1")
    first.set()
    await clock.pauses.get()
    assert counts(app) == {"success": 1}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_only_the_holder_of_the_lease_deschedules(cluster: LiveCluster) -> None:
    lease = LeaseOptions(timings=LeaseTimings(60, 40, 0.05))
    clock = SteppedClock(300)
    leader = cluster.app(DeschedulerOptions(interval=300, lease=lease), clock=clock)
    leading = asyncio.create_task(cluster.run(leader))
    await clock.pauses.get()
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/descheduler"
    assert (await cluster.request("GET", path))["spec"]["holderIdentity"]
    await cluster.create_pod("a", "n1")
    standby = cluster.app(DeschedulerOptions(lease=lease))
    waiting = asyncio.create_task(cluster.run(standby))
    leading.cancel()  # it releases the lease, which the standby then acquires
    await asyncio.gather(leading, return_exceptions=True)
    await waiting
    assert counts(leader) == {}
    assert counts(standby) == {"success": 1}


async def test_metrics_and_health_are_served(cluster: LiveCluster) -> None:
    clock, ports = SteppedClock(300), asyncio.Queue[int]()
    open_paths = DelegatingAuthorizationOptions(always_allow_paths=("/healthz", "/metrics"))
    serving = ServingOptions(address="127.0.0.1", port=0, authorization=open_paths)
    await cluster.create_pod("a", "n1")
    app = cluster.app(DeschedulerOptions(interval=300, serving=serving), clock=clock)
    running = asyncio.create_task(cluster.run(app, on_serving=ports.put_nowait))
    url = f"https://127.0.0.1:{await ports.get()}"
    await clock.pauses.get()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/metrics", ssl=context) as response:
            text = await response.text()
        async with session.get(f"{url}/healthz", ssl=context) as response:
            assert await response.text() == "ok"
    text = _sorted_labels(text)
    labels = 'namespace="default",node="n1",profile="main",result="success",strategy="PodLifeTime"'
    assert f"descheduler_pods_evicted_total{{{labels}}} 1.0" in text
    assert "descheduler_loop_duration_seconds_count 1.0" in text
    assert 'descheduler_strategy_duration_seconds_count{profile="main",strategy="PodLifeTime"} 1.0' in text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _sorted_labels(text: str) -> str:
    """An exposition with the labels of each sample in order."""
    lines = []
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        labels, closing, value = rest.partition("}")
        lines.append(f"{name}{brace}{','.join(sorted(labels.split(',')))}{closing}{value}" if brace else line)
    return "\n".join(lines)


async def test_an_unknown_priority_class_ends_the_program(cluster: LiveCluster) -> None:
    document = policy("PodLifeTime", {"states": ["Running"]}, evictor={"priorityThreshold": {"name": "gone"}})
    with pytest.raises(ConfigurationError, match='"gone" not found'):
        await cluster.run(cluster.app(document=document))


async def test_a_loop_that_is_stopped_evicts_no_further_pod(cluster: LiveCluster) -> None:
    await cluster.create_pod("a", "n1")
    async with Transport(Credentials(cluster.url), clock=WallClock()) as transport:
        listed = await cluster.request("GET", f"{PODS}/a")
        state = ClusterState(Snapshot(nodes=[convert(Node, node("n1"))], pods=[convert(Pod, listed)]), now=NOW)
        evictions = APIEvictions(transport, asyncio.get_running_loop())
        evictions.stop()
        (assigned,) = state.pods()
        with pytest.raises(LoopStopped):
            await asyncio.to_thread(evictions.evict, Eviction(assigned, "main", "PodLifeTime"))
    assert await cluster.names() == ["a"]


async def test_measured_utilization_comes_from_the_metrics_server() -> None:
    args = {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 1}, "metricsUtilization": {"metricsServer": True}}
    providers = [{"source": "KubernetesMetrics"}]
    document = policy("LowNodeUtilization", args, point="balance", metricsProviders=providers)
    for stages, problems in ((NO_STAGES, []), (None, ["node n1 has no metrics"])):
        async with set_up(stages=stages) as cluster:
            reports: list[LoopReport] = []
            await cluster.run(cluster.app(document=document, on_result=reports.append))
            found = [error.problem.partition(": ")[2].partition(";")[0] for error in reports[0].result.errors]
            assert found == problems


async def test_a_single_run_does_not_wait_for_a_server_that_is_away() -> None:
    app = DeschedulerApp(load_policy(ALL, registry=REGISTRY), REGISTRY, DeschedulerOptions())
    with pytest.raises(Unreachable):
        await app.run(kubeconfig="", master="http://127.0.0.1:1")
