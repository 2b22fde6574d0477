"""Simulated nodes: they run what is bound to them.

Every Node object is taken to have a kubelet. It reports its node Ready, starts a pod shortly after it was bound, ends
it after the duration its annotation gives, and lets it go when it is deleted. All of it is one task that reads the
history of nodes and pods from the store as any watcher would and writes through the registry, in process.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import re
from collections.abc import Callable

from kubestow.apiserver import statuses
from kubestow.apiserver.registry import Deletion, Registry
from kubestow.apiserver.resources import Kind, Object
from kubestow.apiserver.resources.nodes import NOT_READY
from kubestow.apiserver.resources.pods import set_condition
from kubestow.apiserver.storage import Cursor, Expired, Stored

__all__ = ["DURATION", "Kubelets", "parse_duration"]

#: Annotation: how long a pod runs before it succeeds, as a Go duration (``30s``, ``1h30m``).
DURATION = "kubestow.dev/duration"
#: Annotation: how long its containers take to stop when it is deleted; never longer than the grace period.
SHUTDOWN = "kubestow.dev/shutdown"

#: Seconds between the bind and Running: a small image, already on the node.
START = 0.2
#: Seconds containers take to stop unless the annotation says otherwise.
STOP = 0.2
#: Deeds done in one turn of the event loop, so that requests are served in between.
TURN = 100

_log = logging.getLogger(__name__)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NODE_INFO = {
    "kernelVersion": "6.12.0",
    "osImage": "kubestow simulated node",
    "containerRuntimeVersion": "kubestow://1.0.0",
    "kubeletVersion": "v1.36.2",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def parse_duration(text: str) -> float | None:
    """Seconds of a Go duration, None when it is none."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


