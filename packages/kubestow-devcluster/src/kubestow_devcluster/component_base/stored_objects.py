"""Reading stored objects without decoding them whole: what kubelets and controllers check for every event.

A stored pod carries the values of its selectable fields; other facts are read from the encoded bytes. Owner references
are those of ``metadata.ownerReferences``.
"""

from __future__ import annotations

import msgspec

from kubestow.rules.owners import controller_reference
from kubestow.rules.pods import is_terminal
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject

# The positions of spec.nodeName and status.phase among the selectable fields of pods.
_NODE_NAME, _PHASE = 0, 5


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Metadata


def uid_of(stored: StoredObject) -> str:
    return msgspec.json.decode(stored.data, type=_Identified).metadata.uid


def is_terminating(stored: StoredObject) -> bool:
    """Whether the object has a deletionTimestamp."""
    return b'"deletionTimestamp":' in stored.data


def has_deadline(pod: StoredObject) -> bool:
    """Whether the pod has ``activeDeadlineSeconds``."""
    return b'"activeDeadlineSeconds":' in pod.data


def node_name_of(pod: StoredObject) -> str:
    """The node a pod is bound to; empty if it is not bound."""
    return pod.fields[_NODE_NAME]


def phase_of(pod: StoredObject) -> str:
    return pod.fields[_PHASE]


def is_pod_finished(pod: StoredObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return is_terminal(phase_of(pod))


class OwnerRef(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata.ownerReferences[]`` with the fields that controllers read."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class _OwnerMetadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[OwnerRef, ...] = ()


class _Dependent(msgspec.Struct, frozen=True):
    metadata: _OwnerMetadata


def owner_refs_of(stored: StoredObject) -> tuple[OwnerRef, ...]:
    # Most objects have no owner, so most need no decoding.
    if b'"ownerReferences":' not in stored.data:
        return ()
    return msgspec.json.decode(stored.data, type=_Dependent).metadata.owner_references


def controller_of(owner_refs: tuple[OwnerRef, ...]) -> OwnerRef | None:
    """The reference to the managing controller, if there is one."""
    return next((owner for owner in owner_refs if owner.controller), None)


def new_controller_ref(kind: Kind, owner: Object) -> Object:
    """An owner reference that makes ``owner`` the managing controller."""
    metadata = owner["metadata"]
    return controller_reference(kind.api_version, kind.name, name=metadata["name"], uid=metadata["uid"])


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
