"""What kubelets and the node lifecycle controller agree on: the timing of heartbeats, and the taints of conditions.

Each node has a Lease in :data:`LEASE_NAMESPACE`. The defaults are those of kubelet and kube-controller-manager. A node
that is not ready or unreachable gets NoSchedule and NoExecute taints; resource pressure and cordons get NoSchedule
only. Taints with other keys are left alone.
"""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema.types import Object

# The positions of spec.nodeName and status.phase among the selectable fields of pods.

LEASE_NAMESPACE = "kube-node-lease"
#: Seconds between two renewals of a node's lease.
RENEW_INTERVAL = 10.0
#: ``spec.leaseDurationSeconds`` of a node's lease.
LEASE_DURATION = 40
#: Seconds without a heartbeat after which a node's conditions become Unknown (``--node-monitor-grace-period``).
NODE_MONITOR_GRACE_PERIOD = 50.0


_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: The taint key by the type of the condition that is True.
_PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
#: The taint key by the status of the Ready condition.
_READY_TAINTS = {"False": _NOT_READY, "Unknown": _UNREACHABLE}
_MANAGED_KEYS = {_NOT_READY, _UNREACHABLE, _UNSCHEDULABLE, *_PRESSURE_TAINTS.values()}


def reconcile_taints(node: Object, now: str) -> bool:
    """Add missing and remove stale taints in place. Returns whether anything changed.

    A node without a Ready condition keeps its taints: its kubelet has not reported yet.
    """
    spec = node["spec"]
    taints: list[Object] = spec.get("taints") or []
    expected = _expected_taints(node)
    if expected is None:
        return False
    kept = [
        taint
        for taint in taints
        if taint.get("key") not in _MANAGED_KEYS or (taint["key"], taint.get("effect")) in expected
    ]
    present = {(taint.get("key"), taint.get("effect")) for taint in kept}
    missing = [
        {"key": key, "effect": effect, "timeAdded": now} for key, effect in expected if (key, effect) not in present
    ]
    if not missing and len(kept) == len(taints):
        return False
    spec["taints"] = kept + missing
    if not spec["taints"]:
        del spec["taints"]
    return True


def _expected_taints(node: Object) -> list[tuple[str, str]] | None:
    """The (key, effect) pairs of the managed taints; None without a Ready condition."""
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions") or ()}
    if "Ready" not in conditions:
        return None
    expected = []
    if (key := _READY_TAINTS.get(conditions["Ready"])) is not None:
        expected += [(key, "NoSchedule"), (key, "NoExecute")]
    expected += [(key, "NoSchedule") for type_, key in _PRESSURE_TAINTS.items() if conditions.get(type_) == "True"]
    if node["spec"].get("unschedulable"):
        expected.append((_UNSCHEDULABLE, "NoSchedule"))
    return expected
