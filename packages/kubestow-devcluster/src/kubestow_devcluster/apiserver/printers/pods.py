"""Printers of pods and pod templates. The STATUS of a pod combines its phase, conditions and container states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    Printer,
    age,
    age_of,
    columns,
    format_labels,
    has_condition,
    name_of,
    template_cells,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS", "pod_status"]


def pod_status(pod: Object) -> tuple[str, int, int, int]:
    """STATUS, ready containers, all containers and restarts of a pod. Sidecars count as containers."""
    status = pod.get("status", {})
    text: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    total = len(pod["spec"].get("containers") or ())
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    init_containers = status.get("initContainerStatuses") or ()
    sidecar_statuses = [one for one in init_containers if one["name"] in sidecars]
    is_initialized = has_condition(status, "Initialized")
    initializing = "" if is_initialized else _init_status(init_containers, sidecars)
    containers = () if initializing else status.get("containerStatuses") or ()
    text, running = _container_status(text, containers)
    if initializing:
        text = initializing
    elif text == "Completed" and running:
        text = "Running" if has_condition(status, "Ready") else "NotReady"
    ready = sum(_is_running(one) for one in (*containers, *sidecar_statuses))
    counted = init_containers if initializing else sidecar_statuses
    restarts = sum(one.get("restartCount", 0) for one in (*counted, *containers))
    if "deletionTimestamp" in pod["metadata"]:
        text = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return text, ready, total + len(sidecars), restarts


def _container_status(text: str, containers: Sequence[Object]) -> tuple[str, bool]:
    """STATUS as the container states change it, and whether a container is running and ready."""
    running = False
    for container in reversed(containers):
        waiting, terminated = container.get("state", {}).get("waiting"), container.get("state", {}).get("terminated")
        if waiting is not None and waiting.get("reason"):
            text = waiting["reason"]
        elif terminated is not None:
            text = terminated.get("reason") or _exit_status(terminated)
        else:
            running = running or _is_running(container)
    return text, running


def _is_running(container: Object) -> bool:
    return bool(container.get("ready")) and "running" in container.get("state", {})


def _restarts(status: Object, restarts: int, now: datetime) -> str:
    """The number of restarts, and the time since the last one."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    finished = [one.get("lastState", {}).get("terminated", {}).get("finishedAt") for one in containers]
    last = max((time for time in finished if time), default="")
    return f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)


def _init_status(init_containers: Sequence[Object], sidecars: set[str]) -> str:
    """``Init:...`` for the first init container that has not completed; the empty string when all have."""
    for completed, container in enumerate(init_containers):
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or _exit_status(terminated)}"
        if waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{completed}/{len(init_containers)}"
    return ""


def _exit_status(terminated: Object) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _print_pod(pod: Object, now: datetime) -> list[Any]:
    spec, status = pod["spec"], pod.get("status", {})
    text, ready, total, restarts = pod_status(pod)
    gates = spec.get("readinessGates") or ()
    passed = sum(has_condition(status, gate["conditionType"]) for gate in gates)
    return [
        name_of(pod),
        f"{ready}/{total}",
        text,
        _restarts(pod.get("status", {}), restarts, now),
        age_of(pod, now),
        (status.get("podIPs") or [{}])[0].get("ip") or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _print_pod_template(obj: Object, now: datetime) -> list[Any]:
    labels = obj.get("template", {}).get("metadata", {}).get("labels")
    return [name_of(obj), *template_cells(obj), format_labels(labels)]


PRINTERS: dict[str, Printer] = {
    "pods": Printer(
        columns("Name", "Ready", "Status", "Restarts", "Age", "!IP", "!Node", "!Nominated Node", "!Readiness Gates"),
        _print_pod,
    ),
    "podtemplates": Printer(columns("Name", "Containers", "Images", "Pod Labels"), _print_pod_template),
}
