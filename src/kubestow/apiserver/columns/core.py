"""Pods, nodes, namespaces, events, services and the small kinds of core/v1."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow.apiserver.columns.layout import (
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
    """The STATUS word of a pod, its ready and all containers, and its restarts."""
    status = pod.get("status", {})
    word: str = status.get("reason") or status.get("phase", "")
    containers = status.get("containerStatuses") or ()
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    ready, restarts, running = 0, 0, False
    for container in reversed(containers):
        state = container.get("state", {})
        restarts += container.get("restartCount", 0)
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = terminated.get("reason") or _exit_word(terminated)
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if word == "Completed" and running:
        word = "Running" if _is_ready(status) else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word, ready, len(pod["spec"].get("containers") or ()), restarts


def _exit_word(terminated: Object) -> str:
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_ready(status: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


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
        str(restarts),
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
