"""The conditions of a pod that its node reports, as the state of its containers has it."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.pods import set_condition

__all__ = ["conditions_differ", "is_sidecar", "set_conditions"]

_OVER = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


def set_conditions(pod: Object, now: str) -> None:
    """Write Initialized, Ready, ContainersReady and PodScheduled into the pod's status."""
    for condition in _conditions(pod):
        set_condition(pod["status"], condition, now)


def conditions_differ(pod: Object) -> bool:
    """Whether any of them is not what it should be: a readiness gate may have changed its mind."""
    have = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    return any(have.get(one["type"]) != one["status"] for one in _conditions(pod))


def is_sidecar(pod: Object, name: str) -> bool:
    """Whether this is an init container that goes on running beside the others."""
    inits = pod["spec"].get("initContainers") or ()
    return any(one["name"] == name and one.get("restartPolicy") == "Always" for one in inits)


def _conditions(pod: Object) -> Iterator[Object]:
    over = _OVER.get(pod["status"]["phase"], "")
    yield _initialized(pod, over)
    containers = _containers_ready(pod, over)
    yield _ready(pod, containers, over)
    yield containers
    yield {"type": "PodScheduled", "status": "True"}


def _initialized(pod: Object, over: str) -> Object:
    if over == "PodCompleted":
        return {"type": "Initialized", "status": "True", "reason": over}
    inits = pod["status"].get("initContainerStatuses") or ()
    incomplete = [one["name"] for one in inits if not _has_initialized(pod, one)]
    return _condition("Initialized", incomplete, "incomplete", "ContainersNotInitialized")


def _has_initialized(pod: Object, container: Object) -> bool:
    if is_sidecar(pod, container["name"]):
        return "waiting" not in container["state"]
    return bool(container["state"].get("terminated", {}).get("exitCode") == 0)


def _containers_ready(pod: Object, over: str) -> Object:
    if over:
        return {"type": "ContainersReady", "status": "False", "reason": over}
    unready = [one["name"] for one in pod["status"].get("containerStatuses") or () if not one["ready"]]
    return _condition("ContainersReady", unready, "unready", "ContainersNotReady")


def _ready(pod: Object, containers: Object, over: str) -> Object:
    failed = list(_gates(pod)) if containers["status"] == "True" and not over else []
    if failed:
        return {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": ", ".join(failed)}
    return {**containers, "type": "Ready"}


def _condition(type_: str, names: list[str], what: str, reason: str) -> Object:
    if not names:
        return {"type": type_, "status": "True"}
    message = f"containers with {what} status: [{' '.join(names)}]"
    return {"type": type_, "status": "False", "reason": reason, "message": message}


def _gates(pod: Object) -> Iterator[str]:
    """What each readiness gate has against the pod."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    for gate in pod["spec"].get("readinessGates") or ():
        name = gate["conditionType"]
        found = conditions.get(name)
        if found is None:
            yield f'corresponding condition of pod readiness gate "{name}" does not exist.'
        elif found != "True":
            yield f'the status of pod readiness gate "{name}" is not "True", but {found}'
