"""Pods, nodes, namespaces, events, services and the small kinds of core/v1."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import (
    NONE,
    UNKNOWN,
    Layout,
    Object,
    age,
    age_of,
    columns,
    labels_text,
    listed,
    name_of,
    values_at,
)

__all__ = ["LAYOUTS", "pod_status"]


def pod_status(pod: Object) -> tuple[str, int, int, int]:
    """The STATUS word of a pod, its ready and all containers, and its restarts; sidecars count as containers."""
    status = pod.get("status", {})
    word: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    total = len(pod["spec"].get("containers") or ())
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    inits = status.get("initContainerStatuses") or ()
    beside = [one for one in inits if one["name"] in sidecars]
    initializing = "" if _is_true(status, "Initialized") else _init_word(inits, sidecars)
    containers = () if initializing else status.get("containerStatuses") or ()
    word, running = _word(word, containers)
    if initializing:
        word = initializing
    elif word == "Completed" and running:
        word = "Running" if _is_true(status, "Ready") else "NotReady"
    ready = sum(_runs(one) for one in (*containers, *beside))
    restarts = sum(one.get("restartCount", 0) for one in (*(inits if initializing else beside), *containers))
    if "deletionTimestamp" in pod["metadata"]:
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word, ready, total + len(sidecars), restarts


def _word(word: str, containers: Sequence[Object]) -> tuple[str, bool]:
    """What the containers make of the STATUS word, and whether one of them runs."""
    running = False
    for container in reversed(containers):
        waiting, terminated = container.get("state", {}).get("waiting"), container.get("state", {}).get("terminated")
        if waiting is not None and waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = terminated.get("reason") or _exit_word(terminated)
        else:
            running = running or _runs(container)
    return word, running


def _runs(container: Object) -> bool:
    return bool(container.get("ready")) and "running" in container.get("state", {})


def _restarts_text(status: Object, restarts: int, now: datetime) -> str:
    """How many, and how long ago the last one was."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    ends = [one.get("lastState", {}).get("terminated", {}).get("finishedAt") for one in containers]
    last = max((end for end in ends if end), default="")
    return f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)


def _init_word(inits: Sequence[Object], sidecars: set[str]) -> str:
    """``Init:...`` for a pod that is not initialized, else nothing."""
    for done, container in enumerate(inits):
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or _exit_word(terminated)}"
        if waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{done}/{len(inits)}"
    return ""


def _exit_word(terminated: Object) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(status: Object, type_: str) -> bool:
    return any(c["type"] == type_ and c["status"] == "True" for c in status.get("conditions") or ())


def _pod(pod: Object, now: datetime) -> list[Any]:
    spec, status = pod["spec"], pod.get("status", {})
    word, ready, total, restarts = pod_status(pod)
    gates = spec.get("readinessGates") or ()
    passed = sum(
        any(c["type"] == gate["conditionType"] and c["status"] == "True" for c in status.get("conditions") or ())
        for gate in gates
    )
    return [
        name_of(pod),
        f"{ready}/{total}",
        word,
        _restarts_text(pod.get("status", {}), restarts, now),
        age_of(pod, now),
        (status.get("podIPs") or [{}])[0].get("ip") or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _node(node: Object, now: datetime) -> list[Any]:
    status, info = node.get("status", {}), node.get("status", {}).get("nodeInfo", {})
    words = [
        ("" if condition["status"] == "True" else "Not") + "Ready"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or UNKNOWN
    return [
        name_of(node),
        ",".join(words),
        listed(sorted(roles)),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _event(event: Object, now: datetime) -> list[Any]:
    subject = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or series.get("lastObservedTime") or first
    shown = (
        f"{subject.get('kind', '').lower()}/{subject['name']}"
        if subject.get("name")
        else subject.get("kind", "").lower()
    )
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        shown,
        subject.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        name_of(event),
    ]


def _service(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ingress = status.get("loadBalancer", {}).get("ingress") or ()
    outside = list(spec.get("externalIPs") or ()) + [one.get("ip") or one.get("hostname", "") for one in ingress]
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer" and not outside:
        external = "<pending>"
    else:
        external = listed(outside)
    ports = listed(
        f"{port.get('port', 0)}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port', 0)}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    )
    address = spec.get("clusterIP") or NONE
    return [
        name_of(new),
        spec.get("type", ""),
        address,
        external,
        ports,
        age_of(new, now),
        labels_text(spec.get("selector")),
    ]


def _data(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), len(new.get("data") or ()) + len(new.get("binaryData") or ()), age_of(new, now)]


def _secret(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), new.get("type", ""), len(new.get("data") or ()), age_of(new, now)]


def _account(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), len(new.get("secrets") or ()), age_of(new, now)]


LAYOUTS: dict[str, Layout] = {
    "configmaps": Layout(columns("Name", "Data", "Age"), _data),
    "events": Layout(
        columns(
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "!Subobject",
            "!Source",
            "Message",
            "!First Seen",
            "!Count",
            "!Name",
        ),
        _event,
    ),
    "namespaces": Layout(columns("Name", "Status", "Age"), values_at("status.phase")),
    "nodes": Layout(
        columns(
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "!Internal-IP",
            "!External-IP",
            "!OS-Image",
            "!Kernel-Version",
            "!Container-Runtime",
        ),
        _node,
    ),
    "pods": Layout(
        columns("Name", "Ready", "Status", "Restarts", "Age", "!IP", "!Node", "!Nominated Node", "!Readiness Gates"),
        _pod,
    ),
    "secrets": Layout(columns("Name", "Type", "Data", "Age"), _secret),
    "serviceaccounts": Layout(columns("Name", "Secrets", "Age"), _account),
    "services": Layout(columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "!Selector"), _service),
}
