"""The printer of every built-in kind, and the default for kinds without one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers import (
    autoscaling,
    core,
    devices,
    networking,
    pods,
    rbac,
    scheduling,
    storage,
    workloads,
)
from kubestow_devcluster.apiserver.printers.table import Printer, columns, name_of
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["DEFAULT", "PRINTERS"]


def _created_at(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


DEFAULT = Printer(columns("Name", ("Created At", "date")), _created_at)
#: By the resource that the objects are stored under.
PRINTERS: dict[str, Printer] = {
    resource: printer
    for module in (autoscaling, core, devices, networking, pods, rbac, scheduling, storage, workloads)
    for resource, printer in module.PRINTERS.items()
}
