"""Taints that follow from what a node's conditions and spec say; the rule that kubelets and controllers share.

A node that is not ready or not heard of takes no new pods (NoSchedule) and loses those it has (NoExecute); pressures
and cordons only keep new pods away. Taints of other keys are nobody's business here.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver.resources import Object

__all__ = ["NOT_READY", "UNREACHABLE", "settle_taints"]

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: Condition that has become True -> the key of its taint.
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_READINESS = {"False": NOT_READY, "Unknown": UNREACHABLE}
_OURS = {NOT_READY, UNREACHABLE, _UNSCHEDULABLE, *_PRESSURES.values()}


def settle_taints(node: Object, now: str) -> bool:
    """Put the taints on a node that it should have and take off those it should not; whether anything changed."""
    spec = node["spec"]
    taints: list[Object] = spec.get("taints") or []
    wanted = _wanted(node)
    if wanted is None:
        return False
    kept = [one for one in taints if one.get("key") not in _OURS or (one["key"], one.get("effect")) in wanted]
    have = {(one.get("key"), one.get("effect")) for one in kept}
    missing = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in wanted if (key, effect) not in have]
    if not missing and len(kept) == len(taints):
        return False
    spec["taints"] = kept + missing
    if not spec["taints"]:
        del spec["taints"]
    return True


def _wanted(node: Object) -> list[tuple[str, str]] | None:
    """(key, effect) of every taint that the node should have of ours; None while its kubelet has not reported."""
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
    if "Ready" not in conditions:
        return None
    wanted = []
    if (key := _READINESS.get(conditions["Ready"])) is not None:
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    wanted += [(key, "NoSchedule") for type_, key in _PRESSURES.items() if conditions.get(type_) == "True"]
    if node["spec"].get("unschedulable"):
        wanted.append((_UNSCHEDULABLE, "NoSchedule"))
    return wanted
