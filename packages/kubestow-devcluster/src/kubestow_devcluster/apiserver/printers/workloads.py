"""Printers of the kinds of apps and batch, and of replication controllers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    Printer,
    age,
    age_of,
    columns,
    format_duration,
    format_labels,
    format_selector,
    has_condition,
    name_of,
    template_cells,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


_TEMPLATE_COLUMNS = ("!Containers", "!Images", "!Selector")


def _print_deployment(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    selector = format_selector(spec.get("selector"))
    return [name_of(obj), ready, updated, available, age_of(obj, now), *template_cells(spec), selector]


def _print_replica_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    selector = spec.get("selector")
    # The selector of a replication controller is a map of labels.
    is_label_selector = selector is None or "matchLabels" in selector or "matchExpressions" in selector
    selector_cell = format_selector(selector) if is_label_selector else format_labels(selector)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *template_cells(spec), selector_cell]


def _print_stateful_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *template_cells(spec)]


def _print_daemon_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = format_labels(spec.get("template", {}).get("spec", {}).get("nodeSelector"))
    counts = [status.get(field, 0) for field in fields]
    return [
        name_of(obj),
        *counts,
        selector,
        age_of(obj, now),
        *template_cells(spec),
        format_selector(spec.get("selector")),
    ]


def _print_job(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    if completions is None:
        completions = f"1 of {parallelism}" if parallelism > 1 else "1"
    return [
        name_of(obj),
        next((type_ for type_ in ("Complete", "Failed", "Suspended") if has_condition(status, type_)), "Running"),
        f"{status.get('succeeded', 0)}/{completions}",
        _job_duration(status, now),
        age_of(obj, now),
        *template_cells(spec),
        format_selector(spec.get("selector")),
    ]


def _job_duration(status: Object, now: datetime) -> str:
    """From start to completion, or to now while the job runs; empty before it starts."""
    start, completion = status.get("startTime"), status.get("completionTime")
    if not start:
        return ""
    end = datetime.fromisoformat(completion) if completion else now
    return format_duration((end - datetime.fromisoformat(start)).total_seconds())


def _print_cron_job(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    template = spec.get("jobTemplate", {}).get("spec", {})
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(spec.get("suspend", False)),
        len(status.get("active") or ()),
        age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE,
        age_of(obj, now),
        *template_cells(template),
        format_selector(template.get("selector")),
    ]


def _print_controller_revision(obj: Object, now: datetime) -> list[Any]:
    owners = obj["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    controller = NONE
    if owner is not None:
        group_kind = f"{owner['kind'].lower()}.{owner['apiVersion'].rpartition('/')[0]}".rstrip(".")
        controller = f"{group_kind}/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


PRINTERS: dict[str, Printer] = {
    "controllerrevisions.apps": Printer(
        columns("Name", "Controller", ("Revision", "integer"), "Age"), _print_controller_revision
    ),
    "cronjobs.batch": Printer(
        columns(
            "Name", "Schedule", "Timezone", "Suspend", ("Active", "integer"), "Last Schedule", "Age", *_TEMPLATE_COLUMNS
        ),
        _print_cron_job,
    ),
    "daemonsets.apps": Printer(
        columns(
            "Name",
            *((name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
            "Node Selector",
            "Age",
            *_TEMPLATE_COLUMNS,
        ),
        _print_daemon_set,
    ),
    "deployments.apps": Printer(
        columns("Name", "Ready", "Up-to-date", "Available", "Age", *_TEMPLATE_COLUMNS), _print_deployment
    ),
    "jobs.batch": Printer(columns("Name", "Status", "Completions", "Duration", "Age", *_TEMPLATE_COLUMNS), _print_job),
    "replicasets.apps": Printer(
        columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE_COLUMNS),
        _print_replica_set,
    ),
    "replicationcontrollers": Printer(
        columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE_COLUMNS),
        _print_replica_set,
    ),
    "statefulsets.apps": Printer(columns("Name", "Ready", "Age", "!Containers", "!Images"), _print_stateful_set),
}