class Kubelets:
    """All simulated kubelets of a cluster. Time is the running event loop's."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._nodes: Kind = registry.catalog["nodes"]
        self._pods: Kind = registry.catalog["pods"]
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        #: Pods waiting for a deed, by key: their uid and the deed, so that nothing is done twice.
        self._planned: dict[str, tuple[str, str]] = {}
        self._addresses = itertools.count(1)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._follow()
            except Expired:
                # More happened in one turn than the history holds; begin again from what is there.
                _log.warning("simulated nodes fell behind and start over from the current state")

    async def _follow(self) -> None:
        store = self._registry.store
        nodes, pods = store.collection("nodes"), store.collection("pods")
        node_cursor, pod_cursor = nodes.cursor(store.version), pods.cursor(store.version)
        for stored in nodes.snapshot():
            self._observe_node(stored)
        for stored in pods.snapshot():
            self._observe_pod(stored)
        while True:
            for event in node_cursor.take():
                if event.type != "DELETED":
                    self._observe_node(event.object)
                if event.type == "ADDED":
                    self._observe_pods_of(event.object.name)
            for event in pod_cursor.take():
                if event.type == "DELETED":
                    self._planned.pop(event.object.key, None)
                else:
                    self._observe_pod(event.object)
            self._act()
            await self._wait(node_cursor, pod_cursor)

    async def _wait(self, node_cursor: Cursor, pod_cursor: Cursor) -> None:
        """Return when something has changed or falls due."""
        loop = asyncio.get_running_loop()
        if node_cursor.has_more or pod_cursor.has_more or (self._due and self._due[0][0] <= loop.time()):
            await asyncio.sleep(0)
            return
        changed = self._changed
        changed.clear()
        for resource in ("nodes", "pods"):
            self._registry.store.collection(resource).wake(changed.set)
        timer = loop.call_at(self._due[0][0], changed.set) if self._due else None
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _later(self, delay: float, deed: Callable[[], None]) -> None:
        when = asyncio.get_running_loop().time() + delay
        heapq.heappush(self._due, (when, next(self._order), deed))

    def _act(self) -> None:
        now = asyncio.get_running_loop().time()
        for _ in range(TURN):
            if not self._due or self._due[0][0] > now:
                return
            deed = heapq.heappop(self._due)[2]
            try:
                deed()
            except statuses.Failure as failure:
                if failure.code not in (404, 409):
                    _log.warning("a simulated node was refused: %s", failure.message)

    # Nodes

    def _observe_node(self, stored: Stored) -> None:
        node = self._nodes.decode(stored)
        changed = self._report_ready(node)
        changed = _settle_taints(node) or changed
        if changed:
            self._registry.commit(self._nodes, node)

    def _report_ready(self, node: Object) -> bool:
        status = node["status"]
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        if "Ready" in conditions:
            return False
        now = self._registry.now()
        made = [
            {
                "type": type_,
                "status": "False",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for type_, reason, message in _PRESSURES
            if type_ not in conditions
        ]
        made.append(
            {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }
        )
        status["conditions"] = [*conditions.values(), *made]
        if not status.get("addresses"):
            name = node["metadata"]["name"]
            address = _address(172, 16, next(self._addresses))
            status["addresses"] = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        info = status.get("nodeInfo") or {}
        status["nodeInfo"] = info | {field: info.get(field) or value for field, value in _NODE_INFO.items()}
        return True

    def _observe_pods_of(self, node: str) -> None:
        """A node has come: whatever is bound to it already starts now."""
        for stored in self._registry.store.collection("pods").snapshot():
            if stored.fields[0] == node:
                self._observe_pod(stored)

    # Pods

    def _observe_pod(self, stored: Stored) -> None:
        node = stored.fields[0]
        if not node or self._registry.store.collection("nodes").get(node) is None:
            return
        phase = stored.fields[5]
        if b'"deletionTimestamp":' in stored.data:
            self._plan(stored, "stop")
        elif phase == "Pending":
            self._plan(stored, "start")
        elif phase == "Running" and b'"' + DURATION.encode() + b'"' in stored.data:
            self._plan(stored, "finish")

    def _plan(self, stored: Stored, deed: str) -> None:
        planned = self._planned.get(stored.key)
        pod = self._pods.decode(stored)
        uid = pod["metadata"]["uid"]
        if planned == (uid, deed):
            return
        delay = self._delay(pod, deed)
        if delay is None:
            return
        self._planned[stored.key] = (uid, deed)
        deeds = {"start": self._start, "finish": self._finish, "stop": self._stop}
        self._later(delay, lambda: self._do(stored.key, uid, deed, deeds[deed]))

    def _delay(self, pod: Object, deed: str) -> float | None:
        annotations = pod["metadata"].get("annotations") or {}
        if deed == "start":
            return START
        if deed == "finish":
            return parse_duration(annotations.get(DURATION, ""))
        if "deletionTimestamp" not in pod["metadata"]:
            return None
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 0))
        asked = parse_duration(annotations.get(SHUTDOWN, ""))
        return min(grace, STOP if asked is None else asked)

    def _do(self, key: str, uid: str, deed: str, act: Callable[[Stored, Object], None]) -> None:
        if self._planned.get(key) != (uid, deed):
            return
        del self._planned[key]
        stored = self._registry.store.collection("pods").get(key)
        if stored is None:
            return
        pod = self._pods.decode(stored)
        if pod["metadata"]["uid"] == uid:
            act(stored, pod)

    def _start(self, stored: Stored, pod: Object) -> None:
        if pod["status"].get("phase") != "Pending" or "deletionTimestamp" in pod["metadata"]:
            return
        now = self._registry.now()
        status = pod["status"]
        status["phase"] = "Running"
        for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"):
            set_condition(status, {"type": type_, "status": "True"}, now)
        host = self._host_address(pod["spec"]["nodeName"])
        status["hostIP"], status["hostIPs"] = host, [{"ip": host}]
        address = host if pod["spec"].get("hostNetwork") else _address(10, 128, next(self._addresses))
        status["podIP"], status["podIPs"] = address, [{"ip": address}]
        status["startTime"] = now
        status["containerStatuses"] = [
            _container_status(container, {"running": {"startedAt": now}}, running=True)
            for container in pod["spec"]["containers"]
        ]
        self._registry.commit(self._pods, pod)

    def _host_address(self, node_name: str) -> str:
        stored = self._registry.store.collection("nodes").get(node_name)
        addresses = self._nodes.decode(stored)["status"].get("addresses") if stored is not None else None
        found = [one["address"] for one in addresses or () if one.get("type") == "InternalIP"]
        return found[0] if found else "127.0.0.1"

    def _finish(self, stored: Stored, pod: Object) -> None:
        status = pod["status"]
        if status.get("phase") != "Running":
            return
        now = self._registry.now()
        status["phase"] = "Succeeded"
        for type_ in ("Initialized", "Ready", "ContainersReady"):
            done = "True" if type_ == "Initialized" else "False"
            set_condition(status, {"type": type_, "status": done, "reason": "PodCompleted"}, now)
        began = status.get("startTime", now)
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now}}
        status["containerStatuses"] = [
            _container_status(container, ended, running=False) for container in pod["spec"]["containers"]
        ]
        self._registry.commit(self._pods, pod)

    def _stop(self, stored: Stored, pod: Object) -> None:
        deletion = Deletion(grace_period=0, uid=pod["metadata"]["uid"])
        self._registry.delete(self._pods, stored.namespace, stored.name, deletion)


def _settle_taints(node: Object) -> bool:
    """What the node lifecycle controller does: a ready node loses the not-ready taint, a cordoned one is tainted."""
    spec = node["spec"]
    taints: list[Object] = spec.get("taints") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ())
    kept = [taint for taint in taints if not (ready and taint.get("key") == NOT_READY["key"])]
    kept = [taint for taint in kept if taint.get("key") != _UNSCHEDULABLE["key"]]
    if spec.get("unschedulable"):
        marked = [taint for taint in taints if taint.get("key") == _UNSCHEDULABLE["key"]]
        kept += marked or [dict(_UNSCHEDULABLE)]
    if kept == taints:
        return False
    if kept:
        spec["taints"] = kept
    else:
        del spec["taints"]
    return True


def _container_status(container: Object, state: Object, *, running: bool) -> Object:
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": running,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
        "started": running,
    }


def _address(first: int, second: int, number: int) -> str:
    """The ``number``-th address of first.second.0.0 and what follows it."""
    return f"{first}.{second + ((number >> 16) & 127)}.{(number >> 8) & 255}.{number & 255}"
