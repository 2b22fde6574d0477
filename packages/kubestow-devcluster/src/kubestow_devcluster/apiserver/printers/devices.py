"""Printers of the kinds of resource.k8s.io: device classes, resource claims, claim templates and slices."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import Printer, age_of, columns, field_printer, name_of
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


def _print_resource_claim(obj: Object, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    states = [
        state
        for state, holds in (
            ("deleted", "deletionTimestamp" in obj["metadata"]),
            ("allocated", "allocation" in status),
            ("reserved", bool(status.get("reservedFor"))),
        )
        if holds
    ]
    return [name_of(obj), ",".join(states) if states else "pending", age_of(obj, now)]


def _print_resource_slice(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    node = spec.get("nodeName") or ("<all nodes>" if spec.get("allNodes") else "<some nodes>")
    return [name_of(obj), node, spec.get("driver", ""), spec.get("pool", {}).get("name", ""), age_of(obj, now)]


PRINTERS: dict[str, Printer] = {
    "deviceclasses.resource.k8s.io": Printer(columns("Name", "Age"), field_printer()),
    "resourceclaims.resource.k8s.io": Printer(columns("Name", "State", "Age"), _print_resource_claim),
    "resourceclaimtemplates.resource.k8s.io": Printer(columns("Name", "Age"), field_printer()),
    "resourceslices.resource.k8s.io": Printer(columns("Name", "Node", "Driver", "Pool", "Age"), _print_resource_slice),
}
