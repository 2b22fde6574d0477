"""The status of simulated nodes: conditions, addresses, node info, and the state of each kubelet.

The annotation ``kubestow.dev/kubelet`` of a Node sets the state. ``stopped``: no heartbeats and no pod status updates
until the annotation is removed. ``shutdown``: a graceful node shutdown; the node becomes not ready, its pods are
terminated, and heartbeats stop.

Heartbeats are a Lease per node in kube-node-lease, renewed while the node's kubelet runs.
Nodes are spread over :data:`_SLOTS` slots, and each tick renews the nodes of one slot, so the cost is even over time:
about ten microseconds per node and interval.

Nothing listens on the addresses. Node IPs are from 172.16.0.0/12. Each node gets a /24 of 10.128.0.0/9 as pod CIDR
unless its spec has one. When a pod CIDR is exhausted, or there are more nodes than CIDRs, pod IPs are from
10.64.0.0/10.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from ipaddress import IPv4Address, ip_network
from typing import Literal

from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.behaviour.pod_behaviour import KUBELET, SHUT_DOWN, STOPPED
from kubestow_devcluster.component_base.node_health import (
    LEASE_DURATION,
    LEASE_NAMESPACE,
    RENEW_INTERVAL,
    reconcile_taints,
)
from kubestow_devcluster.component_base.watch_loop import Timers

#: Slots per renewal interval.
_SLOTS = 10

_log = logging.getLogger(__name__)


class NodeLeases:
    """Renews each node's lease every ``renew_interval`` seconds; calls ``on_heartbeat`` with the node's name before."""

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        on_heartbeat: Callable[[str], None],
        *,
        renew_interval: float = RENEW_INTERVAL,
    ) -> None:
        self._registry, self._timers, self._on_heartbeat = registry, timers, on_heartbeat
        self._kind: Kind = registry.scheme["leases.coordination.k8s.io"]
        self._collection = registry.store.collection(self._kind.storage)
        self._tick_interval = renew_interval / _SLOTS
        #: Per slot, the uid of each node by its name.
        self._slots: list[dict[str, str]] = [{} for _ in range(_SLOTS)]
        self._slot_of: dict[str, int] = {}
        self._sequence = itertools.count()
        self._is_ticking = False

    def start(self, node: str, uid: str) -> None:
        """Renew the node's lease now and from now on; does nothing if it is renewed already."""
        slot = self._slot_of.setdefault(node, next(self._sequence) % _SLOTS)
        if self._slots[slot].get(node) == uid:
            return
        self._slots[slot][node] = uid
        self._renew(node, uid, micro_timestamp(self._registry.clock()))
        if not self._is_ticking:
            self._is_ticking = True
            self._timers.call_later(self._tick_interval, lambda: self._tick(0))

    def stop(self, node: str) -> None:
        """Stop renewing the node's lease."""
        slot = self._slot_of.pop(node, None)
        if slot is not None:
            self._slots[slot].pop(node, None)

    def _tick(self, slot: int) -> None:
        if not self._slot_of:
            self._is_ticking = False
            return
        self._timers.call_later(self._tick_interval, lambda: self._tick((slot + 1) % _SLOTS))
        now = micro_timestamp(self._registry.clock())
        for node, uid in list(self._slots[slot].items()):
            self._on_heartbeat(node)
            self._renew(node, uid, now)

    def _renew(self, node: str, uid: str, now: str) -> None:
        stored = self._collection.get(f"{LEASE_NAMESPACE}/{node}")
        if stored is not None:
            lease = self._kind.decode(stored)
            lease["spec"] = lease["spec"] | {"holderIdentity": node, "renewTime": now}
            self._registry.commit(self._kind, lease)
            return
        owner_reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        new: Object = {
            "metadata": {"name": node, "ownerReferences": [owner_reference]},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_DURATION, "renewTime": now},
        }
        try:
            self._registry.create(self._kind, LEASE_NAMESPACE, new)
        except statuses.StatusError as failure:
            # The namespace may be deleted. The next renewal tries again, and the other nodes are not affected.
            extra = fields(node=node, err=failure.message)
            _log.info("lease of node %s not created: %s", node, failure.message, extra=extra)


#: ``absent``: there is no Node object.
KubeletState = Literal["running", "shutdown", "stopped", "absent"]

#: Lease renewals between two reports of an unchanged status: five minutes at the default interval.
_REPORT_EVERY = 30

_NODE_INFO = {
    "kernelVersion": "6.12.0",
    "osImage": "kubestow simulated node",
    "containerRuntimeVersion": "kubestow://1.0.0",
    "operatingSystem": "linux",
    "architecture": "amd64",
}

#: Conditions as (type, status, reason, message).
_READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
_SHUTTING_DOWN = ("Ready", "False", "KubeletNotReady", "node is shutting down")
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    _READY,
)


