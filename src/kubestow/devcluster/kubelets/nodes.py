"""What a kubelet says of its node: that it is ready, where it is, and that it still lives; unless it was made silent.

The annotation ``kubestow.dev/kubelet`` of a Node is the switch. ``stopped``: no word from it any more, nothing of its
pods either, until the annotation goes. ``shutdown``: the node says it is shutting down, its pods are ended, and then
it is silent as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.kubelets.addresses import NodeAddresses
from kubestow.devcluster.kubelets.behaviour import KUBELET, SHUT_DOWN, STOPPED
from kubestow.devcluster.kubelets.heartbeats import INTERVAL, Heartbeats
from kubestow.devcluster.kubelets.timers import Timetable
from kubestow.devcluster.node_taints import settle_taints

__all__ = ["Nodes", "State"]

State = Literal["running", "shutdown", "stopped", "absent"]

#: Heartbeats between two reports of a status in which nothing changed: five minutes of them.
_REPORT_EVERY = 30

_NODE_INFO = {
    "kernelVersion": "6.12.0",
    "osImage": "kubestow simulated node",
    "containerRuntimeVersion": "kubestow://1.0.0",
    "kubeletVersion": "v1.36.2",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
_READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
_SHUTTING_DOWN = ("Ready", "False", "KubeletNotReady", "node is shutting down")
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    _READY,
)


class Nodes:
    """All nodes' kubelets, as far as the nodes themselves are concerned.

    ``changed`` is called with a node's name when its kubelet has begun to run, come back, or begun to shut down, and
    when the node has become ready for another reason.
    """

    def __init__(
        self,
        registry: Registry,
        timetable: Timetable,
        changed: Callable[[str], None],
        *,
        heartbeat_interval: float = INTERVAL,
    ) -> None:
        self._registry = registry
        self._kind: Kind = registry.catalog["nodes"]
        self._collection = registry.store.collection("nodes")
        self._changed = changed
        self._states: dict[str, State] = {}
        self._ready: dict[str, bool] = {}
        self._beats: dict[str, int] = {}
        self._addresses = NodeAddresses()
        self._heartbeats = Heartbeats(registry, timetable, self._beat, interval=heartbeat_interval)

    def state(self, node: str) -> State:
        return self._states.get(node, "absent")

    def note_addresses(self, stored: Stored) -> None:
        """Take note of what a node has, before others are given theirs."""
        node = self._kind.decode(stored)
        for address in node["status"].get("addresses") or ():
            self._addresses.note(address["address"])
        if node["spec"].get("podCIDR"):
            self._addresses.note(node["spec"]["podCIDR"])

    def observe(self, stored: Stored) -> None:
        """A node is there, or has changed."""
        node = self._kind.decode(stored)
        name, before, after = stored.name, self.state(stored.name), _state_of(node)
        self._states[name] = after
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in _conditions_of(node))
        if after == "running":
            self._report(node)
            self._heartbeats.begin(name, node["metadata"]["uid"])
            self._beats.setdefault(name, len(self._beats) % _REPORT_EVERY)
        else:
            if after == "shutdown":
                self._say_shutting_down(node)
            self._heartbeats.end(name)
        was_ready, self._ready[name] = self._ready.get(name, False), is_ready
        if after != "stopped" and (before != after or is_ready > was_ready):
            self._changed(name)

    def forget(self, name: str) -> None:
        """A node is gone."""
        self._states.pop(name, None)
        self._ready.pop(name, None)
        self._beats.pop(name, None)
        self._heartbeats.end(name)

    def network(self, name: str) -> tuple[str, str]:
        """The node's own address, and the range of its pods' addresses (empty: none)."""
        stored = self._collection.get(name)
        if stored is None:
            return "127.0.0.1", ""
        node = self._kind.decode(stored)
        addresses = [one["address"] for one in node["status"].get("addresses") or () if one["type"] == "InternalIP"]
        return (addresses or ["127.0.0.1"])[0], node["spec"].get("podCIDR", "")

    def _report(self, node: Object) -> None:
        """Write what a running kubelet says where it is not written yet."""
        now = self._registry.now()
        known = any(one["type"] == "Ready" for one in _conditions_of(node))
        changed = _report_health(node["status"], now)
        if not known:
            self._register(node)
        if settle_taints(node, now) or changed:
            self._registry.commit(self._kind, node)

    def _register(self, node: Object) -> None:
        """The first report: where the node is, and what it is made of."""
        name, spec, status = node["metadata"]["name"], node["spec"], node["status"]
        if not status.get("addresses"):
            address = self._addresses.address()
            status["addresses"] = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        info = status.get("nodeInfo") or {}
        status["nodeInfo"] = info | {field: info.get(field) or value for field, value in _NODE_INFO.items()}
        if not spec.get("podCIDR") and (pod_range := self._addresses.pod_range()) is not None:
            spec["podCIDR"], spec["podCIDRs"] = pod_range, [pod_range]

    def _say_shutting_down(self, node: Object) -> None:
        now = self._registry.now()
        conditions = _conditions_of(node)
        others = [one for one in conditions if one["type"] != "Ready"]
        ready = next((one for one in conditions if one["type"] == "Ready"), {})
        if ready.get("status") != "True":
            return
        node["status"]["conditions"] = [*others, _condition(_SHUTTING_DOWN, now)]
        settle_taints(node, now)
        self._registry.commit(self._kind, node)

    def _beat(self, name: str) -> None:
        """Count heartbeats; every so many of them the status is reported though nothing in it changed."""
        self._beats[name] = beats = self._beats.get(name, 0) + 1
        stored = self._collection.get(name)
        if beats % _REPORT_EVERY or stored is None:
            return
        node, now = self._kind.decode(stored), self._registry.now()
        reported = {one[0] for one in _HEALTHY}
        for condition in _conditions_of(node):
            if condition["type"] in reported:
                condition["lastHeartbeatTime"] = now
        self._registry.commit(self._kind, node)


def _state_of(node: Object) -> State:
    said = (node["metadata"].get("annotations") or {}).get(KUBELET, "")
    if said == STOPPED:
        return "stopped"
    return "shutdown" if said == SHUT_DOWN else "running"


def _conditions_of(node: Object) -> list[Object]:
    return node["status"].get("conditions") or []


def _report_health(status: Object, now: str) -> bool:
    """Report each condition that nobody has reported, or that others gave up on; whether there was any."""
    conditions: list[Object] = status.get("conditions") or []
    index = {one["type"]: place for place, one in enumerate(conditions)}
    made = list(conditions)
    for healthy in _HEALTHY:
        place = index.get(healthy[0])
        if place is None:
            made.append(_condition(healthy, now))
        elif _is_outdated(conditions[place]):
            made[place] = _condition(healthy, now)
    if made == conditions:
        return False
    status["conditions"] = made
    return True


def _is_outdated(condition: Object) -> bool:
    """Conditions that others set stand, to try things on; those that told of this kubelet's absence do not."""
    return condition["status"] == "Unknown" or condition.get("message") == _SHUTTING_DOWN[3]


def _condition(said: tuple[str, str, str, str], now: str) -> Object:
    type_, status, reason, message = said
    return {
        "type": type_,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
