"""The load of a run: pods and nodes that come and go, and what kubelets would do for them. It does not pass the proxy.

Pods are of many kinds: plain, for one zone, apart from each other, spread, with a host port, gated, preempting, and too
large for any node. They live for a while, some end by themselves. Nodes are cordoned, and replaced with their pods.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from kubestow.client.rest.transport import JSON, MERGE_PATCH, Transport
from kubestow.errors import APIError, Unreachable
from tests.fault_proxy.observation import Object, Observations

NAMESPACE = "fault-proxy"
_PODS, _NODES = f"/api/v1/namespaces/{NAMESPACE}/pods", "/api/v1/nodes"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_ZONES = ("a", "b", "c")
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_PRIORITIES = {"fault-proxy-low": 0, "fault-proxy-high": 1000}
#: Seconds that a pod lives, and that a kubelet takes to stop one, from and to.
_LIFE, _STOPPING = (20.0, 60.0), (0.2, 2.0)


class Churn:
    """Creates and deletes objects of one cluster over ``transport``."""

    def __init__(self, transport: Transport, observations: Observations, random: Random, *, nodes: int) -> None:
        self._transport, self._observations, self._random = transport, observations, random
        self._numbers = count()
        self._node_count = nodes
        self._handled: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.created = 0

    async def prepare(self) -> None:
        """Create the namespace, the priority classes and the nodes."""
        await self._create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await self._create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        for name, value in _PRIORITIES.items():
            await self._create(_CLASSES, {"metadata": {"name": name}, "value": value})
        for _ in range(self._node_count):
            await self._add_node()

    async def run(self, pods_per_second: float) -> None:
        """Create pods at this rate, and change nodes, until cancelled."""
        kubelets = asyncio.create_task(self.run_kubelets())
        try:
            while True:
                self._start(self._live())
                if self._random.random() < 0.02 / pods_per_second:
                    self._start(self._change_node())
                await asyncio.sleep(self._random.expovariate(pods_per_second))
        finally:
            kubelets.cancel()

    async def run_kubelets(self) -> None:
        """Start bound pods and stop those with a deletionTimestamp, until cancelled."""
        while True:
            for pod in list(self._observations.bound):
                uid = pod["metadata"]["uid"]
                if "deletionTimestamp" in pod["metadata"]:
                    if f"{uid} stops" not in self._handled:
                        self._handled.add(f"{uid} stops")
                        self._start(self._stop(pod))
                elif uid not in self._handled:
                    self._handled.add(uid)
                    self._start(self._run(pod))
            await asyncio.sleep(0.1)

    async def remove_everything(self) -> None:
        """Delete what the run has created."""
        for task in self._tasks:
            task.cancel()
        for pod in list(self._observations.pods.values()):
            await self._delete(_path_of(pod), gracePeriodSeconds=0)
        for name in list(self._observations.nodes):
            await self._delete(f"{_NODES}/{name}")
        for name in _PRIORITIES:
            await self._delete(f"{_CLASSES}/{name}")
        await self._delete(f"/api/v1/namespaces/{NAMESPACE}")

    # -- pods ----------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """One pod from its creation to its deletion."""
        random, number = self._random, next(self._numbers)
        kind = random.choice(_KINDS)
        metadata, spec = {"name": f"pod-{number}", "labels": {"app": f"app-{number % 7}"}}, _plain_spec(random)
        kind(metadata, spec, random)
        pod = await self._create(_PODS, {"metadata": metadata, "spec": spec})
        if pod is None:
            return
        self.created += 1
        if "schedulingGates" in spec:
            await asyncio.sleep(random.uniform(0, 5))
            await self._send("PATCH", _path_of(pod), {"spec": {"schedulingGates": None}}, MERGE_PATCH)
        await asyncio.sleep(random.uniform(*_LIFE))
        if random.random() < 0.2 and self._is_bound(pod):
            await self._send("PATCH", f"{_path_of(pod)}/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH)
            await asyncio.sleep(random.uniform(0, 5))
        await self._delete(_path_of(pod), gracePeriodSeconds=0 if random.random() < 0.5 else 1)

    def _is_bound(self, pod: Object) -> bool:
        found = self._observations.pods.get(pod["metadata"]["uid"])
        return found is not None and bool(found["spec"].get("nodeName"))

    async def _run(self, pod: Object) -> None:
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"phase": "Running", "startTime": started}
        await self._send("PATCH", f"{_path_of(pod)}/status", {"status": status}, MERGE_PATCH)

    async def _stop(self, pod: Object) -> None:
        await asyncio.sleep(self._random.uniform(*_STOPPING))
        await self._delete(_path_of(pod), gracePeriodSeconds=0)
        self._handled -= {pod["metadata"]["uid"], f"{pod['metadata']['uid']} stops"}

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def _add_node(self) -> None:
        number = next(self._numbers)
        name = f"node-{number}"
        labels = {_ZONE: _ZONES[number % len(_ZONES)], _HOST: name}
        resources = {"cpu": "4", "memory": "16Gi", "pods": "20"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node of a test"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        await self._create(_NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        # Admission may have tainted a new node until its kubelet reports.
        await self._send("PATCH", f"{_NODES}/{name}", {"spec": {"taints": None}}, MERGE_PATCH)

    async def _change_node(self) -> None:
        """Cordon a node for a while, or replace it."""
        if not self._observations.nodes:
            return
        name = self._random.choice(list(self._observations.nodes))
        if self._random.random() < 0.5:
            await self._send("PATCH", f"{_NODES}/{name}", {"spec": {"unschedulable": True}}, MERGE_PATCH)
            await asyncio.sleep(self._random.uniform(1, 20))
            await self._send("PATCH", f"{_NODES}/{name}", {"spec": {"unschedulable": None}}, MERGE_PATCH)
            return
        await self._delete(f"{_NODES}/{name}")
        await self._add_node()
        await asyncio.sleep(2)
        for pod in self._observations.bound:
            if pod["spec"]["nodeName"] == name:
                await self._delete(_path_of(pod), gracePeriodSeconds=0)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, path: str, manifest: Object) -> Object | None:
        return await self._send("POST", path, manifest)

    async def _delete(self, path: str, **options: Any) -> None:
        await self._send("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    async def _send(self, method: str, path: str, body: Object, content_type: str = JSON) -> Object | None:
        """The object in the answer; None if there is none, for example since the object is gone."""
        with suppress(APIError, Unreachable):
            answered = await self._transport.request(method, path, json.dumps(body).encode(), content_type=content_type)
            found: Object = json.loads(answered)
            return found
        return None


def _path_of(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _plain_spec(random: Random) -> Object:
    resources = {"requests": {"cpu": f"{random.choice((100, 250, 500, 1000, 1500))}m", "memory": "128Mi"}}
    container = {"name": "c", "image": "example.invalid/none", "resources": resources}
    low = {"priorityClassName": "fault-proxy-low", "priority": 0}
    return {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, **low}


def _plain(metadata: Object, spec: Object, random: Random) -> None:
    """As it is."""


def _in_zone(metadata: Object, spec: Object, random: Random) -> None:
    spec["nodeSelector"] = {_ZONE: random.choice(_ZONES)}


def _apart(metadata: Object, spec: Object, random: Random) -> None:
    selector = {"matchLabels": metadata["labels"]}
    term = {"labelSelector": selector, "topologyKey": _HOST}
    spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(metadata: Object, spec: Object, random: Random) -> None:
    selector = {"matchLabels": metadata["labels"]}
    constraint = {"maxSkew": 2, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    spec["topologySpreadConstraints"] = [constraint]


def _host_port(metadata: Object, spec: Object, random: Random) -> None:
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + random.randrange(3)}]


def _gated(metadata: Object, spec: Object, random: Random) -> None:
    spec["schedulingGates"] = [{"name": "example.invalid/wait"}]


def _preempting(metadata: Object, spec: Object, random: Random) -> None:
    spec |= {"priorityClassName": "fault-proxy-high", "priority": _PRIORITIES["fault-proxy-high"]}
    spec["containers"][0]["resources"]["requests"]["cpu"] = "2"


def _too_large(metadata: Object, spec: Object, random: Random) -> None:
    spec["containers"][0]["resources"]["requests"]["cpu"] = "64"


_Kind = Callable[[Object, Object, Random], None]
#: The kinds of pods, by how often.
_KINDS: tuple[_Kind, ...] = (
    *(_plain,) * 6,
    *(_in_zone, _apart, _spread, _host_port, _gated, _preempting) * 2,
    _too_large,
)
