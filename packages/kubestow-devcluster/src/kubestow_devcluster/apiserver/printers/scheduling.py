"""Printers of priority classes, pod groups, disruption budgets and leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import UNKNOWN, Printer, age_of, columns, field_printer, name_of
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


def _print_pod_disruption_budget(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    bounds = [
        str(spec[field]) if spec.get(field) is not None else "N/A" for field in ("minAvailable", "maxUnavailable")
    ]
    return [name_of(obj), *bounds, status.get("disruptionsAllowed", 0), age_of(obj, now)]


def _print_priority_class(obj: Object, now: datetime) -> list[Any]:
    policy = obj.get("preemptionPolicy", "")
    return [name_of(obj), obj.get("value", 0), bool(obj.get("globalDefault", False)), age_of(obj, now), policy]


def _print_pod_group(obj: Object, now: datetime) -> list[Any]:
    policy = obj["spec"].get("schedulingPolicy", {})
    summary = f"Gang ({policy['gang'].get('minCount', 0)})" if "gang" in policy else "Basic"
    conditions = obj.get("status", {}).get("conditions") or ()
    scheduled = next((one["status"] for one in conditions if one["type"] == "PodGroupScheduled"), UNKNOWN)
    return [name_of(obj), summary, scheduled, age_of(obj, now)]


def _print_queue(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("spec", {}).get("parent") or ""]


PRINTERS: dict[str, Printer] = {
    "leases.coordination.k8s.io": Printer(columns("Name", "Holder", "Age"), field_printer("spec.holderIdentity")),
    "poddisruptionbudgets.policy": Printer(
        columns("Name", "Min Available", "Max Unavailable", ("Allowed Disruptions", "integer"), "Age"),
        _print_pod_disruption_budget,
    ),
    "podgroups.scheduling.k8s.io": Printer(columns("Name", "Policy", "Scheduled", "Age"), _print_pod_group),
    "podgroups.scheduling.volcano.sh": Printer(
        columns("Name", "STATUS", ("minMember", "integer"), ("RUNNINGS", "integer"), "AGE", "!QUEUE"),
        field_printer("status.phase", "spec.minMember", "status.running", after_age=("spec.queue",)),
    ),
    "podgroups.scheduling.x-k8s.io": Printer(
        columns(
            "Name",
            "Phase",
            ("MinMember", "integer"),
            ("Running", "integer"),
            ("Succeeded", "integer"),
            ("Failed", "integer"),
            "Age",
        ),
        field_printer("status.phase", "spec.minMember", "status.running", "status.succeeded", "status.failed"),
    ),
    "priorityclasses.scheduling.k8s.io": Printer(
        columns("Name", ("Value", "integer"), ("Global-Default", "boolean"), "Age", "PreemptionPolicy"),
        _print_priority_class,
    ),
    "queues.scheduling.volcano.sh": Printer(columns("Name", "PARENT"), _print_queue),
}
