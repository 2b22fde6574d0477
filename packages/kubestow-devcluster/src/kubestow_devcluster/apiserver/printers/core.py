"""Printers of nodes, namespaces, events and the small kinds of core/v1, and of runtime classes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    UNKNOWN,
    Printer,
    age,
    age_of,
    columns,
    field_printer,
    format_list,
    name_of,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


def _print_node(node: Object, now: datetime) -> list[Any]:
    status, info = node.get("status", {}), node.get("status", {}).get("nodeInfo", {})
    conditions = [
        ("" if condition["status"] == "True" else "Not") + "Ready"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    if node["spec"].get("unschedulable"):
        conditions.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or UNKNOWN
    return [
        name_of(node),
        ",".join(conditions),
        format_list(sorted(roles)),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _print_event(event: Object, now: datetime) -> list[Any]:
    regarding = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or series.get("lastObservedTime") or first
    target = (
        f"{regarding.get('kind', '').lower()}/{regarding['name']}"
        if regarding.get("name")
        else regarding.get("kind", "").lower()
    )
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        target,
        regarding.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        (event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        name_of(event),
    ]


def _print_config_map(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


def _print_secret(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def _print_service_account(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("secrets") or ()), age_of(obj, now)]


def _print_resource_quota(obj: Object, now: datetime) -> list[Any]:
    hard, used = (obj.get("status", {}).get(field) or {} for field in ("hard", "used"))
    cells = {resource: f"{resource}: {used.get(resource, '0')}/{hard[resource]}" for resource in sorted(hard)}
    limits = [cell for resource, cell in cells.items() if resource.startswith("limits.")]
    requests = [cell for resource, cell in cells.items() if not resource.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


PRINTERS: dict[str, Printer] = {
    "configmaps": Printer(columns("Name", "Data", "Age"), _print_config_map),
    "events": Printer(
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
        _print_event,
    ),
    "namespaces": Printer(columns("Name", "Status", "Age"), field_printer("status.phase")),
    "nodes": Printer(
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
        _print_node,
    ),
    "resourcequotas": Printer(columns("Name", "Request", "Limit", "Age"), _print_resource_quota),
    "runtimeclasses.node.k8s.io": Printer(columns("Name", "Handler", "Age"), field_printer("handler")),
    "secrets": Printer(columns("Name", "Type", "Data", "Age"), _print_secret),
    "serviceaccounts": Printer(columns("Name", "Secrets", "Age"), _print_service_account),
}
