"""Generating a pod's conditions from its phase and container statuses.

The conditions are Initialized, Ready, ContainersReady and PodScheduled; reasons and messages are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.apiserver.resources.pod_conditions import update_pod_condition

__all__ = ["are_conditions_stale", "is_sidecar", "set_condition", "update_conditions"]

#: The reason of the conditions of a finished pod, by its phase.
_FINISHED_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


def update_conditions(pod: Object, now: str) -> None:
    """Write the generated conditions into the pod's status."""
    for condition in _generate_conditions(pod):
        set_condition(pod, condition, now)


def set_condition(pod: Object, condition: Object, now: str) -> None:
    """Write a condition of the pod's current generation."""
    if "generation" in pod["metadata"]:
        condition = {**condition, "observedGeneration": pod["metadata"]["generation"]}
    update_pod_condition(pod["status"], condition, now)


def are_conditions_stale(pod: Object) -> bool:
    """Whether the status of a condition differs, for example because of a readiness gate."""
    current = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or ()}
    return any(current.get(condition["type"]) != condition["status"] for condition in _generate_conditions(pod))


def is_sidecar(pod: Object, name: str) -> bool:
    """Whether this is a restartable init container, which keeps running beside the main containers."""
    inits = pod["spec"].get("initContainers") or ()
    return any(container["name"] == name and container.get("restartPolicy") == "Always" for container in inits)


def _generate_conditions(pod: Object) -> Iterator[Object]:
    finished_reason = _FINISHED_REASONS.get(pod["status"]["phase"], "")
    yield _initialized(pod, finished_reason)
    containers_ready = _containers_ready(pod, finished_reason)
    yield _ready(pod, containers_ready, finished_reason)
    yield containers_ready
    yield {"type": "PodScheduled", "status": "True"}


def _initialized(pod: Object, finished_reason: str) -> Object:
    if finished_reason == "PodCompleted":
        return {"type": "Initialized", "status": "True", "reason": finished_reason}
    statuses = pod["status"].get("initContainerStatuses") or ()
    incomplete = [status["name"] for status in statuses if not _is_initialized(pod, status)]
    return _condition("Initialized", incomplete, "incomplete", "ContainersNotInitialized")


def _is_initialized(pod: Object, status: Object) -> bool:
    if is_sidecar(pod, status["name"]):
        return "waiting" not in status["state"]
    return bool(status["state"].get("terminated", {}).get("exitCode") == 0)


def _containers_ready(pod: Object, finished_reason: str) -> Object:
    if finished_reason:
        return {"type": "ContainersReady", "status": "False", "reason": finished_reason}
    unready = [status["name"] for status in pod["status"].get("containerStatuses") or () if not status["ready"]]
    return _condition("ContainersReady", unready, "unready", "ContainersNotReady")


def _ready(pod: Object, containers_ready: Object, finished_reason: str) -> Object:
    is_gated = containers_ready["status"] == "True" and not finished_reason
    problems = list(_failed_readiness_gates(pod)) if is_gated else []
    if problems:
        return {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(problems)}
    return {**containers_ready, "type": "Ready"}


def _condition(type_: str, containers: list[str], state: str, reason: str) -> Object:
    """True without ``containers``, else False because of them; ``state`` describes them in the message."""
    if not containers:
        return {"type": type_, "status": "True"}
    message = f"containers with {state} status: [{' '.join(containers)}]"
    return {"type": type_, "status": "False", "reason": reason, "message": message}


def _failed_readiness_gates(pod: Object) -> Iterator[str]:
    """A message for each readiness gate whose condition is not True."""
    conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or ()}
    for gate in pod["spec"].get("readinessGates") or ():
        type_ = gate["conditionType"]
        status = conditions.get(type_)
        if status is None:
            yield f'corresponding condition of pod readiness gate "{type_}" does not exist.'
        elif status != "True":
            yield f'the status of pod readiness gate "{type_}" is not "True", but {status}'
