"""The kinds that make pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import (
    NONE,
    Layout,
    Object,
    age,
    age_of,
    columns,
    duration,
    labels_text,
    name_of,
    selector_text,
    template_cells,
)

__all__ = ["LAYOUTS"]

_TEMPLATE = ("!Containers", "!Images", "!Selector")


def _deployment(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    selector = selector_text(spec.get("selector"))
    return [name_of(new), ready, updated, available, age_of(new, now), *template_cells(spec), selector]


def _replica_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    selector = spec.get("selector")
    shown = (
        selector_text(selector)
        if selector is None or "matchLabels" in selector or "matchExpressions" in selector
        else labels_text(selector)
    )
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(new), *counts, age_of(new, now), *template_cells(spec), shown]


def _stateful_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(new), ready, age_of(new, now), *template_cells(spec)]


def _daemon_set(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = labels_text(spec.get("template", {}).get("spec", {}).get("nodeSelector"))
    counts = [status.get(field, 0) for field in fields]
    return [
        name_of(new),
        *counts,
        selector,
        age_of(new, now),
        *template_cells(spec),
        selector_text(spec.get("selector")),
    ]


def _job(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    wanted = spec.get("completions")
    parallel = spec.get("parallelism", 1)
    goal = str(wanted) if wanted is not None else f"1 of {parallel}" if parallel > 1 else "1"
    conditions = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    word = (
        "Complete"
        if "Complete" in conditions
        else "Failed"
        if "Failed" in conditions
        else "Suspended"
        if "Suspended" in conditions
        else "Running"
    )
    begun, ended = status.get("startTime"), status.get("completionTime")
    took = ""
    if begun:
        end = datetime.fromisoformat(ended) if ended else now
        took = duration((end - datetime.fromisoformat(begun)).total_seconds())
    progress = f"{status.get('succeeded', 0)}/{goal}"
    return [
        name_of(new),
        word,
        progress,
        took,
        age_of(new, now),
        *template_cells(spec),
        selector_text(spec.get("selector")),
    ]


def _cron_job(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    template = spec.get("jobTemplate", {}).get("spec", {})
    active = len(status.get("active") or ())
    zone = spec.get("timeZone") or NONE
    cells = [
        name_of(new),
        spec.get("schedule", ""),
        zone,
        str(spec.get("suspend", False)),
        active,
        last,
        age_of(new, now),
    ]
    return [*cells, *template_cells(template), selector_text(template.get("selector"))]


LAYOUTS: dict[str, Layout] = {
    "cronjobs.batch": Layout(
        columns("Name", "Schedule", "Timezone", "Suspend", ("Active", "integer"), "Last Schedule", "Age", *_TEMPLATE),
        _cron_job,
    ),
    "daemonsets.apps": Layout(
        columns(
            "Name",
            *((name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
            "Node Selector",
            "Age",
            *_TEMPLATE,
        ),
        _daemon_set,
    ),
    "deployments.apps": Layout(columns("Name", "Ready", "Up-to-date", "Available", "Age", *_TEMPLATE), _deployment),
    "jobs.batch": Layout(columns("Name", "Status", "Completions", "Duration", "Age", *_TEMPLATE), _job),
    "replicasets.apps": Layout(
        columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE),
        _replica_set,
    ),
    "replicationcontrollers": Layout(
        columns("Name", *((name, "integer") for name in ("Desired", "Current", "Ready")), "Age", *_TEMPLATE),
        _replica_set,
    ),
    "statefulsets.apps": Layout(columns("Name", "Ready", "Age", "!Containers", "!Images"), _stateful_set),
}