class NodeStatusManager:
    """Reports the status of every node and tracks the state of its kubelet.

    Calls ``sync_pods`` with a node's name when its kubelet starts to run or to shut down, and when the node becomes
    ready. ``lease_renew_interval`` is in seconds.
    """

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        sync_pods: Callable[[str], None],
        *,
        lease_renew_interval: float = RENEW_INTERVAL,
    ) -> None:
        self._registry = registry
        self._kind: Kind = registry.scheme["nodes"]
        self._collection = registry.store.collection("nodes")
        self._sync_pods = sync_pods
        self._node_info = _NODE_INFO | {"kubeletVersion": registry.scheme.minor.release}
        self._states: dict[str, KubeletState] = {}
        self._is_ready: dict[str, bool] = {}
        self._heartbeats: dict[str, int] = {}
        self._addresses = NodeAddressAllocator()
        self._leases = NodeLeases(registry, timers, self._on_heartbeat, renew_interval=lease_renew_interval)

    def state(self, node: str) -> KubeletState:
        return self._states.get(node, "absent")

    def reserve_addresses(self, stored: StoredObject) -> None:
        """Reserve the addresses that a node already has; to be called for all nodes before :meth:`sync`."""
        node = self._kind.decode(stored)
        for address in node["status"].get("addresses") or ():
            self._addresses.reserve(address["address"])
        if node["spec"].get("podCIDR"):
            self._addresses.reserve(node["spec"]["podCIDR"])

    def sync(self, stored: StoredObject) -> None:
        """Handle a node that was added or updated."""
        node = self._kind.decode(stored)
        name, before, after = stored.name, self.state(stored.name), _desired_state(node)
        self._states[name] = after
        is_ready = (get_condition(node["status"], "Ready") or {}).get("status") == "True"
        if after == "running":
            self._update_status(node)
            self._leases.start(name, node["metadata"]["uid"])
            self._heartbeats.setdefault(name, len(self._heartbeats) % _REPORT_EVERY)
        else:
            if after == "shutdown":
                self._set_shutting_down(node)
            self._leases.stop(name)
        was_ready, self._is_ready[name] = self._is_ready.get(name, False), is_ready
        if after != "stopped" and (before != after or is_ready > was_ready):
            self._sync_pods(name)

    def remove(self, name: str) -> None:
        """Drop the state of a deleted node."""
        self._states.pop(name, None)
        self._is_ready.pop(name, None)
        self._heartbeats.pop(name, None)
        self._leases.stop(name)

    def network(self, name: str) -> tuple[str, str]:
        """The node's internal IP and its pod CIDR, which may be empty."""
        stored = self._collection.get(name)
        if stored is None:
            return "127.0.0.1", ""
        node = self._kind.decode(stored)
        ips = [
            address["address"] for address in node["status"].get("addresses") or () if address["type"] == "InternalIP"
        ]
        return (ips or ["127.0.0.1"])[0], node["spec"].get("podCIDR", "")

    def _update_status(self, node: Object) -> None:
        """Write the status of a running kubelet where it differs."""
        now = self._registry.now()
        is_registered = get_condition(node["status"], "Ready") is not None
        changed = _set_healthy_conditions(node["status"], now)
        if not is_registered:
            # Fill in addresses, node info and pod CIDR at the first status report.
            name, spec, status = node["metadata"]["name"], node["spec"], node["status"]
            if not status.get("addresses"):
                ip = self._addresses.allocate_ip()
                status["addresses"] = [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}]
            info = status.get("nodeInfo") or {}
            status["nodeInfo"] = info | {field: info.get(field) or value for field, value in self._node_info.items()}
            if not spec.get("podCIDR") and (pod_cidr := self._addresses.allocate_pod_cidr()) is not None:
                spec["podCIDR"], spec["podCIDRs"] = pod_cidr, [pod_cidr]
        if reconcile_taints(node, now) or changed:
            self._registry.commit(self._kind, node)

    def _set_shutting_down(self, node: Object) -> None:
        now, ready = self._registry.now(), get_condition(node["status"], "Ready")
        if ready is None or ready["status"] != "True":
            return
        others = [condition for condition in _conditions_of(node) if condition is not ready]
        node["status"]["conditions"] = [*others, _condition(_SHUTTING_DOWN, now)]
        reconcile_taints(node, now)
        self._registry.commit(self._kind, node)

    def _on_heartbeat(self, name: str) -> None:
        """Report the unchanged status at every :data:`_REPORT_EVERY`-th lease renewal."""
        self._heartbeats[name] = heartbeats = self._heartbeats.get(name, 0) + 1
        stored = self._collection.get(name)
        if heartbeats % _REPORT_EVERY or stored is None:
            return
        node, now = self._kind.decode(stored), self._registry.now()
        reported = {type_ for type_, *_ in _HEALTHY}
        for condition in _conditions_of(node):
            if condition["type"] in reported:
                condition["lastHeartbeatTime"] = now
        self._registry.commit(self._kind, node)


