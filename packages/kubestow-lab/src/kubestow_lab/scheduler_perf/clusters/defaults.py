"""The defaults of an API server that decisions depend on, for objects that no API server sees."""

from __future__ import annotations

from kubestow_lab.scheduler_perf.workload_files.object_templates import Object

__all__ = ["set_claim_defaults", "set_node_defaults", "set_pod_defaults"]


def set_node_defaults(node: Object) -> None:
    """``allocatable`` is ``capacity`` unless it is set."""
    status = node.setdefault("status", {})
    status.setdefault("allocatable", status.get("capacity", {}))


def set_pod_defaults(pod: Object, priority: int) -> None:
    """The scheduler's name, the priority of the pod's class, requests from limits, and the condition of gated pods."""
    spec = pod["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    spec["priority"] = priority
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        resources = container.get("resources") or {}
        if resources.get("limits"):
            container["resources"] = resources | {"requests": resources["limits"] | resources.get("requests", {})}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        pod["status"] = {"conditions": [gated]}


def set_claim_defaults(claim: Object) -> None:
    """A request is for exactly one device unless it says otherwise."""
    for request in claim["spec"].get("devices", {}).get("requests", ()):
        for device in (request.get("exactly"), *request.get("firstAvailable", ())):
            if device is not None and device.setdefault("allocationMode", "ExactCount") == "ExactCount":
                device.setdefault("count", 1)