def _desired_state(node: Object) -> KubeletState:
    annotation = (node["metadata"].get("annotations") or {}).get(KUBELET, "")
    if annotation == STOPPED:
        return "stopped"
    return "shutdown" if annotation == SHUT_DOWN else "running"


def _conditions_of(node: Object) -> list[Object]:
    return node["status"].get("conditions") or []


def _set_healthy_conditions(status: Object, now: str) -> bool:
    """Replace missing and stale conditions in place. Returns whether there were any."""
    conditions: list[Object] = status.get("conditions") or []
    index = {condition["type"]: position for position, condition in enumerate(conditions)}
    updated = list(conditions)
    for healthy in _HEALTHY:
        position = index.get(healthy[0])
        if position is None:
            updated.append(_condition(healthy, now))
        elif _is_stale(conditions[position]):
            updated[position] = _condition(healthy, now)
    if updated == conditions:
        return False
    status["conditions"] = updated
    return True


def _is_stale(condition: Object) -> bool:
    """Whether the condition dates from while the kubelet was stopped or shut down.

    Other conditions stay: a user may have set them, for example to try memory pressure.
    """
    return condition["status"] == "Unknown" or condition.get("message") == _SHUTTING_DOWN[3]


def _condition(fields: tuple[str, str, str, str], now: str) -> Object:
    type_, status, reason, message = fields
    return {
        "type": type_,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


_NODE_NETWORK = int(IPv4Address("172.16.0.0"))
_POD_NETWORK = int(IPv4Address("10.128.0.0"))
_OVERFLOW_NETWORK = int(IPv4Address("10.64.0.0"))
#: The number of /24 pod CIDRs in the pod network.
_MAX_POD_CIDRS = 1 << 15
#: IPs used of one pod CIDR at most, as many as in a /16.
_MAX_PODS_PER_CIDR = 1 << 16


class NodeAddressAllocator:
    """Allocates node IPs and pod CIDRs. Addresses in use must be reserved before the first allocation."""

    def __init__(self) -> None:
        self._ip_numbers = itertools.count(1)
        self._cidr_numbers = itertools.count()
        self._in_use: set[str] = set()

    def reserve(self, address: str) -> None:
        """Mark an IP or a pod CIDR as in use."""
        self._in_use.add(address)

    def allocate_ip(self) -> str:
        while (ip := _dotted(_NODE_NETWORK + next(self._ip_numbers))) in self._in_use:
            pass
        return ip

    def allocate_pod_cidr(self) -> str | None:
        """A /24, or None when all are in use."""
        for number in self._cidr_numbers:
            cidr = f"{_dotted(_POD_NETWORK + number * 256)}/24"
            if number >= _MAX_POD_CIDRS:
                return None
            if cidr not in self._in_use:
                return cidr
        return None


class PodIPAllocator:
    """Allocates pod IPs. Pods are identified by key, ``namespace/name``."""

    def __init__(self) -> None:
        self._ip_of: dict[str, str] = {}
        self._in_use: set[str] = set()
        self._cidrs: dict[str, _PodCIDR] = {}
        self._overflow_numbers = itertools.count(1)

    def reserve(self, pod: str, ip: str) -> None:
        """Mark ``ip`` as in use by ``pod``, in place of the IP it had."""
        if self._ip_of.get(pod) != ip:
            self.release(pod)
            self._ip_of[pod] = ip
            self._in_use.add(ip)

    def release(self, pod: str) -> None:
        """Free the IP of a pod that finished or was deleted, if it has one."""
        self._in_use.discard(self._ip_of.pop(pod, ""))

    def allocate(self, pod: str, pod_cidr: str) -> str:
        """An IP from the node's ``pod_cidr``, or from the overflow network if the CIDR is empty or exhausted."""
        if pod_cidr and pod_cidr not in self._cidrs:
            self._cidrs[pod_cidr] = _PodCIDR(pod_cidr)
        ip = self._cidrs[pod_cidr].next_free(self._in_use) if pod_cidr else ""
        while not ip or ip in self._in_use:
            ip = _dotted(_OVERFLOW_NETWORK + next(self._overflow_numbers))
        self.reserve(pod, ip)
        return ip


class _PodCIDR:
    """Allocates round-robin, so that a released IP is not reused at once."""

    def __init__(self, pod_cidr: str) -> None:
        try:
            network = ip_network(pod_cidr, strict=False)
        except ValueError:
            self._first = self._size = self._next = 0
            return
        # Without the network address and the broadcast address.
        self._first = int(network.network_address) + 1
        self._size = min(network.num_addresses - 2, _MAX_PODS_PER_CIDR)
        self._address_type = type(network.network_address)
        self._next = 0

    def next_free(self, in_use: set[str]) -> str:
        """The next IP that is not in use; empty if there is none."""
        for _ in range(self._size):
            ip = str(self._address_type(self._first + self._next))
            self._next = (self._next + 1) % self._size
            if ip not in in_use:
                return ip
        return ""


def _dotted(number: int) -> str:
    return f"{number >> 24}.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"
